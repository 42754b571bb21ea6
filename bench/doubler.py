"""Answers every record of some jobs with twice its number, as a node does, and counts how often each record was enqueued.

Run as a program of its own by `bench.interrupts`: `python -m bench.doubler PORT JOB ...`.
"""

import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import redis

from cluster_serving.client import keys
from cluster_serving.client.wire.original.decode import decode_record
from cluster_serving.client.wire.reply import pack
from cluster_serving.client.wire.tensors import decode_tensor

SEEN = "bench_enqueued"
"""Hash of the number of entries of each uri."""
_PAUSE_S = 0.001
_AT_ONCE = 500


def number_of(fields: Mapping[bytes, bytes]) -> int:
    """Return the number in a record of either dialect."""
    if keys.DATA in fields:
        ((_, value),) = decode_record(fields[keys.DATA])
        return int(np.asarray(value).flat[0])
    return int(decode_tensor(fields[keys.TENSOR + b"t"]).flat[0])


def answer(client: Any, job: str) -> int:
    """Answer the records of a job, and return their number."""
    entries = client.xrange(job, count=_AT_ONCE)
    with client.pipeline(transaction=False) as commands:
        for entry_id, fields in entries:
            uri, doubled = fields[keys.URI], b"%d" % (2 * number_of(fields))
            commands.hincrby(SEEN, b"%b %b" % (job.encode(), uri), 1)
            if keys.REPLY in fields:
                packed = pack(entry_id, 1.0, 1, [keys.VALUE, doubled])
                commands.xadd(fields[keys.REPLY], {keys.BATCH: b'{"node":"doubler"}', uri: packed}, nomkstream=True)
            else:
                commands.hset(
                    keys.result_prefix(job) + uri.decode(), mapping={keys.VALUE: doubled, keys.RECEIPT: b"{}"}
                )
            commands.xdel(job, entry_id)
        commands.execute()
    return len(entries)


def main() -> None:
    """Answer until the process is ended."""
    with redis.Redis(port=int(sys.argv[1])) as client:
        while True:
            if not sum(answer(client, job) for job in sys.argv[2:]):
                time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
