"""Bare loops (`bare.py`) in processes of their own, to be measured in turns with a node."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.records import RECORDS
from cluster_serving.node.supervisor.child import THREAD_VARIABLES

RUNTIMES = {"native": "onnx", "openvino": "openvino"}
"""The kind of loop that runs an ONNX file as a node with this `engine` does."""

_ROOT = Path(__file__).parents[1]


class Way(NamedTuple):
    """So many processes of so many threads, each with batches of so many rows."""

    processes: int
    threads: int
    batch: int

    def __str__(self) -> str:
        return f"{self.processes} x {self.threads}, batch {self.batch}"


class Turn(NamedTuple):
    """Rate and CPU time of one turn, of all loops together."""

    rows_per_s: float
    cpu_s_per_row: float


class Loops:
    """Loops that wait for their turns."""

    def __init__(self, processes: list["subprocess.Popen[str]"]) -> None:
        self._processes = processes

    def run(self, seconds: float) -> Turn:
        """Let all of them run for so long."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        turns = [Turn(*map(float, _line(process).split())) for process in self._processes]
        rate = sum(turn.rows_per_s for turn in turns)
        return Turn(rate, sum(turn.rows_per_s * turn.cpu_s_per_row for turn in turns) / rate)


@contextmanager
def loops(kind: str, model: Path, batch: Path, way: Way, precision: str = "f32") -> Generator[Loops]:
    """Start the loops of a way, loaded and warm; each on cores of its own where they fill the machine.

    Args:
        kind: one of `bare.LOOPS`.
        model: its directory.
        batch: the input, as `bare` takes it.
        way: how many, and the threads of each.
        precision: of OpenVINO.
    """
    command = [sys.executable, "-m", "bench.bare", kind, str(model), str(batch)]
    command += [f"--threads={way.threads}", f"--precision={precision}"]
    environment = os.environ | {"ORT_DISABLE_TELEMETRY": "1"} | dict.fromkeys(THREAD_VARIABLES, str(way.threads))
    with ExitStack() as stack:
        running: list[subprocess.Popen[str]] = []
        for cores in _cores(way):
            process = subprocess.Popen(
                [*command, "--cores", *map(str, cores)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
                cwd=_ROOT,
            )
            stack.callback(_end, process)
            running.append(process)
        for process in running:
            if _line(process) != "ready\n":
                raise SystemExit(f"{' '.join(command)} did not start")
        yield Loops(running)


def ways(batches: tuple[int, ...]) -> list[Way]:
    """Return the ways to look for a ceiling in: a process a core, or all cores for one process, with each of these batches."""
    cores = len(os.sched_getaffinity(0))
    shapes = {(cores, 1), (1, cores)}
    return [Way(*shape, batch) for shape in sorted(shapes) for batch in batches]


def save_batch(directory: Path, content: str, rows: int) -> Path:
    """A batch for `bare`, of one of `RECORDS`: an array, or the JPEG files themselves."""
    values = [next(iter(RECORDS[content](number).values())) for number in range(rows)]
    path = directory / f"{content}-{rows}.{'npz' if content == 'jpeg' else 'npy'}"
    if content == "jpeg":
        np.savez(path, *(np.frombuffer(value, np.uint8) for value in values))
    else:
        np.save(path, np.stack(values))
    return path


def _cores(way: Way) -> list[list[int]]:
    allowed = sorted(os.sched_getaffinity(0))
    if way.processes * way.threads != len(allowed):
        return [[]] * way.processes
    return [allowed[first : first + way.threads] for first in range(0, len(allowed), way.threads)]


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()
