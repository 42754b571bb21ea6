"""`trace`: show the time of each stage of a finished record, from its receipt and from Redis."""

import json
from pathlib import Path
from typing import Any

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.node.commands.completion import result_uris
from cluster_serving.node.commands.job_in_redis import Reached, Where, reach, where_options

_NO_KEY = -2
_SLACK_MS = 2
"""Allowed contradiction between two times, because stream ids and times to live have whole milliseconds."""


@click.command(cls=Command, context_settings=SETTINGS)
@click.argument("uri", shell_complete=result_uris)
@where_options
@click.option("--json", "as_json", is_flag=True, help="JSON: an object with stages_ms, total_ms and the receipt.")
def trace(uri: str, where: Where, as_json: bool) -> None:
    """Show where the time of a finished record went.

    The times come from the receipt beside the result. A result stays in Redis until a client takes the result or
    resultTimeToLive is over. Answers to predict and to HTTP requests go to the caller and nowhere else: there, read
    `result.stages` or the header Server-Timing.

    Job and Redis come from the last start on this machine, else from config.yaml. With --job and --redis-url, the command works
    from any machine.
    """
    from cluster_serving.client.errors import CodecError
    from cluster_serving.client.servers.process.table import output_width
    from cluster_serving.node.commands import trace_text as text

    with reach(where) as reached:
        try:
            found = _found(reached, uri)
        except CodecError as error:
            raise Fault(f"the receipt of {uri} in job {reached.job} cannot be read: {error}") from error
    click.echo(json.dumps(found) if as_json else "\n".join(text.page(found, output_width())))


def _found(reached: Reached, uri: str) -> dict[str, Any]:
    """Return all facts about a record.

    Raises:
        Fault: there is no result of the record, or a result without a receipt.
        CodecError: the receipt is damaged.
    """
    from cluster_serving.client.keys import result_prefix
    from cluster_serving.client.protocol.resp import Script
    from cluster_serving.client.wire.result import decode_result

    script = Script(Path(__file__).with_name("trace.lua").read_text())
    fields, left_ms, (seconds, microseconds) = reached.link.run(script, [result_prefix(reached.job) + uri], [])
    if left_ms == _NO_KEY:
        waiting = reached.link.call("XLEN", reached.job)
        raise Fault(
            f"no result of {uri} in job {reached.job}, where {waiting} record{'s are' if waiting != 1 else ' is'} under way: "
            "the record is one of these, was never enqueued, was answered to predict or to HTTP (which keep no result), has "
            "been taken off, or is older than resultTimeToLive"
        )
    result = decode_result(uri, fields)
    receipt = result.receipt
    if receipt is None:
        raise Fault(f"the result of {uri} has no receipt: the record came in the original dialect, which has none")
    stages, now_ms = receipt.stages, int(seconds) * 1000 + int(microseconds) / 1000
    if receipt.ttl_ms > 0 and left_ms >= 0:
        # finish.lua sets the time to live in the instant in which the result is written, so the time left tells the instant.
        sent_ms, written_ms = receipt.enqueued_ms + sum(stages.values()), now_ms + left_ms - receipt.ttl_ms
        if sent_ms - _SLACK_MS <= written_ms <= now_ms + _SLACK_MS:
            stages["write"] = max(0.0, written_ms - sent_ms)
    return {
        "job": reached.job,
        "uri": uri,
        "error": {"code": result.error[0], "message": result.error[1]} if result.error else None,
        "enqueued_ms": receipt.enqueued_ms,
        "stages_ms": {name: round(took_ms, 3) for name, took_ms in stages.items()},
        "total_ms": round(sum(stages.values()), 3),
        "entry": receipt.entry,
        "node": receipt.node,
        "worker": receipt.worker,
        "model": receipt.model,
        "batch": receipt.batch,
        "deliveries": receipt.deliveries,
    }
