"""README and docs: pages that can be reached, links that lead somewhere, and reference pages that are those of the code."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
GENERATE = runpy.run_path(str(DOCS / "generate.py"))


def links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        yield target.partition("#")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    dead = [target for target in links(page) if "://" not in target and not (page.parent / target).exists()]

    assert dead == []


def test_every_command_is_on_its_page() -> None:
    from cluster_serving.node.cli import main

    told = (DOCS / "reference" / "commands.md").read_text()

    assert [name for name in main.commands if name != "completion" and not re.search(rf"`{name}\b", told)] == []
    assert "cluster-serving completion" in told


@pytest.mark.parametrize("name", sorted(GENERATE["pages"]()))
def test_pages_made_from_the_code_are_of_this_code(name: str) -> None:
    """`make docs` mends it."""
    assert (DOCS / name).read_text() == GENERATE["pages"]()[name]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
