"""The reason of a dead letter on its way, and what people are shown of letters."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from rich.cells import cell_len

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.client.wire.dead_letter import DeadLetter, Reason, decode_letter
from cluster_serving.node.commands import dead_letters_text as text
from cluster_serving.node.commands.letter_selection import Selection, age_s, letter_id

REASON = Reason("WorkerDied", "it died", "Traceback", "1763656999000-0", "node-1", "sha256:00", 1763657000000, 3)
NOW_S = 1763657000.0
CONTEXT = click.Context(click.Command("x"))
PARAMETER = click.Option(["--x"])


def summary(**values: object) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(REASON)
    del found["traceback"]
    return {"id": "1763657000000-0", "uri": "u"} | found | values


def test_a_reason_comes_back_as_it_was_written() -> None:
    letter = decode_letter(b"5-1", [b"dead_letter", REASON.encode(), b"uri", b"u", b"x", b"\xff"])

    assert letter == DeadLetter("5-1", REASON, [(b"uri", b"u"), (b"x", b"\xff")])
    assert letter.uri == "u"


@pytest.mark.parametrize(
    "reason", [b"", b"no JSON", b"[]", b'{"code": 1}', b"\xff", b'{"deliveries": 1e400}', b"[" * 100_000]
)
def test_a_reason_that_cannot_be_read_says_so(reason: bytes) -> None:
    letter = decode_letter(b"5000-1", [b"dead_letter", reason, b"uri", b"u"])

    assert (letter.reason.code, letter.reason.died_ms, letter.uri) == ("Unreadable", 5000, "u")
    assert letter.reason.message.startswith("the reason cannot be read")


@pytest.mark.parametrize(("size", "cut_bytes"), [(b"10000128", 10_000_128), (b"9" * 5000, 10**18 - 1)])
def test_a_letter_of_first_bytes_says_how_many_there_were(size: bytes, cut_bytes: int) -> None:
    letter = decode_letter(b"5-1", [b"dead_letter", REASON.encode(), b"dead_letter_cut", size, b"uri", b"u"])

    assert letter == DeadLetter("5-1", REASON, [(b"uri", b"u")], cut_bytes)


def test_a_field_of_the_records_own_says_nothing() -> None:
    letter = decode_letter(b"5-1", [b"dead_letter", REASON.encode(), b"uri", b"u", b"dead_letter_cut", b"5"])

    assert (letter.cut_bytes, len(letter.fields)) == (0, 2)


def test_a_letter_without_its_reason_keeps_all_its_fields() -> None:
    letter = decode_letter(b"5-1", [b"uri", b"u", b"dead_letter", b"{}"])

    assert letter.reason.code == "Unreadable"
    assert letter.fields == [(b"uri", b"u"), (b"dead_letter", b"{}")]


def test_no_line_of_the_table_is_wider_than_the_terminal_and_the_id_is_whole() -> None:
    long = [
        summary(uri="u" * 500, message="m" * 500, code="DeliveredTooOften", node="n" * 300),
        summary(uri="数" * 60, message="数" * 60),
        summary(uri="", node="", message="", deliveries=0),
    ]
    for width in (80, 100, 200):
        lines = list(text.table(long, NOW_S).lines(width))

        assert all(cell_len(line) <= width for line in lines)
        assert len(lines) == 1 + 2 * len(long)
        assert all(line.startswith("1763657000000-0  ") for line in lines[1::2])


def test_the_table_is_whole_in_a_pipe() -> None:
    long = summary(uri="u" * 500, message="m " * 500, node="n" * 300)

    _, line, message = text.table([long], NOW_S).lines(1 << 20)

    assert line.split()[-4:] == ["u" * 500, "WorkerDied", "3", "n" * 300]
    assert message == "    " + "m " * 499 + "m"


def test_the_table_has_a_line_for_the_letter_and_one_for_the_message() -> None:
    assert list(text.table([summary(uri="img-17", died_ms=1763656820000)], NOW_S).lines(80)) == [
        "id               died  uri     code        deliveries  node",
        "1763657000000-0  3 m   img-17  WorkerDied           3  node-1",
        "    it died",
    ]


@pytest.mark.parametrize(("seconds", "age"), [(-5, "0 s"), (59, "59 s"), (60, "1 m"), (7200, "2 h"), (200_000, "2 d")])
def test_ages(seconds: int, age: str) -> None:
    (_, line, _) = text.table([summary(died_ms=round((NOW_S - seconds) * 1000))], NOW_S).lines(80)

    assert f"  {age} " in line


def test_what_clients_wrote_cannot_command_the_terminal() -> None:
    evil = "\x1b[2J\r\n\u202e\u0085"
    fields = [(b"uri", evil.encode()), (evil.encode(), evil.encode()), (b"string:x", evil.encode())]
    letter = DeadLetter("1-1", Reason(evil, evil, evil, evil, evil, evil), fields)
    shown = [
        *text.page(text.details(letter, "job", hide_content=False), NOW_S, 80),
        *text.table([summary(uri=evil)], NOW_S).lines(80),
    ]

    assert all(line.isprintable() for line in shown)
    assert text.as_json(text.exported(letter, "job")).isprintable()


def test_times_that_no_calendar_has_are_shown_as_they_are() -> None:
    letter = DeadLetter("1-1", msgspec.structs.replace(REASON, died_ms=10**15, entry="x-y"), [])
    page = "\n".join(text.page(text.details(letter, "job", hide_content=False), NOW_S, 80))

    assert "1000000000000000 ms" in page
    assert "enqueued" not in page


def test_an_export_keeps_every_byte_and_the_order() -> None:
    fields = [(b"uri", "ü".encode()), (b"b", b"\xff\x00"), (b"\xfe", b""), (b"b", b"again")]
    line = json.loads(text.as_json(text.exported(DeadLetter("1-1", REASON, fields), "job")))

    assert line["fields"] == [["uri", "ü"], ["b", {"b64": "/wA="}], [{"b64": "/g=="}, ""], ["b", "again"]]
    assert (line["id"], line["job"], line["code"], line["deliveries"]) == ("1-1", "job", "WorkerDied", 3)


def test_an_export_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "letters"
    with text.private_file(str(path), overwrite=False) as stream:
        stream.write("1")
    path.chmod(0o644)
    with (
        pytest.raises(Fault, match="letters exists: name another file"),
        text.private_file(str(path), overwrite=False),
    ):
        pass
    kept = path.read_text()
    with text.private_file(str(path), overwrite=True) as stream:
        mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
        stream.write("2")

    assert (kept, path.read_text(), mode) == ("1", "2", 0o600)


def test_an_export_that_could_not_be_finished_is_removed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), text.private_file(str(tmp_path / "letters"), overwrite=False):
        raise KeyboardInterrupt

    assert list(tmp_path.iterdir()) == []


def test_a_file_stays_until_the_export_over_it_is_finished(tmp_path: Path) -> None:
    path, link = tmp_path / "letters", tmp_path / "link"
    path.write_text("1")
    link.symlink_to(path)
    with pytest.raises(KeyboardInterrupt), text.private_file(str(path), overwrite=True):
        raise KeyboardInterrupt
    kept = path.read_text()
    with text.private_file(str(link), overwrite=True) as stream:
        stream.write("3")

    assert (kept, path.read_text(), link.is_symlink()) == ("1", "3", True)
    assert {each.name for each in tmp_path.iterdir()} == {"letters", "link"}


def test_an_export_into_a_pipe_leaves_the_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o644)
    mode = path.stat().st_mode
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with text.private_file(str(path), overwrite=True) as stream:
            stream.write("1")
        with pytest.raises(KeyboardInterrupt), text.private_file(str(path), overwrite=True):
            raise KeyboardInterrupt
        assert os.read(reader, 9) == b"1"
    finally:
        os.close(reader)

    assert path.stat().st_mode == mode


@pytest.mark.parametrize(
    ("written", "meant"), [("5", "5-0"), ("5-1", "5-1"), ("007-01", "7-1"), (f"{2**64 - 1}", f"{2**64 - 1}-0")]
)
def test_ids(written: str, meant: str) -> None:
    assert letter_id(CONTEXT, PARAMETER, (written,)) == (meant,)


@pytest.mark.parametrize(
    "written", ["", "x", "1-", "-1", "1-1-1", "+", "-", "1 1", "²", str(2**64), "1-99999999999999999999"]
)
def test_wrong_ids_are_named(written: str) -> None:
    with pytest.raises(click.BadParameter, match="is not the id of a dead letter"):
        letter_id(CONTEXT, PARAMETER, written)


@pytest.mark.parametrize(
    ("written", "seconds"), [("30s", 30), ("1.5m", 90), ("12H", 43_200), ("7d", 604_800), ("2w", 1_209_600)]
)
def test_spans_of_time(written: str, seconds: float) -> None:
    assert age_s(CONTEXT, PARAMETER, written) == seconds


@pytest.mark.parametrize("written", ["", "7", "d", "-7d", "7 days", "1e9d", "inf"])
def test_wrong_spans_of_time_are_named(written: str) -> None:
    with pytest.raises(click.BadParameter, match="is not an age"):
        age_s(CONTEXT, PARAMETER, written)


@pytest.mark.parametrize(
    "values", [((), False), (("1-1",), True), (("1-1",), False, "Code"), (("1-1",), False, None, 5.0)]
)
def test_ids_or_all_but_not_both(values: tuple[Any, ...]) -> None:
    with pytest.raises(click.UsageError):
        Selection(*values)
