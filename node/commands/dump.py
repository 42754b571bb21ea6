"""`dump`: where the threads of a job's processes stand."""

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.commands.processes import find, process_arguments
from cluster_serving.node.commands.which_job import chosen_job


@click.command(cls=Command, context_settings=SETTINGS)
@process_arguments
@click.option("--native", is_flag=True, help="Show C and C++ frames too.")
@click.pass_context
def dump(context: click.Context, *, job: str | None, role: str | None, number: int | None, native: bool) -> None:
    """Print the stacks of a running job's processes.

    Without a role those of all but the frontend, which serves every job: its processes come by that word. Each stands still for
    an instant.
    """
    from cluster_serving.node.commands.py_spy import Ended, spy

    ended = False
    for target in find(chosen_job(job), role, number):
        try:
            printed = spy(target, "dump", *(["--native"] if native else []))
        except Ended as fault:  # the others may be what was wanted
            click.echo(str(fault), err=True)
            ended = True
            continue
        # Without its first line, the command line, which may hold a password.
        click.echo(f"{target}\n{printed.partition(chr(10))[2].strip()}\n")
    context.exit(ExitCode.FAILED if ended else ExitCode.OK)
