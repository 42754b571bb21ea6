"""Work of `calibrate`: the job as it is, a sample of its live records, and the trial of the candidates on the sample."""

import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cluster_serving.client.servers.process.command import say
from cluster_serving.client.servers.process.exit_codes import Fault, NotStarted
from cluster_serving.client.servers.process.progress_pipe import Event
from cluster_serving.node.lifecycle.options import StartOptions

if TYPE_CHECKING:
    from cluster_serving.client.wire.heartbeat import Heartbeat
    from cluster_serving.node.calibration.reservoir import Reservoir
    from cluster_serving.node.calibration.trial import Found
    from cluster_serving.node.config.loading import Config
    from cluster_serving.node.job.directory import Job, NodeRecord
    from cluster_serving.node.models.detect import Detected

LOG = "calibrate.log"
"""Name of the log of the trial, in the job's directory."""
RECORDS = "records.npz"
"""Name of the file of the records, in the folder of `--keep`."""


class Subject(NamedTuple):
    """Job to calibrate: options of its next start if something is applied, with their config and model, and its heartbeat."""

    job: "Job"
    record: "NodeRecord"
    options: StartOptions
    config: "Config"
    model: "Detected"
    beat: "Heartbeat"


def subject_of(job: "Job", record: "NodeRecord", options: StartOptions) -> Subject:
    """Find everything about a job, and check that the job can be calibrated.

    Raises:
        Fault: the job cannot be calibrated, or not without a stop.
    """
    from cluster_serving.client.servers.process.redaction import hide, secrets_of_config
    from cluster_serving.node.calibration.checks import check_model, check_settings
    from cluster_serving.node.fetching.placing import fetched
    from cluster_serving.node.lifecycle.prepare import find_model

    config = options.load()[0].config
    hide(*secrets_of_config(config))
    check_settings(config)
    check_change(job, record, config)
    beat = _heartbeat(job, record)
    local, _kept = fetched(config, job, partial(say, err=True))
    model = find_model(local, config.model_path if config.model_is_remote else "")
    check_model(local, model, beat)
    return Subject(job, record, options, local, model, beat)


def check_change(job: "Job", record: "NodeRecord", config: "Config") -> None:
    """Check that a job can be changed to a config without a stop.

    Raises:
        Fault: the job cannot.
    """
    from cluster_serving.node.lifecycle.jobs_here import command_for
    from cluster_serving.node.lifecycle.restart import can_change

    if not can_change(job, record, config):
        mend = command_for(job, "restart")
        raise Fault(
            f"job {job.name} cannot be changed while it serves: its version or its Redis is another; first {mend}"
        )


def check_unchanged(subject: Subject) -> None:
    """Check that the job is what it was when it was read.

    Raises:
        Fault: the job was changed meanwhile, for example by `restart`.
    """
    job, before, now = subject.job, subject.record, subject.job.read()
    is_same = now is not None and (now.config_path, now.flags) == (before.config_path, before.flags)
    if not is_same or _heartbeat(job, before).model_hash != subject.beat.model_hash:
        raise Fault(f"job {job.name} was changed while it was tried, and nothing is applied: calibrate again")


def _heartbeat(job: "Job", record: "NodeRecord") -> "Heartbeat":
    from cluster_serving.client.keys import node_key
    from cluster_serving.client.wire.heartbeat import Heartbeat
    from cluster_serving.node.commands.job_in_redis import Where, reach

    with reach(Where(job.name, None, None)) as reached:
        content = reached.link.call("GET", node_key(job.name, record.node))
    beat = Heartbeat.decode(content) if content else None
    if beat is None or not beat.ready:
        raise NotStarted(f"the node of job {job.name} on this machine is not ready")
    return beat


def sampled_from(subject: Subject, records: int, for_s: float | None) -> "tuple[Reservoir, float]":
    """Return a sample of the live records, and the seconds that it took.

    Raises:
        Fault: there are too few records, or they cannot be sampled.
    """
    from cluster_serving.node.calibration.checks import check_records
    from cluster_serving.node.calibration.reservoir import Reservoir, UnequalRowsError
    from cluster_serving.node.calibration.sampling import sample
    from cluster_serving.node.lifecycle.background import StartDisplay
    from cluster_serving.node.processing.custom import load as load_processing
    from cluster_serving.node.ring.ring import RingError
    from cluster_serving.node.shadow.live_records import LiveRecords
    from cluster_serving.node.worker.inputs import SlotInputs

    job, _, _, config, _, beat = subject
    check_records(records, config, beat, f"--records is {records}")
    supervisor = job.supervisor()
    if supervisor is None:
        raise Fault(f"job {job.name} runs, but its process cannot be seen from here: another user's or container's?")
    processing = load_processing(config.processing) if beat.raw else None
    reservoir, begun_s = Reservoir(records), time.monotonic()
    try:
        live = LiveRecords(supervisor.pid, SlotInputs(beat.inputs, config.image_options(), None, processing))
    except (PermissionError, RingError) as error:
        raise Fault(f"the memory of job {job.name} cannot be read: {error}") from error
    with StartDisplay() as display:
        display.show(Event("progress", f"sampling {records:,} of the records of job {job.name}"))

        def show() -> None:
            if sys.stdout.isatty():
                display.show(Event("progress", f"sampled {len(reservoir.rows):,} of {reservoir.seen:,} records"))

        try:
            sample(live, reservoir, for_s, show)
        except UnequalRowsError as error:
            raise Fault(
                f"{error}: a model is calibrated on records of one shape; set calibrationData instead"
            ) from error
        finally:
            live.close()
    took_s = time.monotonic() - begun_s
    check_records(len(reservoir.rows), config, beat, f"{len(reservoir.rows):,} records came in {took_s:.0f} s")
    return reservoir, took_s


def tried(subject: Subject, sampled: "Reservoir", data: Path, keep: Path | None, *, idle: bool) -> "Found":
    """Write the sample down, and try the candidates on it."""
    from cluster_serving.node.calibration.folder import write_records
    from cluster_serving.node.calibration.trial import Trial, carry_out
    from cluster_serving.node.config.conditions import key_of, of_proof
    from cluster_serving.node.lifecycle.background import StartDisplay
    from cluster_serving.node.supervisor.served_model import trials_of

    job, _, _, config, model, beat = subject
    conditions, store = key_of(of_proof(config, model.backend)), job.proof_directory(config.model_cache)
    write_records(data, sampled.arrays(beat.inputs), store / conditions)
    if keep is not None:
        keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy(data, keep / RECORDS)
    trial = Trial(
        model=model,
        options=config.load_options(beat.threads),
        engine=config.engine,
        batch=beat.batch_size,
        trials=trials_of(config)._replace(data=str(data)),
        proof_directory=str(store),
        proof_conditions=conditions,
        model_hash=beat.model_hash,
        log_level=config.log_level,
        idle=idle,
    )
    with StartDisplay() as display:
        display.show(Event("progress", "trying the candidates, beside the node"))
        return carry_out(trial, job.directory / LOG)
