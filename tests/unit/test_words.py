"""The prose of docstrings and comments: in a stranger's words (CONTRIBUTING.md, Words)."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("client", "node", "frontend", "swarm")
QUESTIONS = {"what", "whether", "how", "who", "why", "where", "when", "which", "whose", "whichever"}
INDEFINITE = re.compile(
    r"\b(its?|they|them|their|those|these|who|whoever|whom|whose|this|that|which|what|whatever|such|ones?|others?|another"
    r"|some|nobody|somebody|everybody|anybody|nothing|whichever)\b",
    re.IGNORECASE,
)
DIRECTIVE = re.compile(r"#\s*(noqa|type:|pyright|pragma|!|fmt:)")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def sources() -> Iterator[str]:
    for part in PARTS:
        for path in (ROOT / part).rglob("*.py"):
            yield path.read_text()


def docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield text


def comments(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string):
            yield token.string.lstrip("# ")


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z']+", text)


def test_summaries_name_their_thing() -> None:
    firsts = [found[0].lower() for source in sources() for text in docstrings(source) if (found := words(text))]

    assert sum(first in QUESTIONS for first in firsts) < 0.03 * len(firsts)


def test_sentences_name_their_thing() -> None:
    prose = " ".join(text for source in sources() for text in (*docstrings(source), *comments(source)))
    count = len(words(prose))

    assert len(INDEFINITE.findall(prose)) < 0.065 * count
    assert prose.count(";") < 0.004 * count
