"""The options that say which stack is meant, and those that say what it is made from."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.swarm.live import Stack
from cluster_serving.swarm.stack import ADDITIONS, PACKAGED, Source, stack_files
from cluster_serving.swarm.variables import NODES, VARIABLES, given_model, variables

TIMEOUT_S = 600.0

_Function = Callable[..., None]

name_option = click.option(
    "-s",
    "--stack",
    "name",
    default="serving",
    envvar="CLUSTER_SERVING_STACK",
    metavar="NAME",
    help="Name of the stack; serving.",
)
timeout_option = click.option(
    "--timeout", "timeout_s", type=float, default=TIMEOUT_S, metavar="S", help="Seconds to wait at most; 600."
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON.")


def source_options(function: _Function) -> _Function:
    """Give a command the options that say what a stack is made from."""
    options = [
        click.option(
            "-c",
            "--compose-file",
            "files",
            multiple=True,
            metavar="FILE",
            help="Stack file; repeatable, later ones over earlier ones. Default: the one that comes with this command.",
        ),
        click.option(
            "--with",
            "additions",
            multiple=True,
            type=click.Choice(ADDITIONS),
            help="More: one node on every machine, monitoring, HTTPS; repeatable.",
        ),
        click.option(
            "--model", metavar="REF", help="Model: a directory of every machine, a URL, image:/PATH, or volume:NAME."
        ),
        click.option("--checksum", metavar="sha256:HEX", help="Checksum of a model that comes by URL."),
        *(click.option(one.option, one.name, metavar="VALUE", help=one.help) for one in VARIABLES if one.option),
        name_option,
    ]
    for option in reversed(options):
        function = option(function)
    return function


def source_of(values: dict[str, Any], running: Stack | None, folder: Path | None = None) -> Source:
    """What a stack is made from.

    Args:
        values: click's parameters.
        running: the stack, if it runs and is to keep what is not given.
        folder: of config.yaml and passwords; None: that of the first stack file, or the current one where that file is ours.

    Raises:
        Fault: a file is not there, or an option has nothing to set in the files.
    """
    files = stack_files(values["files"], values["additions"])
    given = {one.name: values[key] for one in VARIABLES if values.get(key := one.name)}
    if "global" in values["additions"] and given.get(NODES):
        raise Fault("--with global has one node on every machine: leave out --nodes")
    if values["checksum"] and not values["model"]:
        raise Fault("--checksum is of a model: give --model too")
    if values["model"]:
        given |= given_model(values["model"], values["checksum"])
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    for name in given:
        if name not in text:
            raise Fault(
                f"no stack file says ${{{name}}}, so that what was given for it would have no effect; write it there"
            )
    default = Path.cwd() if files[0].parent.samefile(PACKAGED) else files[0].parent
    return Source(values["name"], files, folder or default, variables(given, os.environ, running))
