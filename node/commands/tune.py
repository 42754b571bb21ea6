"""`tune`: find the best workers, threads and batch size for a model on this machine, and keep the result."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import Fault, NotStarted
from cluster_serving.client.servers.process.number import POSITIVE
from cluster_serving.node.commands.plot_option import check_plot, plot_option
from cluster_serving.node.commands.which_job import chosen_job, job_argument
from cluster_serving.node.lifecycle.options import StartOptions, start_options

if TYPE_CHECKING:
    from cluster_serving.node.config.loading import Config
    from cluster_serving.node.job.directory import Job
    from cluster_serving.node.tuning.report import TuningReport
    from cluster_serving.node.tuning.tuner import Terms

LOG = "tune.log"  # in the job's directory


@click.command(cls=Command, context_settings=SETTINGS)
@job_argument
@start_options
@click.option(
    "--objective", metavar="GOAL", help="throughput, or latency:MS that 99 of 100 answers may take (objective)."
)
@click.option(
    "--seconds",
    type=POSITIVE,
    default=0.5,
    metavar="S",
    help="Seconds of each measurement, at least; 0.5.",
)
@click.option("--all", "exhaustive", is_flag=True, help="Measure every candidate, not only possible winners.")
@plot_option
@click.option("--json", "as_json", is_flag=True, help="JSON: an object with chosen, batching, tried and runtimes.")
def tune(
    name: str | None,
    objective: str | None,
    seconds: float,
    exhaustive: bool,
    plot: Path | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Find the best workers, threads and batch size for a model here.

    The model is served as by `start`, with a load of made-up records (or calibrationData), on a private Redis. A setting with a
    value stays as it is, and a setting on auto is tried. The result is kept. The next start of this job uses the result, as long
    as model, processor, budget, versions and settings are the same.

    With NAME, the options are those of the job's last start. Without NAME, config file and options count, as for start.
    """
    from cluster_serving.node.job.directory import Job, all_jobs
    from cluster_serving.node.lifecycle.prepare import check_free
    from cluster_serving.node.tuning import plot as picture
    from cluster_serving.node.tuning.report import described
    from cluster_serving.node.tuning.tuner import Terms

    check_plot(plot)
    options = _options(StartOptions.of(values), name, objective)
    config = options.load()[0].config
    config.check_model_path()
    job = Job.of(config.job_name)
    check_free(job)
    others = [other.name for other in all_jobs() if other.name != job.name and other.running()]
    if others:
        say(f"Also running here, and taking a share of the cores: {', '.join(others)}.", err=True)
    report, kept = _measured(config, job, Terms(seconds, exhaustive))
    if as_json:
        click.echo(json.dumps(described(report), indent=2))
    else:
        _show(report, kept, config, job)
    if plot is not None:
        picture.draw(report, f"{job.name}: {Path(config.model_path).name}", plot)
    if isinstance(kept, OSError):
        raise kept  # after the report, which took minutes


def _options(given: StartOptions, name: str | None, objective: str | None) -> StartOptions:
    """Return the given options. When a job is named, the options of its last start fill the gaps."""
    from cluster_serving.node.lifecycle.jobs_here import not_running
    from cluster_serving.node.lifecycle.options import recorded_options

    if objective is not None:
        given = replace(given, settings=(*given.settings, f"objective={objective}"))
    if name is None:
        return given
    job = chosen_job(name)
    record = job.read()
    if record is None:
        raise NotStarted(f"{not_running(job)}; give its config file with -c")
    return given.over(recorded_options(record))


def _measured(config: "Config", job: "Job", terms: "Terms") -> "tuple[TuningReport, bool | OSError]":
    """Measure, keep the result, and return the report and whether the result was kept. All processes print to a log."""
    from cluster_serving.client.servers.process import log
    from cluster_serving.client.servers.process.redaction import hide, secrets_of_config
    from cluster_serving.client.servers.process.signals import Signals
    from cluster_serving.node.commands.tune_display import display, diverted
    from cluster_serving.node.config.tuned import Store, is_open
    from cluster_serving.node.fetching.placing import fetched
    from cluster_serving.node.lifecycle.prepare import find_model
    from cluster_serving.node.topology.share import Share
    from cluster_serving.node.tuning.tuner import keep
    from cluster_serving.node.tuning.tuner import tune as measure

    hide(*secrets_of_config(config))
    signals = Signals()
    job.create()
    with signals.heard("Interrupted; everything that was started has been ended, and nothing is kept."):
        local, _kept = fetched(config, job, partial(say, err=True))
        model = find_model(local, config.model_path if config.model_is_remote else "")
        if not is_open(local, model.backend):
            raise Fault(
                "workers, threads, batch size and runtime are all set: there is nothing to choose; set one to auto"
            )
        budget = Share().budget
        with diverted(job.directory / LOG) as terminal, display(terminal, signals) as watch:
            log.configure("tuner", local.log_level)
            report = measure(local, model, budget, terms, watch, str(job.proof_directory(local.model_cache)))
        try:
            return report, keep(Store(job.directory), local, model, budget, report)
        except OSError as error:
            return report, error


def _show(report: "TuningReport", kept: "bool | OSError", config: "Config", job: "Job") -> None:
    """Print the report, and which starts use the result."""
    from cluster_serving.node.config.objective import THROUGHPUT
    from cluster_serving.node.tuning import table

    table.show(report)
    if isinstance(kept, OSError):
        return
    if not kept:
        say(f"Not kept: the model has no fingerprint; {job.directory / LOG} says why.")
    elif config.tuning == "off":
        click.echo("Kept; no start uses it as long as tuning is off.")
    else:
        goal = "" if config.objective == THROUGHPUT else f" (objective: {config.objective} too)"
        click.echo(f"Kept: the next start with these settings{goal} uses it.")
