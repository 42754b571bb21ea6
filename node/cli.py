"""The command line: a group of commands, and the hyphenated names of the original for the same commands."""

import sys
from typing import NoReturn

from cluster_serving import __version__
from cluster_serving.client.servers.process.exit_codes import INTERRUPTED, MEANINGS, ExitCode
from cluster_serving.client.servers.process.quick_imports import make_imports_quick
from cluster_serving.node.commands.installed import check_installed, client_alone, node_missing

make_imports_quick()


def _end(sentence: str, code: int = ExitCode.USAGE) -> NoReturn:
    print(sentence, file=sys.stderr)
    sys.exit(code)


try:
    import click

    from cluster_serving.client.servers.process.command import SETTINGS
    from cluster_serving.node.commands.plugins import Group, load, some_installed
except ModuleNotFoundError as error:
    if (error.name or "").startswith("cluster_serving"):  # a bug, and no fault of the installation
        raise
    _end(client_alone())
except KeyboardInterrupt:
    _end("Aborted!", INTERRUPTED)

# Command to its function in a module of `commands`, in the order of the documentation.
_COMMANDS = {
    "init": "setup.init",
    "serve": "serve.serve",
    "start": "start.start",
    "stop": "stop.stop",
    "restart": "start.restart",
    "shutdown": "stop.shutdown",
    "status": "status.status",
    "top": "top.top",
    "doctor": "doctor.doctor",
    "list": "list_and_logs.list_",
    "tune": "tune.tune",
    "calibrate": "calibrate.calibrate",
    "dead-letters": "dead_letters.dead_letters",
    "predict": "predict.predict",
    "bench": "bench.bench",
    "trace": "trace.trace",
    "profile": "profile.profile",
    "dump": "dump.dump",
    "config": "setup.config",
    "migrate": "migrate.migrate",
    "encrypt": "encrypt.encrypt",
    "chaos": "chaos.chaos",
    "logs": "list_and_logs.logs",
    "completion": "setup.completion",
}
_commands = _COMMANDS
try:
    check_installed()
except ModuleNotFoundError:
    _commands = {}
    if not some_installed():
        _end(client_alone())
except KeyboardInterrupt:
    _end("Aborted!", INTERRUPTED)

_EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code.value}  {meaning}" for code, meaning in MEANINGS.items())


@click.group(cls=Group, context_settings=SETTINGS, epilog=_EPILOG, functions=_commands)
@click.version_option(__version__, prog_name="cluster-serving")
def main() -> None:
    """Serve a model to programs that put records on a Redis stream."""


def _alone(name: str, function: str) -> None:
    if not _commands:
        _end(node_missing())
    load(function).main(prog_name=f"cluster-serving-{name}")


def init_main() -> None:
    """Run `cluster-serving-init`."""
    _alone("init", "setup.init")


def start_main() -> None:
    """Run `cluster-serving-start`."""
    _alone("start", "start.start")


def stop_main() -> None:
    """Run `cluster-serving-stop`."""
    _alone("stop", "stop.stop")


def restart_main() -> None:
    """Run `cluster-serving-restart`."""
    _alone("restart", "start.restart")


def shutdown_main() -> None:
    """Run `cluster-serving-shutdown`."""
    _alone("shutdown", "stop.shutdown")


def cli_main() -> None:
    """Run `cluster-serving-cli`."""
    _alone("cli", "list_and_logs.cli_of_the_original")


if __name__ == "__main__":
    main(prog_name="cluster-serving")
