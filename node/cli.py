"""The command line: one group, and the hyphenated names of the original for the same commands."""

import sys

from cluster_serving import __version__
from cluster_serving.node.commands.installed import CLIENT_ALONE, check_installed
from cluster_serving.node.exit_codes import MEANINGS, ExitCode

try:
    check_installed()
    import click

    from cluster_serving.node.commands import encrypt, inspect, setup, start, status, stop
    from cluster_serving.node.commands.guard import SETTINGS
except ModuleNotFoundError as error:
    if (error.name or "").startswith("cluster_serving"):
        raise  # a fault of ours, not of the installation
    print(CLIENT_ALONE, file=sys.stderr)
    sys.exit(ExitCode.USAGE)

_EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code.value}  {meaning}" for code, meaning in MEANINGS.items())


@click.group(
    context_settings=SETTINGS,
    epilog=_EPILOG,
    commands=[
        setup.init,
        start.start,
        stop.stop,
        start.restart,
        stop.shutdown,
        status.status,
        inspect.list_,
        setup.config,
        encrypt.encrypt,
        inspect.logs,
        setup.completion,
    ],
)
@click.version_option(__version__, prog_name="cluster-serving")
def main() -> None:
    """Serve a model to programs that put records on a Redis stream."""


def init_main() -> None:
    """`cluster-serving-init`."""
    setup.init.main(prog_name="cluster-serving-init")


def start_main() -> None:
    """`cluster-serving-start`."""
    start.start.main(prog_name="cluster-serving-start")


def stop_main() -> None:
    """`cluster-serving-stop`."""
    stop.stop.main(prog_name="cluster-serving-stop")


def restart_main() -> None:
    """`cluster-serving-restart`."""
    start.restart.main(prog_name="cluster-serving-restart")


def shutdown_main() -> None:
    """`cluster-serving-shutdown`."""
    stop.shutdown.main(prog_name="cluster-serving-shutdown")


def cli_main() -> None:
    """`cluster-serving-cli`."""
    inspect.cli_of_the_original.main(prog_name="cluster-serving-cli")


if __name__ == "__main__":
    main(prog_name="cluster-serving")
