"""`calibrate`: INT8 proven on the records that a running job gets, applied without a stop, and taken back."""

import json
import re
import sys
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import Fault, NotStarted
from cluster_serving.client.servers.process.quick_imports import import_lean
from cluster_serving.node.commands.calibrating import (
    RECORDS,
    Subject,
    check_change,
    check_unchanged,
    sampled_from,
    subject_of,
    tried,
)
from cluster_serving.node.commands.output_place import check_place
from cluster_serving.node.commands.which_job import chosen_job, job_argument
from cluster_serving.node.lifecycle.options import TIMEOUT_S, StartOptions, recorded_options

if TYPE_CHECKING:
    from cluster_serving.node.calibration.folder import CalibrationFolder
    from cluster_serving.node.calibration.reservoir import Reservoir
    from cluster_serving.node.calibration.trial import Found
    from cluster_serving.node.job.directory import Job, NodeRecord
    from cluster_serving.node.models.runtime import Runtime

_MOST = 2000  # as many as are read (engines/calibration.py)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def _seconds(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    del context, parameter
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None or not float(match[1]):
        raise click.BadParameter(f"{text} is no time such as 90s, 10m or 1h.")
    return float(match[1]) * _SECONDS[match[2]]


@click.command(cls=Command, context_settings=SETTINGS)
@job_argument
@click.option(
    "--records", type=click.IntRange(2, _MOST), default=1000, metavar="N", help="Records to sample, 2 to 2000; 1000."
)
@click.option(
    "--for",
    "for_s",
    metavar="TIME",
    callback=_seconds,
    help="Sample from all that comes in this time, as 10m; default: until there are N, 10m at most.",
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "int8"]),
    default="auto",
    help="auto: the fastest precision that is exact enough; int8: INT8 if it is proven, however fast; auto.",
)
@click.option(
    "--priority",
    type=click.Choice(["idle", "normal"]),
    default="idle",
    help="idle: run only where processor time is left over; normal: done sooner, with slower answers meanwhile; idle.",
)
@click.option(
    "--apply", "applies", is_flag=True, help="Serve what was found, without a stop, and keep the records for it."
)
@click.option("--rollback", "goes_back", is_flag=True, help="Serve again what was served before --apply.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the sampled records to DIR/records.npz, for calibrationData.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="JSON: an object with records, seen, candidates, best and applied."
)
def calibrate(
    name: str | None,
    records: int,
    for_s: float | None,
    precision: str,
    priority: str,
    applies: bool,
    goes_back: bool,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Try INT8 on the records that a running job gets.

    Records are sampled at random and copied out of the node's memory, while it serves as before. Half of them calibrates a model in
    INT8, and the other half judges it. Time and agreement of each candidate are printed.

    The records are deleted afterwards, unless --keep or --apply needs them.
    """
    from cluster_serving.client.servers.process.signals import Signals
    from cluster_serving.node.calibration.folder import CalibrationFolder
    from cluster_serving.node.lifecycle.jobs_here import not_running
    from cluster_serving.node.lifecycle.restart import check_settled
    from cluster_serving.node.topology.idle import be_idle

    if goes_back and (applies or keep is not None):
        raise click.UsageError("--rollback goes back to what was served before: give it alone.")
    if keep is not None and (keep / RECORDS).exists():
        raise click.UsageError(f"{keep / RECORDS} exists already: give a new DIR.")
    if keep is not None:
        check_place(keep / RECORDS, makes_folders=True)
    import_lean("structlog", "redis")
    job = chosen_job(name)
    record = job.read()
    if record is None or not (goes_back or job.running()):
        raise NotStarted(f"{not_running(job)}.")
    folder = CalibrationFolder(job)
    with Signals().heard("Interrupted."), folder.held():
        check_settled(job)  # to records that nothing names yet, perhaps
        folder.remove_unused()
        if goes_back:
            _roll_back(job, record, folder)
        else:
            data = folder.new()
            options = folder.applied(folder.taken_back(recorded_options(record)), data, precision)
            try:
                with _progress_apart(as_json):
                    subject = subject_of(job, record, options)
                    if priority == "idle":
                        be_idle()
                    sampled, took_s = sampled_from(subject, records, for_s)
                    found = tried(subject, sampled, data, keep, idle=priority == "idle")
            except BaseException:
                folder.remove_unused()
                raise
            _conclude(subject, found, folder, sampled, took_s, precision, applies=applies, as_json=as_json)


def _progress_apart(as_json: bool) -> AbstractContextManager[object]:
    """Send the progress to standard error for a block, if standard output is for JSON."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def _conclude(
    subject: Subject,
    found: "Found",
    folder: "CalibrationFolder",
    sampled: "Reservoir",
    took_s: float,
    precision: str,
    *,
    applies: bool,
    as_json: bool,
) -> None:
    """Print what was found, and serve it if `--apply` is given. Data that are not served are removed."""
    import msgspec

    from cluster_serving.node.lifecycle.jobs_here import command_for
    from cluster_serving.node.tuning.table import runtimes

    job, best = subject.job, found.best
    refused = ""
    if precision == "int8":
        int8 = next(one for one in found.candidates if one.precision == "int8")
        best, refused = int8.runtime, int8.refused
    is_better = not refused and best.precision != "f32"
    text = ""
    try:
        if not as_json:
            say(
                f"Sampled {len(sampled.rows):,} of {sampled.seen:,} records in {took_s:.0f} s. Times are of the processor."
            )
            runtimes(found.candidates, best, "best" if precision == "auto" else "chosen").show()
        if applies and is_better:
            with _progress_apart(as_json):
                text = _applied(subject, found, best)
    except Exception:
        folder.remove_unused()
        raise
    folder.remove_unused()  # not after a signal: the node may go on with the change
    if as_json:
        told = {"records": len(sampled.rows), "seen": sampled.seen, "seconds": round(took_s, 1)}
        rest = {"candidates": found.candidates, "best": best, "applied": bool(text)}
        click.echo(json.dumps(told | msgspec.to_builtins(rest), indent=2))
    elif text:
        say(f"Job {job.name} serves it: {text}")
        say(f"Later starts judge by the records in {subject.config.calibration_data}.")
        say(f"To go back, and to remove the records: {command_for(job, 'calibrate')} --rollback")
    elif is_better:
        say(f"To sample again and serve the best: {command_for(job, 'calibrate')} --apply")
    else:
        say(f"Nothing is better than float32 on these records: job {job.name} stays as it is.")
    if refused:
        raise Fault(f"INT8 is refused: {refused}")


def _applied(subject: Subject, found: "Found", best: "Runtime") -> str:
    """Let the node serve the best runtime, and return the node's description of it.

    Raises:
        Fault: the job was changed while it was tried, or cannot be changed.
    """
    import msgspec

    from cluster_serving.node.config.choice import Choice
    from cluster_serving.node.config.tuned import Store
    from cluster_serving.node.topology.share import Share

    check_unchanged(subject)
    job, record, options, config, model, beat = subject
    if config.precision == "auto":  # so that no start tries the candidates again, as long as the conditions stay
        choice = Choice(beat.workers, beat.threads, beat.batch_size, best)
        judged = {"runtimes": msgspec.to_builtins(found.candidates)}
        Store(job.directory).keep(config, model.backend, beat.model_hash, Share().budget, choice, judged)
    return _changed(job, record, options)


def _changed(job: "Job", record: "NodeRecord", options: StartOptions) -> str:
    """Change the node to options without a stop, and return the node's description of itself."""
    from cluster_serving.node.lifecycle.restart import request_change

    loaded, path = options.load()
    check_change(job, record, loaded.config)
    return request_change(
        job, options if path is None else StartOptions(config_path=str(path)).over(options), TIMEOUT_S
    )


def _roll_back(job: "Job", record: "NodeRecord", folder: "CalibrationFolder") -> None:
    """Serve what was served before, or let the next start do so, and remove the records.

    Raises:
        Fault: nothing was applied, or the node cannot change.
    """
    from msgspec.structs import replace

    from cluster_serving.node.lifecycle.prepare import check

    applied = recorded_options(record)
    options = folder.taken_back(applied)
    if options == applied:
        raise Fault(f"job {job.name} serves nothing that calibrate --apply has set: there is nothing to go back from")
    if job.running():
        check(options.load()[0].config)
        say(f"Job {job.name} serves as before: {_changed(job, record, options)}")
    else:
        job.record(replace(record, flags=options.argv()))
        say(f"Job {job.name} does not run; its next start serves as before.")
    folder.remove_unused()
    say("The records that were kept for it are deleted.")
