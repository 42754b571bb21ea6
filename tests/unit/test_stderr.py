"""The standard error of a child: passed on as text for a terminal, and no more of it than allowed."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.node.supervisor import stderr
from cluster_serving.node.supervisor.stderr import Limit, StandardError

BURST, RATE = stderr._BURST_BYTES, stderr._BYTES_A_SECOND  # pyright: ignore[reportPrivateUsage]


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, BURST)), max_size=50))
def test_no_more_passes_than_burst_and_rate(writes: list[tuple[float, int]]) -> None:
    now_s = passed = 0.0
    limit = Limit(now_s)

    for pause_s, wanted in writes:
        now_s += pause_s
        size = min(wanted, limit.room(now_s))
        limit.spend(size)
        passed += size

        assert passed <= BURST + now_s * RATE + 1e-6


def test_what_is_below_the_rate_passes() -> None:
    limit = Limit(0)

    limit.spend(limit.room(0))

    assert limit.room(0) == 0
    for second in range(1, 100):
        assert limit.room(second) == RATE
        limit.spend(RATE)


def passed_on(content: bytes) -> None:
    errors = StandardError("worker-0")
    with os.fdopen(errors.for_child, "wb") as pipe:
        pipe.write(content)
    errors.join()


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"one\ntwo\n", "one\ntwo\n"),
        (b"last words", "last words\n"),
        (b"\tindented \x1b[31m\xff\r\n", "        indented \\x1b[31m\\xff\\r\n"),
        ("caf\xe9 \u202e\n".encode(), "caf\xe9 \\u202e\n"),
        (b"", ""),
    ],
)
def test_lines_are_passed_on(content: bytes, shown: str, capfd: pytest.CaptureFixture[str]) -> None:
    passed_on(content)

    assert capfd.readouterr().err == shown


def test_a_long_line_comes_in_parts(capfd: pytest.CaptureFixture[str]) -> None:
    passed_on(b"x" * 100_000)

    assert capfd.readouterr().err.replace("\n", "") == "x" * 100_000


def test_a_flood_is_cut_and_told(capfd: pytest.CaptureFixture[str]) -> None:
    line = b"libpng warning: gAMA: duplicate\n"
    lines = 2 * BURST // len(line)

    passed_on(lines * line)

    captured = capfd.readouterr()
    told = [int(count) for count in re.findall(r"standard error is cut.*?left_out_bytes=.*?(\d+)", captured.out)]
    assert set(captured.err.splitlines()) == {line.decode().rstrip()}
    assert len(captured.err) + sum(told) == len(line) * lines
    assert BURST - len(line) <= len(captured.err) <= BURST + 10 * RATE
