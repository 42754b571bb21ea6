"""Options shared by the swarm commands: the name of the stack, its files and its variables."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cluster_serving.client.servers.config.file_here import file_here
from cluster_serving.client.servers.config.sources import ENVIRON_PREFIX
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.client.servers.process.number import Number
from cluster_serving.swarm.live import DEFAULT_STACK, STACK_VARIABLE, Stack
from cluster_serving.swarm.stack import ADDITIONS, PACKAGED, Source, stack_files, text_of
from cluster_serving.swarm.variables import NODES, VARIABLES, given_model, variables

TIMEOUT_S = 600.0

_Function = Callable[..., None]
_KINDS: "dict[str, click.ParamType[Any]]" = {"--port": click.IntRange(0, 65_535), "--cpus": Number(0)}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def _checked(_context: click.Context, _option: click.Parameter, name: str) -> str:
    """Return the name of a stack. Docker would refuse another one when it has made the networks of the stack."""
    if not _NAME.fullmatch(name):
        raise click.BadParameter(
            f"{name!r} is no name of a stack: it has letters and digits, and - and _ behind the first"
        )
    return name


name_option = click.option(
    "-s",
    "--stack",
    "name",
    default=DEFAULT_STACK,
    envvar=STACK_VARIABLE,
    callback=_checked,
    metavar="NAME",
    help=f"Name of the stack; {DEFAULT_STACK}.",
)


def _or_here(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    return file_here(path)


config_option = click.option(
    "-c",
    "--config-path",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_or_here,
    metavar="PATH",
    help="Config file; default: config.yaml, if there is one.",
)
listening_option = click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=10030,
    envvar=f"{ENVIRON_PREFIX}PORT",
    metavar="N",
    help="Port to listen on; 10030.",
)
timeout_option = click.option(
    "--timeout", "timeout_s", type=Number(0), default=TIMEOUT_S, metavar="S", help="Seconds to wait at most; 600."
)


def _checked_value(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Return the value of a variable as it is given. Docker itself takes port 99999 and `x` cores into a stack."""
    if text is not None and (kind := _KINDS.get(option.opts[0])):
        kind.convert(text, option, context)
    return text


def cannot_listen(port: int, error: OSError) -> Fault:
    """Return the fault of a port that cannot be listened on."""
    return Fault(f"cannot listen on port {port}: {error.strerror}; choose another with --port")


def json_option(document: str) -> Callable[[_Function], _Function]:
    """Return the option --json, with a description of the printed document."""
    return click.option("--json", "as_json", is_flag=True, help=f"JSON: {document}.")


def source_options(function: _Function) -> _Function:
    """Add the options for the files and variables of a stack to a command."""
    options = [
        click.option(
            "-c",
            "--compose-file",
            "files",
            multiple=True,
            metavar="FILE",
            help="Stack file; repeatable, a later file overrides an earlier file. Default: the packaged stack.yml.",
        ),
        click.option(
            "--with",
            "additions",
            multiple=True,
            type=click.Choice(ADDITIONS),
            help="Addition: the autoscaler, one node on every machine, monitoring, replicas of Redis, or HTTPS; repeatable.",
        ),
        click.option(
            "--model", metavar="REF", help="Model: a directory on every machine, a URL, image:/PATH, or volume:NAME."
        ),
        click.option("--checksum", metavar="sha256:HEX", help="Checksum of a model that comes by URL."),
        *(
            click.option(one.option, one.name, metavar="VALUE", callback=_checked_value, help=one.help)
            for one in VARIABLES
            if one.option
        ),
        name_option,
    ]
    for option in reversed(options):
        function = option(function)
    return function


def source_of(values: dict[str, Any], running: Stack | None, folder: Path | None = None) -> Source:
    """Return the files, folder and variables of a stack.

    Args:
        values: click's parameters.
        running: running stack that supplies the values of options not given, or None.
        folder: folder of config.yaml and the passwords. None: the folder of the first stack file, or the current folder when the
            first stack file is the packaged stack.yml.

    Raises:
        Fault: a file is missing, two options do not fit together, or the variable of an option is in no stack file.
    """
    files = stack_files(values["files"], values["additions"])
    given = {one.name: values[key] for one in VARIABLES if values.get(key := one.name)}
    if {"global", "autoscale"} <= set(values["additions"]):
        raise Fault("--with global has one node on every machine, so there is no number for --with autoscale to set")
    if "global" in values["additions"] and given.get(NODES):
        raise Fault("--with global has one node on every machine: leave out --nodes")
    if values["checksum"] and not values["model"]:
        raise Fault("--checksum is of a model: give --model too")
    if values["model"]:
        given |= given_model(values["model"], values["checksum"])
    text = "".join(map(text_of, files))
    for name in given:
        if name not in text:
            raise Fault(
                f"no stack file says ${{{name}}}, so the value given for it has no effect; write it into a stack file"
            )
    default = Path.cwd() if files[0].parent.samefile(PACKAGED) else files[0].parent
    return Source(values["name"], files, folder or default, variables(given, os.environ, running))
