"""The command line: a group of commands, and the hyphenated names of the original for the same commands."""

import sys
from typing import NoReturn

from cluster_serving import __version__
from cluster_serving.client.servers.process.exit_codes import MEANINGS, ExitCode
from cluster_serving.client.servers.process.quick_imports import make_imports_quick
from cluster_serving.node.commands.installed import check_installed, client_alone, node_missing

_ABORTED = "Aborted!"  # as click says later

make_imports_quick()


def _end(sentence: str) -> NoReturn:
    print(sentence, file=sys.stderr)
    sys.exit(ExitCode.USAGE)


def _check_foreign(error: ModuleNotFoundError) -> None:
    """Raise the error again for a missing module of this package, which is a bug and no fault of the installation."""
    if (error.name or "").startswith("cluster_serving"):
        raise error


try:
    import click

    from cluster_serving.client.servers.process.command import SETTINGS
    from cluster_serving.node.commands.plugins import Group, some_installed
except ModuleNotFoundError as error:
    _check_foreign(error)
    _end(client_alone())
except KeyboardInterrupt:
    sys.exit(_ABORTED)

_commands: list[click.Command] = []
_of_the_original: dict[str, click.Command] = {}
try:
    check_installed()
    from cluster_serving.node.commands import (
        bench,
        chaos,
        dead_letters,
        doctor,
        dump,
        encrypt,
        list_and_logs,
        migrate,
        predict,
        profile,
        serve,
        setup,
        start,
        status,
        stop,
        top,
        trace,
        tune,
    )
except ModuleNotFoundError as error:
    _check_foreign(error)
    if not some_installed():
        _end(client_alone())
except KeyboardInterrupt:  # the imports take a second and more on a busy machine
    sys.exit(_ABORTED)
else:
    _commands = [
        setup.init,
        serve.serve,
        start.start,
        stop.stop,
        start.restart,
        stop.shutdown,
        status.status,
        top.top,
        doctor.doctor,
        list_and_logs.list_,
        tune.tune,
        dead_letters.dead_letters,
        predict.predict,
        bench.bench,
        trace.trace,
        profile.profile,
        dump.dump,
        setup.config,
        migrate.migrate,
        encrypt.encrypt,
        chaos.chaos,
        list_and_logs.logs,
        setup.completion,
    ]
    _of_the_original = {
        "init": setup.init,
        "start": start.start,
        "stop": stop.stop,
        "restart": start.restart,
        "shutdown": stop.shutdown,
        "cli": list_and_logs.cli_of_the_original,
    }

_EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code.value}  {meaning}" for code, meaning in MEANINGS.items())


@click.group(cls=Group, context_settings=SETTINGS, epilog=_EPILOG, commands=_commands)
@click.version_option(__version__, prog_name="cluster-serving")
def main() -> None:
    """Serve a model to programs that put records on a Redis stream."""


def _alone(name: str) -> None:
    if name not in _of_the_original:
        _end(node_missing())
    _of_the_original[name].main(prog_name=f"cluster-serving-{name}")


def init_main() -> None:
    """Run `cluster-serving-init`."""
    _alone("init")


def start_main() -> None:
    """Run `cluster-serving-start`."""
    _alone("start")


def stop_main() -> None:
    """Run `cluster-serving-stop`."""
    _alone("stop")


def restart_main() -> None:
    """Run `cluster-serving-restart`."""
    _alone("restart")


def shutdown_main() -> None:
    """Run `cluster-serving-shutdown`."""
    _alone("shutdown")


def cli_main() -> None:
    """Run `cluster-serving-cli`."""
    _alone("cli")


if __name__ == "__main__":
    main(prog_name="cluster-serving")
