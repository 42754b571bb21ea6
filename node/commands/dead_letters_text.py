"""Dead letters as text: the table of `list`, the page of `show`, and the JSON of `list`, `show` and `export`.

A uri, a message or a traceback may come from any client that can enqueue. Control characters could take over a terminal, so
control characters are written as escapes. The secrets of the configuration are written as `***`.
"""

import base64
import json
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, TextIO

import msgspec
from rich.cells import cell_len, set_cell_size

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.client.servers.process.redaction import redact
from cluster_serving.node.commands.record_view import FieldView, view_fields
from cluster_serving.node.writer.dead_letters import DeadLetter, DeadLetters

_MAX_NODE = 20
_HEADINGS = ("id", "died", "uri", "code", "deliveries", "node")
_URI, _DELIVERIES, _NODE = 2, 4, 5
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def newest(letters: DeadLetters, limit: int, code: str | None, uri: str | None) -> Iterator[dict[str, Any]]:
    """Yield the facts that `list` shows of each letter, the newest first. `uri` is a glob."""
    for letter in letters.newest_first():
        if limit == 0:
            return
        if code in (None, letter.reason.code) and (uri is None or fnmatchcase(letter.uri, uri)):
            limit -= 1
            reason = _reason(letter)
            del reason["traceback"]
            yield {"id": letter.id, "uri": letter.uri} | reason


def table(summaries: list[dict[str, Any]], now_s: float) -> Iterator[str]:
    """Yield two lines a letter, each cut to the width of the terminal. The second line is the message."""
    width = get_terminal_size().columns
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for facts in summaries:
        age = _age(facts["died_ms"], now_s) if facts["died_ms"] else "-"
        deliveries = str(facts["deliveries"] or "-")
        uri, code, node = (printable(facts[name]) or "-" for name in ("uri", "code", "node"))
        rows.append((facts["id"], age, uri, code, deliveries, node))
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    widths[_NODE] = min(widths[_NODE], _MAX_NODE)
    spare = width - sum(widths) + widths[_URI] - 2 * (len(widths) - 1)
    widths[_URI] = min(widths[_URI], max(spare, len("uri")))
    for row, summary in zip(rows, [None, *summaries], strict=True):
        cells = [_fit(cell, size) for cell, size in zip(row, widths, strict=True)]
        cells[_DELIVERIES] = cells[_DELIVERIES].rstrip().rjust(widths[_DELIVERIES])
        yield _fit("  ".join(cells), width).rstrip()
        if summary is not None:
            yield _fit(f"    {printable(summary['message'])}", width).rstrip()


def details(letter: DeadLetter, job: str, *, hide_content: bool) -> dict[str, Any]:
    """Return all facts about a letter, for `show`."""
    views = list(view_fields(letter.fields, hide_content=hide_content))
    fields = [
        msgspec.structs.replace(view, preview=redact(view.preview), problem=redact(view.problem)) for view in views
    ]
    head = letter.reason.entry.partition("-")[0]  # the id of a stream entry begins with the time of enqueueing
    return {
        "id": letter.id,
        "job": job,
        "uri": letter.uri,
        **_reason(letter),
        "enqueued_ms": int(head) if head.isdecimal() and len(head) < 16 else 0,
        "fields": msgspec.to_builtins(fields),
    }


def page(details: dict[str, Any], now_s: float) -> Iterator[str]:
    """Yield the lines of `show` from the result of `details`."""
    times = {"died": details["died_ms"], "enqueued": details["enqueued_ms"]}
    shown = {name: details[name] for name in ("job", "uri", "code", "message")}
    for name, at_ms in times.items():
        if not at_ms:
            continue
        try:
            moment = f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        except (OverflowError, ValueError, OSError):
            moment = f"{at_ms} ms"
        shown[name] = f"{moment}, {_age(at_ms, now_s)} ago"
    shown |= {name: details[name] for name in ("entry", "node", "deliveries", "model")}
    yield f"Dead letter {details['id']}"
    for name, value in shown.items():
        yield f"  {name:<12}{printable(str(value)) or '-'}"
    yield ""
    yield "Fields"
    views = msgspec.convert(details["fields"], list[FieldView])
    width = max((cell_len(printable(view.name)) for view in views), default=0)
    for view in views:
        shape = "" if view.shape is None else f"{view.shape}"
        if view.size < 1024:
            size = f"{view.size} bytes"
        else:
            size = f"{view.size / 1024:.1f} KiB" if view.size < 1 << 20 else f"{view.size / (1 << 20):.1f} MiB"
        described = "  ".join(part for part in (view.kind, view.dtype, shape, size) if part)
        yield f"  {set_cell_size(printable(view.name), width)}  {described}".rstrip()
        if glance := view.problem or view.preview:
            yield f"      {printable(glance)}"
    if details["traceback"]:
        yield ""
        yield "Traceback"
        yield from (f"  {printable(line)}" for line in details["traceback"].splitlines())


def exported(letter: DeadLetter, job: str) -> dict[str, Any]:
    """Return a letter with its record, as pairs of field and value exactly as received."""
    fields = [[_portable(field), _portable(value)] for field, value in letter.fields]
    return {"id": letter.id, "job": job, **_reason(letter), "fields": fields}


def as_json(document: dict[str, Any]) -> str:
    """Return a document as one line of ASCII."""
    return json.dumps(document)


def printable(text: str) -> str:
    """Return a text as one line, with control characters as escapes."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


@contextmanager
def private_file(path: str, overwrite: bool) -> Generator[TextIO]:
    """Open a file for a block, readable by its owner only. `-` is standard output. An unfinished file is removed.

    Raises:
        Fault: the file exists.
        OSError: the file cannot be written.
    """
    if path == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if overwrite else os.O_EXCL), 0o600)
    except FileExistsError as error:
        raise Fault(f"{path} exists: name another file, or add --force to write over it") from error
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            os.fchmod(descriptor, 0o600)
            yield stream
    except BaseException:
        Path(path).unlink(missing_ok=True)
        raise


def _reason(letter: DeadLetter) -> dict[str, Any]:
    reason = msgspec.to_builtins(letter.reason)
    return {name: redact(value) if isinstance(value, str) else value for name, value in reason.items()}


def _portable(content: bytes) -> str | dict[str, str]:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(content).decode()}


def _fit(text: str, width: int) -> str:
    """Return a text of exactly `width` columns. A longer text is cut off."""
    return set_cell_size(text, width) if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"


def _age(at_ms: int, now_s: float) -> str:
    seconds = max(0, round(now_s - at_ms / 1000))
    unit, name = next((each for each in _UNITS if seconds >= each[0]), _UNITS[-1])
    return f"{seconds // unit} {name}"
