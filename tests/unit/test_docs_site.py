"""The site of the docs: built without a warning, complete, and readable without a network."""

import html
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

import click
import pytest
import yaml
from docs.generate import pages

from cluster_serving.client import __all__ as names_of_client
from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.servers.process.exit_codes import MEANINGS
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.node.cli import main
from cluster_serving.node.config.settings import Settings

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site() -> Path:
    """The site of `make docs`, built anew where a page has changed since."""
    target = ROOT / "build" / "docs"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", str(target)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert (built.returncode, built.stderr) == (0, "")
    return target


@cache
def text(page: Path) -> str:
    """Return the text of a page's article, without tags."""
    (article,) = re.findall(r'<article role="main".*?</article>', page.read_text(), re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", "", article))


def commands(command: click.Command, name: str) -> Iterator[str]:
    yield name
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                yield from commands(found, f"{name} {each}")


def routes() -> Iterator[str]:
    document = yaml.safe_load(files("cluster_serving.frontend.routes").joinpath("openapi.yaml").read_text())
    for path, operations in document["paths"].items():
        yield from (f"{method.upper()} {path}" for method in operations)


def test_every_name_is_in_the_site(site: Path) -> None:
    def told(page: str) -> str:
        return text(site / "reference" / f"{page}.html")

    settings = [str(field.alias) for model in (Settings, FrontendConfig) for field in model.model_fields.values()]
    metrics = re.findall(r"^### `(\w+)`", pages()["reference/metrics.md"], re.MULTILINE)

    assert [name for name in settings if not re.search(rf"\b{name}\b", told("settings"))] == []
    assert [name for name in commands(main, "cluster-serving") if name not in told("commands")] == []
    assert [meaning for meaning in MEANINGS.values() if meaning not in told("commands")] == []
    assert [name for name in names_of_client if name not in told("client")] == []
    assert [route for route in routes() if route not in told("http")] == []
    assert [name for name in metrics if name not in told("metrics")] == []
    assert [code for code in ErrorCode if code not in told("errors")] == []


def test_every_page_has_its_place_in_the_sidebar(site: Path) -> None:
    index = (site / "index.html").read_text()
    listed = set(re.findall(r'class="reference internal" href="([^"#]+)"', index))
    pages = {str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in (ROOT / "docs").rglob("*.md")}

    assert pages - listed == {"index.html"}


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """Links of the text may lead elsewhere; scripts, styles, fonts and pictures may not."""
    loaded = [
        (page.name, address)
        for page in site.rglob("*.html")
        for tag in re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", page.read_text())
        for address in re.findall(r'(?:src|href)="([^"]*)"', tag)
    ]
    styles = [
        (page.name, address)
        for page in site.rglob("*.css")
        for address in re.findall(r"(?:url\(|@import )['\"]?([^'\")]+)", page.read_text())
    ]

    assert len(loaded) > 100
    assert [each for each in loaded + styles if "//" in each[1] and not each[1].startswith("data:")] == []


def test_words_are_found_without_a_server(site: Path) -> None:
    """The index is a script, which a browser also loads from a file."""
    index = (site / "searchindex.js").read_text()

    assert index.startswith("Search.setIndex(")
    assert {"maxqueuelength", "deliveredtoooften", "sentinel"} <= set(re.findall(r'"(\w+)":', index))
