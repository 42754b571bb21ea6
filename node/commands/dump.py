"""`dump`: print the stacks of the threads of a job's processes."""

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.client.servers.process.printable import printable_lines
from cluster_serving.node.commands.processes import find, process_arguments
from cluster_serving.node.commands.which_job import chosen_job


@click.command(cls=Command, context_settings=SETTINGS)
@process_arguments
@click.option("--native", is_flag=True, help="Show C and C++ frames too.")
@click.pass_context
def dump(context: click.Context, *, job: str | None, role: str | None, number: int | None, native: bool) -> None:
    """Print the stacks of a running job's processes.

    Without a role, every process of the job is shown. The frontend serves every job: give the role frontend for its processes.
    Each process stands still for an instant.
    """
    from cluster_serving.node.commands.py_spy import Ended, spy

    ended = False
    for target in find(chosen_job(job), role, number):
        try:
            printed = spy(target, "dump", *(["--native"] if native else []))
        except Ended as fault:  # the user may have wanted the stacks of the remaining processes
            say(str(fault), err=True)
            ended = True
            continue
        # Leave the first line out: the command line of the process may hold a password.
        say(str(target))
        click.echo(f"{printable_lines(printed.partition(chr(10))[2].strip())}\n")
    context.exit(ExitCode.FAILED if ended else ExitCode.OK)
