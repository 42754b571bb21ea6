"""README and docs: links that lead somewhere, reference pages that are those of the code, and names that the code has."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from docs.generate import pages
from docs.generate.messages import messages
from docs.generate.metrics import ALERTS
from docs.generate.settings import EXAMPLES

from cluster_serving.client import InputQueue
from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.servers.config.sources import ENVIRON_PREFIX
from cluster_serving.client.servers.config.spellings import snake
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.client.wire.dead_letter import UNPUBLISHED
from cluster_serving.client.wire.reply import read_replies
from cluster_serving.client.wire.tensors import decode_tensor, encode_tensor
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.node.cli import main
from cluster_serving.node.config.settings import Settings
from cluster_serving.swarm.autoscale.settings import Autoscale

pytestmark = pytest.mark.no_cover

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
NOW = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which may tell of names that are gone
OURS = [page for page in NOW if page.name != "coming-over.md"]  # which has keys of the original
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def faults(pages: Iterable[Path], found: Callable[[Path], Iterable[object]]) -> dict[str, list[object]]:
    """Return what is wrong on each page."""
    wrong = {str(page.relative_to(ROOT)): list(found(page)) for page in pages}
    return {page: each for page, each in wrong.items() if each}


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in FENCE.findall(page.read_text()) if found == language]


@cache
def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return FENCE.sub("", page.read_text())


def spans(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


@cache
def code(page: Path) -> str:
    """Return all code of a page: blocks, and what stands in its lines."""
    return "\n".join([*spans(page), *(text for _, text in FENCE.findall(page.read_text()))])


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if ":" not in link and (
            not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target))
        ):
            yield link


def test_every_link_leads_somewhere() -> None:
    assert faults(PAGES, dead_links) == {}


@cache
def generated() -> dict[str, str]:
    """Return the pages that are made from the code, made now."""
    return pages()


def test_pages_made_from_the_code_are_of_this_code() -> None:
    old = [path for path, text in generated().items() if (DOCS / path).read_text() != text]

    assert not old, "make docs mends them"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_every_error_code_has_cause_and_cure() -> None:
    page = (DOCS / "reference" / "errors.md").read_text()

    assert re.findall(r"^\| `(\w+)` \| \d+ \|", page, re.MULTILINE) == [code.value for code in ErrorCode]
    assert UNPUBLISHED in page


def test_every_exit_code_is_on_the_page_of_the_commands() -> None:
    codes = re.findall(r"^\| (\d+) \|", generated()["reference/commands.md"], re.MULTILINE)

    assert codes == [*(str(code.value) for code in ExitCode), "130"]


def test_messages_of_troubleshooting_are_messages() -> None:
    """The words between values stand in the source. Rows of other programs' messages have none of ours."""
    foreign = {
        "No module named",
        "Connection refused",
        "Name or service not known",
        "AUTH <password>",
        "NOAUTH",
        "WRONGPASS",
    }
    foreign |= {
        "invalid username",
        "NOPERM",
        "something that is no Redis with TLS",
        "certificate verify failed",
        "killed by SIGKILL",
    }
    rows = re.findall(r"^\| (`.+?) \| ", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    quoted = [
        text for row in rows for text in re.findall(r"`([^`]{16,})`", row) if not any(map(text.startswith, foreign))
    ]
    source = re.sub(r"\W+", " ", re.sub(r'"\s+f?"', "", sources()))
    words = [part for text in quoted for part in re.split("…", text) if len(part) > 8]

    assert len(words) > 60
    assert [part for part in words if re.sub(r"\W+", " ", part).strip() not in source] == []


@cache
def every_message() -> str:
    """Return the text of the page of messages, as a reader sees it."""
    return re.sub(r"\\(?=\W)", "", messages())


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ('InputQueue(host="127.0.0.2", port=1, patience_s=0).predict(1.0)', "listens on its own machine alone"),
        ('InputQueue(host="localhost:1")', "the name or the address of a machine alone"),
        ('InputQueue(url="redis://a:b/c")', "of the Redis URL is not a number"),
        ('InputQueue(url="redis+sentinel://127.0.0.1:1/m", patience_s=0).predict(1.0)', "with a master named"),
        ("migrate none.yaml", "give the path of the original's config.yaml"),
        ("start -c none.yaml", "create one with cluster-serving init"),
        ("encrypt none there", "does not exist"),
        ("status nobody", "was ever started on this machine"),
    ],
)
def test_a_message_is_found_by_its_words(mistake: str, words: str) -> None:
    if mistake.startswith("InputQueue"):
        with pytest.raises(Exception, match=re.escape(words)):
            eval(mistake, {"InputQueue": InputQueue})  # noqa: S307 - a call from above
    else:
        assert words in " ".join(CliRunner().invoke(main, mistake.split()).output.split())

    assert words in every_message()


# Names that pages use

SETTINGS = {
    str(field.alias) for model in (Settings, FrontendConfig, Autoscale) for field in model.model_fields.values()
}
SECTIONS = {"frontend", "autoscale"}
FOREIGN = {"scrape_configs", "groups", "services"}
"""First keys of files of other programs."""
MANIFEST = set(re.findall(r"\b(\w+):", (ROOT / "docs" / "examples" / "kubernetes.yaml").read_text()))


def unknown_keys(page: Path) -> Iterator[str]:
    for text in blocks(page, "yaml"):
        document: Any = yaml.safe_load(text)
        if isinstance(document, dict) and not document.keys() & FOREIGN:
            yield from (
                {*document, *(key for section in SECTIONS for key in document.get(section) or ())} - SETTINGS - SECTIONS
            )


def unknown_settings(page: Path) -> set[str]:
    """Return names in flags, and names with a hump before a colon and a value, that are no settings."""
    named = {key for text in spans(page) for key in re.findall(r"^([a-z]+[A-Z]\w*): \S", text)}
    return {*re.findall(r"--set[= ]'?([a-z]\w*)=", code(page)), *named} - SETTINGS - MANIFEST


@cache
def sources() -> str:
    """Return the files in which messages and variables of the environment may stand."""
    found = [
        path for folder in ("client", "node", "frontend", "swarm", "docker") for path in (ROOT / folder).rglob("*")
    ]
    return "\n".join(path.read_text() for path in found if path.suffix in {".py", ".lua", ".yml", ".sh"})


def unknown_variables(page: Path) -> list[str]:
    known = {ENVIRON_PREFIX + snake(key) for key in SETTINGS}
    named = set(re.findall(rf"{ENVIRON_PREFIX}[A-Z][A-Z_]+[A-Z]", page.read_text()))
    return [name for name in named - known if name.removesuffix("_FILE") not in known and name not in sources()]


def test_settings_and_variables_exist() -> None:
    assert faults(OURS, unknown_keys) == {}
    assert faults(OURS, unknown_settings) == {}
    assert faults(NOW, unknown_variables) == {}


def test_examples_of_settings_are_values() -> None:
    models = {
        field.alias: model for model in (FrontendConfig, Autoscale, Settings) for field in model.model_fields.values()
    }
    wrong: dict[str, object] = {}
    for key, example in EXAMPLES.items():
        try:
            value = yaml.load(example, yaml.BaseLoader)  # noqa: S506 - it makes texts
            models[key].model_validate({key: value})
        except ValueError as error:
            wrong[key] = error

    assert wrong == {}


def named_command(words: list[str]) -> tuple[click.Command, str]:
    """Return the command that the first words of a line name, and the first word that should name one and does not."""
    command: click.Command = main
    for word in words:
        if not isinstance(command, click.Group):
            break
        found = command.get_command(click.Context(command), word)
        if found is None:
            hidden = [
                each for each in command.commands.values() if each.hidden
            ]  # of `doctor`, whose first word may be a job
            return (hidden[0], "") if hidden else (command, word)
        command = found
    return command, ""


def unknown_commands(page: Path) -> Iterator[str]:
    lines = code(page).replace("\\\n", " ").splitlines()
    calls = [
        call
        for line in lines
        for call in re.findall(r"(?:^|[;|&()\w$] +)cluster-serving ([a-z][^#|;&`]*)", line.strip())
    ]
    for call in calls:
        words = call.split()
        command, unknown = named_command(words)
        if unknown and not unknown.isupper():
            yield call
        context = click.Context(
            command, help_option_names=["-h", "--help"]
        )  # click keeps the first help option it makes
        parameters = command.get_params(context)
        known = {name for each in parameters for name in (*each.opts, *each.secondary_opts)}
        given = {word.partition("=")[0].replace("_", "-") for word in words if re.match(r"--?[a-zA-Z]", word)}
        if not unknown:
            yield from (f"{call}: {option}" for option in given - known)


def test_commands_and_options_exist() -> None:
    assert faults(NOW, unknown_commands) == {}


@cache
def metrics() -> set[str]:
    return set(re.findall(r"^### `(\w+)`", generated()["reference/metrics.md"], re.MULTILINE))


def unknown_metrics(text: str) -> set[str]:
    named = {
        re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"\bcluster_serving_[a-z_]+[a-z]\b", text)
    }
    return named - metrics() - {name.removesuffix("_total") for name in metrics()}


def test_metrics_exist() -> None:
    assert faults(NOW, lambda page: unknown_metrics(code(page))) == {}
    assert unknown_metrics("\n".join(ALERTS.values())) == set()
    assert ALERTS.keys() <= metrics()


@cache
def routes() -> re.Pattern[str]:
    document = yaml.safe_load(files("cluster_serving.frontend.routes").joinpath("openapi.yaml").read_text())
    return re.compile("|".join(re.sub(r"\\{\w+\\}", r"[^/]+", re.escape(path)) for path in document["paths"]))


def unknown_routes(page: Path) -> Iterator[str]:
    for path in re.findall(r"(?:localhost|ANY-MACHINE|FRONTEND|\d+\.\d+\.\d+\.\d+):100\d\d(/[^\s`'\"?)]*)", code(page)):
        if not routes().fullmatch(path.rstrip("/.,") or "/"):
            yield path


def test_routes_exist() -> None:
    assert faults(NOW, unknown_routes) == {}


# The bytes of the wire's page


def dumps() -> list[bytes]:
    """Return the bytes of the dumps on the page, in order."""
    found = [text for text in blocks(DOCS / "reference" / "wire.md", "") if text.startswith("0000")]
    return [bytes.fromhex("".join(line[4:] for line in text.splitlines())) for text in found]


def test_the_tensor_on_the_page_of_the_wire_is_one() -> None:
    tensor, _ = dumps()
    values = np.array([1.0, 2.5], np.float32)

    assert encode_tensor(values) == tensor
    np.testing.assert_array_equal(decode_tensor(tensor), values)


def test_a_vector_is_made_without_arrow_as_the_page_says() -> None:
    values = np.arange(1000, dtype="<f4")
    header = bytearray(dumps()[0][:0xC0])
    for place, number in ((0x28, 4 * len(values)), (0x60, 4 * len(values)), (0x90, len(values))):
        header[place : place + 8] = number.to_bytes(8, "little")

    np.testing.assert_array_equal(decode_tensor(bytes(header) + values.tobytes()), values)


def test_the_reply_on_the_page_of_the_wire_is_one() -> None:
    batch = (
        b'{"node":"n","model":"m","ttl_ms":0,"worker":0,"batch":1,"filled_ms":2,"wait_ms":0,"run_ms":1,"publish_ms":0}'
    )
    (reply,) = read_replies([(b"1-0", [b"batch", batch, b"cat-1", dumps()[1]])])
    result = reply.result()

    assert (result.uri, result.value, result.error) == ("cat-1", [[281, 0.91]], None)
    assert result.receipt is not None
    assert (result.receipt.entry, result.receipt.read_ms) == ("1763657000000-0", 1763657000001.5)
