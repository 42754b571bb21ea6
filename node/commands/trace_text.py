"""Text of `trace`: the facts about a record, and the table of its stages."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from cluster_serving.client.servers.process.printable import printable
from cluster_serving.client.servers.process.table import facts
from cluster_serving.node.commands.stages_text import stages_table


def page(found: dict[str, Any], width: int) -> Iterator[str]:
    """Yield the lines about a record and its stages, in `width` columns."""
    try:
        enqueued = f"{datetime.fromtimestamp(found['enqueued_ms'] / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
    except (OverflowError, ValueError, OSError):  # a client may have chosen the id of the entry
        enqueued = f"{found['enqueued_ms']} ms"
    again = f", delivery {found['deliveries']}" if found["deliveries"] != 1 else ""
    shown = {
        "job": found["job"],
        "enqueued": f"{enqueued}, entry {found['entry']}",
        "ran on": f"{found['node']}, worker {found['worker']}, in a batch of {found['batch']}{again}",
        "model": found["model"] or "-",
    }
    if found["error"]:
        shown["failed"] = "{code}: {message}".format(**found["error"])
    yield f"Record {printable(found['uri'])}"
    yield from facts(shown, indent=2).lines(width)
    yield ""
    yield from stages_table(found["stages_ms"], found["total_ms"], indent=2).lines(width)
