"""Trial of a model's runtimes on sampled records: a process beside the node that serves the model.

The parent starts this module as a `Child` (client/servers/process/child.py). The ready message has the fields of `Found`. All lines
of the log go to a file.
"""

import os
import select
import signal
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from cluster_serving.client.servers.process import log
from cluster_serving.client.servers.process.child import Child
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault, ModelFault
from cluster_serving.client.servers.process.parent import Parent
from cluster_serving.node.engines.trials import Trials
from cluster_serving.node.models.base import LoadOptions, ModelError
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.runtime import Engine, Runtime, TriedRuntime
from cluster_serving.node.supervisor.child import THREAD_VARIABLES
from cluster_serving.node.topology.idle import be_idle, leave_session

_PATIENCE_S = 3600.0  # for NNCF in all, which gets the processor only while the node leaves it idle
_END_S = 10.0


class Trial(msgspec.Struct, frozen=True):
    """Task of the process: the model, the sampled records, and the terms by which candidates are refused.

    `batch` is the number of rows of a timed batch. Proofs and the model in INT8 are kept in `proof_directory`, under
    `proof_conditions` and `model_hash`. `idle`: the process runs only where processor time is left over.
    """

    model: Detected
    options: LoadOptions
    engine: Engine
    batch: int
    trials: Trials
    proof_directory: str
    proof_conditions: str
    model_hash: str
    log_level: str
    idle: bool


class Found(msgspec.Struct, frozen=True):
    """Candidates with their figures, and the fastest that is exact enough. `ms` is processor time."""

    candidates: tuple[TriedRuntime, ...]
    best: Runtime


def carry_out(trial: Trial, log_path: Path) -> Found:
    """Run the process, and wait for its result.

    Raises:
        ModelFault: the model fails, or the records do not fit.
        Fault: the process has ended without a result.
    """
    descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        environment: dict[str, str] = {name: str(trial.options.threads) for name in THREAD_VARIABLES}
        child = Child("calibrate", [__name__], msgspec.json.encode(trial), (), environment, descriptor)
    finally:
        os.close(descriptor)
    try:
        while child.booting:
            select.select([child], [], [])
            child.hear()
        if child.failure is not None:
            raise ModelFault(child.failure[0])
        if child.ready is None:
            select.select([child.death_fd], [], [])
            raise Fault(f"the trial ended without a result: {child.reap()}; see {log_path}")
        return msgspec.convert(child.ready, Found)
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            child.signal(number)
            select.select([child.death_fd], [], [], _END_S)
        child.reap()
        child.close()


def main() -> None:
    """Carry out the task on standard input. SIGTERM ends the process and removes its files."""
    parent = Parent()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    signal.signal(signal.SIGTERM, _end)
    trial = msgspec.json.decode(sys.stdin.buffer.read(), type=Trial)
    if trial.idle:
        leave_session()
        be_idle()
    log.configure(parent.child_name, trial.log_level)
    # Imported at the priority of the trial: the frameworks take seconds.
    from cluster_serving.node.engines.engine import load
    from cluster_serving.node.engines.kept_proofs import KeptProofs

    trials = trial.trials._replace(patience_s=_PATIENCE_S, by_cpu_time=True)
    kept = KeptProofs(trial.proof_directory, trial.proof_conditions, lambda: trial.model_hash)
    try:
        loaded = load(trial.model, trial.options, Runtime(trial.engine, "auto"), trial.batch, trials, kept=kept)
    except ModelError as error:
        parent.tell_failure(str(error), ExitCode.MODEL)
        sys.exit(ExitCode.MODEL)
    parent.tell_ready(candidates=loaded.candidates, best=loaded.runtime)


def _end(*_signal: object) -> NoReturn:
    sys.exit()


if __name__ == "__main__":
    main()
