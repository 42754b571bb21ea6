"""Dead letters of a job for the dashboard: the newest, put back into the queue, or deleted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from cluster_serving.client import keys
from cluster_serving.client.protocol.replay import REPLAY
from cluster_serving.client.protocol.resp import Script
from cluster_serving.client.servers.process.redaction import redact
from cluster_serving.client.wire.dead_letter import decode_reason
from cluster_serving.frontend.models.models import Served

SHOWN = 20
_NEWEST = Script(Path(__file__).with_name("newest_letters.lua").read_text())


async def newest(served: Served, before: str = "") -> dict[str, Any]:
    """Return the number of all letters, and the newest ones, of the letters before an id if given.

    Raises:
        ConnectionLost: Redis cannot be reached.
        RedisRefused: the letters may not be read.
    """
    highest = f"({before}" if before else "+"
    total, letters = await served.link.run(_NEWEST, [keys.dead_key(served.job.name)], [highest, SHOWN])
    return {"total": total, "letters": [_view(*letter) for letter in letters]}


async def replay(served: Served, ids: Sequence[str]) -> dict[str, Any]:
    """Put letters back into the queue of their job as new records. Return how many, and the ids of the rest.

    No client waits for the answers: `query` finds them in the result hash of the record's uri.

    Raises:
        ConnectionLost: Redis cannot be reached.
        RedisRefused: the letters may not be put back.
    """
    job = served.job.name
    left: list[str] = []
    for letter_id in ids:
        if not await served.link.run(REPLAY, [keys.dead_key(job), job], [letter_id]):
            left.append(letter_id)
    return {"done": len(ids) - len(left), "left": left}


async def delete(served: Served, ids: Sequence[str]) -> dict[str, Any]:
    """Delete letters for ever. Return how many there were.

    Raises:
        ConnectionLost: Redis cannot be reached.
        RedisRefused: the letters may not be deleted.
    """
    (done,) = await served.link.call_checked(("XDEL", keys.dead_key(served.job.name), *ids))
    return {"done": done}


def _view(letter_id: bytes, reason: bytes, cut_bytes: bytes, uri: bytes, fields: Sequence[Any]) -> dict[str, Any]:
    facts = msgspec.to_builtins(decode_reason(letter_id, reason or None))
    return {
        "id": letter_id.decode(),
        "uri": uri.decode(errors="replace"),
        **{name: redact(fact) if isinstance(fact, str) else fact for name, fact in facts.items()},
        "cut_bytes": int(cut_bytes) if cut_bytes.isdigit() else 0,
        "fields": [
            {"name": name.decode(errors="replace"), "bytes": size}
            for name, size in zip(fields[::2], fields[1::2], strict=True)
        ],
    }
