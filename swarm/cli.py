"""Command group `swarm`. Each command is imported when it is called."""

from importlib import import_module

import click

from cluster_serving.client.servers.process.command import SETTINGS
from cluster_serving.client.servers.process.installed import NotInstalled
from cluster_serving.node.commands.plugins import Missing
from cluster_serving.swarm.installed import check_installed, check_installed_for

check_installed()

_COMMANDS = (
    "profile",
    "plan",
    "render",
    "check",
    "deploy",
    "status",
    "scale",
    "autoscale",
    "scaler",
    "update-model",
    "logs",
    "rm",
)  # in order of use


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        try:
            check_installed_for(cmd_name)
        except NotInstalled as fault:
            return Missing(cmd_name, fault)
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"cluster_serving.swarm.commands.{name}"), name)
        return command


_EPILOG = """\b
From nothing to a cluster:
  cluster-serving swarm deploy --model /srv/models/resnet
  curl -F image=@cat.jpeg http://ANY-MACHINE:10020/predict
  cluster-serving swarm scale 8
  cluster-serving swarm update-model /srv/models/resnet-2"""


@click.group(cls=_Group, context_settings=SETTINGS, epilog=_EPILOG)
def swarm() -> None:
    """Serve on many machines: a stack of Redis, nodes and frontends on a Docker Swarm.

    A model is a directory on every machine, or a URL. All calls go through the docker command, so DOCKER_HOST and docker contexts
    choose the Swarm.
    """
