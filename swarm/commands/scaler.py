"""Command `swarm scaler`."""

from pathlib import Path

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.swarm.commands.options import cannot_listen, config_option, listening_option, name_option
from cluster_serving.swarm.variables import DOCKER_SOCKET


@click.command(
    cls=Command, context_settings=SETTINGS, short_help="Let the autoscaler set the number of nodes and frontends."
)
@config_option
@click.option(
    "--socket",
    "engine",
    type=click.Path(path_type=Path),
    default=Path(DOCKER_SOCKET),
    metavar="PATH",
    help="Unix socket of a manager's Docker engine; /var/run/docker.sock.",
)
@name_option
@listening_option
def scaler(config_path: Path | None, engine: Path, name: str, port: int) -> None:
    """Let the autoscaler set the number of nodes and frontends, and nothing else, through a manager's Docker socket.

    It is a service of a stack that is deployed with `--with autoscale`, on a network that it shares with the autoscaler alone. It
    sets no number above max and frontendsMax.
    """
    import os
    import signal
    import threading

    from cluster_serving.client.servers.process.log import configure
    from cluster_serving.swarm.autoscale.scaler import Scaler, server_of
    from cluster_serving.swarm.autoscale.settings import load_autoscale

    settings = load_autoscale(config_path, os.environ, {})
    configure("scaler", "info")
    scalers = {"/nodes": Scaler(engine, f"{name}_node", 0, settings.max)}
    if settings.frontends_max:
        scalers["/frontends"] = Scaler(engine, f"{name}_frontend", settings.frontends_min, settings.frontends_max)
    try:
        server = server_of(scalers, ("", port))
    except OSError as error:
        raise cannot_listen(port, error) from error

    def end(_number: int, _frame: object) -> None:
        threading.Thread(target=server.shutdown).start()  # `shutdown` waits for the loop that this handler interrupts

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    with server:
        server.serve_forever()
