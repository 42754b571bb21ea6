"""Dead letters as text: the table of `list`, the page of `show`, and the JSON of `list`, `show` and `export`.

The secrets of the configuration are written as `***`.
"""

import base64
import json
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import msgspec

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.client.servers.process.printable import printable
from cluster_serving.client.servers.process.redaction import redact
from cluster_serving.client.servers.process.table import Table, facts
from cluster_serving.client.servers.process.whole_file import whole_file
from cluster_serving.client.wire.dead_letter import DeadLetter
from cluster_serving.node.commands.record_view import FieldView, view_fields
from cluster_serving.node.writer.dead_letters import DeadLetters

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


def table(summaries: list[dict[str, Any]], now_s: float) -> Table:
    """Return a table of two lines a letter. The second line is the message."""
    headings = ("id", "died", "uri", "code", "deliveries", "node")
    found = Table(*headings, numbers={"deliveries"}, wide={"uri", "node"}, cut=True)
    for summary in summaries:
        age = _age(summary["died_ms"], now_s) if summary["died_ms"] else "-"
        uri, code, deliveries, node = (summary[name] or "-" for name in ("uri", "code", "deliveries", "node"))
        found.add(summary["id"], age, uri, code, deliveries, node)
        found.add_below(summary["message"])
    return found


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
        "cut_bytes": letter.cut_bytes,
        "fields": msgspec.to_builtins(fields),
    }


def page(details: dict[str, Any], now_s: float, width: int) -> Iterator[str]:
    """Yield the lines of `show` from the result of `details`, in `width` columns."""
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
    if cut_bytes := details["cut_bytes"]:
        shown["record"] = f"{kept(cut_bytes)}; it cannot be replayed"
    yield f"Dead letter {details['id']}"
    yield from facts({name: value or "-" for name, value in shown.items()}, indent=2).lines(width)
    yield ""
    yield "Fields"
    fields = Table("name", "kind", "dtype", "shape", "bytes", numbers={"bytes"}, indent=2)
    for view in msgspec.convert(details["fields"], list[FieldView]):
        fields.add(view.name, view.kind, view.dtype, "" if view.shape is None else str(view.shape), f"{view.size:,}")
        if glance := view.problem or view.preview:
            fields.add_below(glance)
    yield from fields.lines(width)
    if details["traceback"]:
        yield ""
        yield "Traceback"
        yield from (f"  {printable(line)}" for line in details["traceback"].splitlines())


def exported(letter: DeadLetter, job: str) -> dict[str, Any]:
    """Return a letter with its record, as pairs of field and value exactly as received."""
    fields = [[_portable(field), _portable(value)] for field, value in letter.fields]
    cut = {"cut_bytes": letter.cut_bytes} if letter.cut_bytes else {}
    return {"id": letter.id, "job": job, **_reason(letter), **cut, "fields": fields}


def kept(cut_bytes: int) -> str:
    """Return the sentence about a record of which only the first bytes are kept."""
    return f"of its record's {cut_bytes:,} bytes only the first are kept (maxDeadLetterBytes)"


def as_json(document: dict[str, Any]) -> str:
    """Return a document as one line of ASCII."""
    return json.dumps(document)


@contextmanager
def private_file(path: str, overwrite: bool) -> Generator[TextIO]:
    """Open a file for a block, readable by its owner only. `-` is standard output. An unfinished file is removed.

    A file that is written over stays as it is until the end of the block. A device or pipe is written to, and stays what it is.

    Raises:
        Fault: the file exists.
        OSError: the file cannot be written.
    """
    if path == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(whole_file(Path(path), 0o600, new=not overwrite))
        except FileExistsError as error:
            raise Fault(f"{path} exists: name another file, or add --force to write over it") from error
        with TextIOWrapper(stream, encoding="ascii") as text:
            yield text


def _reason(letter: DeadLetter) -> dict[str, Any]:
    reason = msgspec.to_builtins(letter.reason)
    return {name: redact(value) if isinstance(value, str) else value for name, value in reason.items()}


def _portable(content: bytes) -> str | dict[str, str]:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(content).decode()}


def _age(at_ms: int, now_s: float) -> str:
    seconds = max(0, round(now_s - at_ms / 1000))
    unit, name = next((each for each in _UNITS if seconds >= each[0]), _UNITS[-1])
    return f"{seconds // unit} {name}"
