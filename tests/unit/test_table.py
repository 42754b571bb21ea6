"""The style of printed tables."""

import os
import pty
import subprocess
import sys
import termios
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from cluster_serving.client.servers.process.printable import printable
from cluster_serving.client.servers.process.table import Table, facts

PIPE = 1 << 30
PROGRAM = """
from cluster_serving.client.servers.process.table import Table
table = Table("name", "count", "why", numbers={"count"})
table.add("a" * 100, 5, ("because " * 20, "red"))
table.show()
"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("ü 数", "ü 数"),
        ("\x1b[2J\r\n", "\\x1b[2J\\r\\n"),
        ("\u202e\x9b\ue000\udcff", "\\u202e\\x9b\\ue000\\udcff"),
    ],
)
def test_control_characters_are_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_numbers_stand_on_the_right_and_lines_below_across_the_columns() -> None:
    table = Table("job", "records", "", numbers={"records"}, indent=2)
    table.add("digits", 7, "[bold]ready[/]")
    table.add_below("a line that is wider than the table")
    table.add("d", "12,345")

    assert list(table.lines(80)) == [
        "  job     records",
        "  digits        7  [bold]ready[/]",
        "      a line that is wider than the table",
        "  d        12,345",
    ]


def test_table_of_nothing_is_its_headings() -> None:
    assert list(Table("task", "state").lines(80)) == ["task  state"]


def test_facts_have_no_headings_and_fold_their_values() -> None:
    assert list(facts({"state": "ready", "why": "word " * 6}, indent=1).lines(24)) == [
        " state  ready",
        " why    word word word",
        "        word word word",
    ]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (80, ["key     value                       source", "length  as-long-as-this-and-longer  default"]),
        (32, ["key     value            source", "length  as-long-as-this  default", "        -and-longer"]),
        (
            21,
            [
                "key     value  source",
                "length  as-lo  defaul",
                "        ng-as  t",
                "        -this",
                "        -and-",
                "        longe",
                "        r",
            ],
        ),
    ],
)
def test_wide_columns_give_way_first(width: int, expected: list[str]) -> None:
    table = Table("key", "value", "source", wide={"value"})
    table.add("length", "as-long-as-this-and-longer", "default")

    assert list(table.lines(width)) == expected


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (18, ["job     rec/s  p50", "digits     12  3ms"]),
        (17, ["job    rec/s p50", "digits    12 3ms"]),
        (16, ["job    rec/s p50", "digits    12 3ms"]),
    ],
)
def test_the_second_space_between_columns_gives_way_before_any_value(width: int, expected: list[str]) -> None:
    table = Table("job", "rec/s", "p50", numbers={"rec/s", "p50"}, wide={"job"})
    table.add("digits", "12", "3ms")

    assert list(table.lines(width)) == expected


def test_cut_tables_have_a_line_for_each_row_and_are_whole_in_a_pipe() -> None:
    table = Table("id", "uri", wide={"uri"}, cut=True)
    table.add("1-0", "u" * 90)
    table.add_below("m" * 90)

    assert list(table.lines(20)) == ["id   uri", f"1-0  {'u' * 14}…", f"    {'m' * 15}…"]
    assert list(table.lines(PIPE)) == ["id   uri", f"1-0  {'u' * 90}", f"    {'m' * 90}"]


rows = st.lists(st.tuples(st.text(max_size=30), st.text(max_size=200), st.integers()), max_size=4)


@given(rows=rows, cut=st.booleans(), width=st.integers(30, 120))
def test_no_value_leaves_its_place_or_commands_the_terminal(
    rows: list[tuple[str, str, int]], cut: bool, width: int
) -> None:
    table = Table("name", "text", "number", numbers={"number"}, wide={"text"}, cut=cut)
    for name, text, number in rows:
        table.add(name, text, number)
        table.add_below(text)

    narrow, whole = list(table.lines(width)), list(table.lines(PIPE))

    assert all(line.isprintable() and cell_len(line) <= width for line in narrow)
    assert len(whole) == 1 + 2 * len(rows)
    if cut:
        assert len(narrow) == len(whole)
    for (name, text, number), line, below in zip(rows, whole[1::2], whole[2::2], strict=True):
        assert printable(name).strip() in line
        assert printable(text).strip() in line
        assert line.endswith(str(number))
        assert below.strip() == printable(text).strip()


def on_terminal(columns: int, **environ: str) -> str:
    """Return the output of the program on a terminal."""
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR"}}
    screen, line = pty.openpty()
    termios.tcsetwinsize(line, (24, columns))
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=line, env=kept | {"TERM": "xterm"} | environ):
        os.close(line)
        written = b""
        with suppress(OSError):  # the end of what a terminal has
            while part := os.read(screen, 1 << 16):
                written += part
    os.close(screen)
    return written.decode()


@pytest.mark.parametrize(("columns", "widest"), [(60, 60), (80, 80), (200, 80)])
def test_terminal_has_80_columns_at_most_and_colours(columns: int, widest: int) -> None:
    plain = on_terminal(columns, NO_COLOR="1")

    assert widest - len("because") <= max(map(len, plain.splitlines())) <= widest
    assert "\x1b" not in plain + on_terminal(columns, TERM="dumb")
    assert "\x1b[1mname" in on_terminal(columns)


def test_pipe_has_whole_lines_without_colours() -> None:
    environ = os.environ | {"TERM": "xterm", "COLUMNS": "80", "FORCE_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[1] == f"{'a' * 100}      5  {('because ' * 20).rstrip()}"
    assert "\x1b" not in done.stdout
