"""`doctor`: everything that may stand in the way of a job, its cost, and the command that mends it."""

import json
import os
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.node.commands.letter_selection import age_s
from cluster_serving.node.commands.which_job import chosen_job, job_argument

if TYPE_CHECKING:
    from cluster_serving.node.doctor.report import Report

_EXAMINE = "examine"
_EPILOG = """\b
Subcommands:
  doctor mute CODE [JOB] [--for 7d]   leave a finding out, until it gets worse
  doctor unmute CODE                  show it again"""


class _Doctor(click.Group):
    """Group whose first word is a job, unless it is a subcommand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. Without a subcommand, the examination takes all words."""
        if not args or args[0] not in self.commands:
            args = [_EXAMINE, *args]
        return super().parse_args(ctx, args)


class _Examination(Command):
    """Command that ends with exit code 2 when the examination cannot be made."""

    def invoke(self, ctx: click.Context) -> None:
        """Run the command. With --json, standard output has one document in every case."""
        try:
            lines, exit_code = click.Command.invoke(self, ctx)
        except Fault as fault:
            why = str(fault)
        except Exception as error:
            why = f"the examination failed: {type(error).__name__}: {error}"
        else:
            for line in lines:
                click.echo(line)
            ctx.exit(exit_code)
        from cluster_serving.node.doctor.report import COULD_NOT_LOOK, failed_document

        if ctx.params["as_json"]:
            click.echo(json.dumps(failed_document(why), indent=2))
        else:
            say(why, err=True)
        ctx.exit(COULD_NOT_LOOK)


@click.group(cls=_Doctor, context_settings=SETTINGS)
def doctor() -> None:
    """Examine machine, Redis, model, config and stack."""


@doctor.command(_EXAMINE, cls=_Examination, context_settings=SETTINGS, epilog=_EPILOG, hidden=True)
@job_argument
@click.option("--only-problems", is_flag=True, help="Print warnings and failures alone.")
@click.option("-v", "--verbose", is_flag=True, help="Print passed checks too.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@click.option("--stack", "stack_files", multiple=True, metavar="FILE", help="Check these stack files; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="JSON: version, ok, summary, and checks with code and status.")
def examine(
    name: str | None,
    only_problems: bool,
    verbose: bool,
    strict: bool,
    stack_files: tuple[str, ...],
    as_json: bool,
) -> tuple[Iterator[str], int]:
    """Examine machine, Redis, model, config and stack, and print what is wrong, its cost, and the command that mends it.

    Nothing is changed. Exits with 0 when there are warnings at most, with 1 for a failure, and with 2 when the examination could
    not be made. Every code is explained in docs/reference/doctor.md.
    """
    report = _report(name, stack_files)
    if as_json:
        return iter([json.dumps(report.document(strict), indent=2)]), report.exit_code(strict)
    from cluster_serving.client.servers.process.table import output_width
    from cluster_serving.node.commands.doctor_text import lines

    shown = lines(report, output_width(), only_problems=only_problems, verbose=verbose)
    return shown, report.exit_code(strict)


def _known(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return a code as it is written, as a callback of click."""
    from cluster_serving.node.doctor.examination import codes

    del context, parameter
    known, code = codes(), value.upper()
    if code not in known:
        close = get_close_matches(code, known, 1, 0.4)
        raise click.BadParameter(f"there is no code {code}{f'; did you mean {close[0]}?' if close else ''}")
    return code


def _codes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the codes that begin so, for the shell to offer."""
    from cluster_serving.node.doctor.examination import codes

    del context, parameter
    return [code for code in codes() if code.startswith(incomplete.upper())]


_code_argument = click.argument("code", callback=_known, shell_complete=_codes)


@doctor.command(cls=Command, context_settings=SETTINGS)
@_code_argument
@job_argument
@click.option(
    "--for", "seconds", callback=age_s, metavar="AGE", help="End after 30s, 15m, 12h, 7d or 2w; default: never."
)
def mute(code: str, name: str | None, seconds: float | None) -> None:
    """Leave a finding out of the report, until it gets worse or the time is over."""
    from cluster_serving.node.doctor.mutes import Mutes
    from cluster_serving.node.job.directory import state_home

    if seconds == 0:
        raise Fault("nothing was muted: --for 0 is over at once")
    findings = [each for each in _report(name, ()).findings if each.code == code and each.is_problem]
    if not findings:
        raise Fault(f"{code} is no problem here, so there is nothing to mute")
    Mutes(state_home(os.environ)).mute(code, findings, seconds)
    say(f"{code} is left out until it gets worse{', or the time is over' if seconds else ''}.")


@doctor.command(cls=Command, context_settings=SETTINGS)
@_code_argument
def unmute(code: str) -> None:
    """Show a muted finding again."""
    from cluster_serving.node.doctor.mutes import Mutes
    from cluster_serving.node.job.directory import state_home

    if not Mutes(state_home(os.environ)).unmute(code):
        raise Fault(f"{code} is not muted")
    say(f"{code} is shown again.")


def _report(name: str | None, stack_files: tuple[str, ...]) -> "Report":
    from cluster_serving.client.servers.config.spellings import ConfigError
    from cluster_serving.node.doctor.examination import examine as examination
    from cluster_serving.node.doctor.mutes import Mutes
    from cluster_serving.node.job.directory import state_home
    from cluster_serving.node.lifecycle.jobs_here import not_running, was_started

    try:
        job = chosen_job(name)
    except ConfigError:
        job = None  # the examination finds the fault of the configuration again
    if name is not None and job is not None and not was_started(job):
        raise Fault(f"{not_running(job)}.")
    report = examination(job, stack_files=tuple(Path(file).absolute() for file in stack_files))
    return report._replace(findings=Mutes(state_home(os.environ)).apply(report.findings))
