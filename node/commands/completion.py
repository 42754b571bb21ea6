"""Words that a shell offers from Redis: ids of dead letters, uris of results. A failure offers nothing, and prints nothing."""

import io
import re
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from itertools import islice

import click
from click.shell_completion import CompletionItem

from cluster_serving.client.servers.process.printable import printable
from cluster_serving.node.commands.job_in_redis import Reached, Where, reach
from cluster_serving.node.commands.which_job import is_plain

_MOST = 50
_PATIENCE_S = 1.0
_GLOB = re.compile(r"([*?\[\]\\])")


def letter_ids(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids of the newest dead letters, each with code and uri."""
    from cluster_serving.node.writer.dead_letters import DeadLetters

    del parameter

    def find(reached: Reached) -> list[CompletionItem]:
        letters = islice(DeadLetters(reached.link, reached.job).newest_first(), _MOST)
        return [CompletionItem(each.id, help=printable(f"{each.reason.code} {each.uri}")) for each in letters]

    return [item for item in _found(context, find) if item.value.startswith(incomplete)]


def result_uris(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return uris of results, as many as one step of SCAN finds."""
    from cluster_serving.client.keys import result_prefix

    del parameter

    def find(reached: Reached) -> list[CompletionItem]:
        prefix = result_prefix(reached.job)
        pattern = _GLOB.sub(r"\\\1", prefix + incomplete) + "*"
        _, keys = reached.link.call("SCAN", "0", "MATCH", pattern, "COUNT", "1000")
        uris = sorted(key.decode(errors="replace").removeprefix(prefix) for key in keys)
        return [CompletionItem(uri) for uri in uris if is_plain(uri)][:_MOST]

    return _found(context, find)


def _found(context: click.Context, find: Callable[[Reached], list[CompletionItem]]) -> list[CompletionItem]:
    """Return what `find` finds in the Redis that the command line names."""
    where = Where(*(context.params.get(name) for name in Where._fields))
    with suppress(Exception), redirect_stderr(io.StringIO()), reach(where, _PATIENCE_S) as reached:
        return find(reached)
    return []
