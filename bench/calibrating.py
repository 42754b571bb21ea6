"""Does a caller feel that a job is calibrated on its live records? Latency of one caller before, during and after, and failures.

MobileNetV2 with a fitted classifier (`fitted.py`). One caller calls without a pause, while `calibrate --apply` samples its records,
makes and tries the candidates at idle priority, and changes the node, and while `calibrate --rollback` changes it back. Needs the
extra `int8`. `python -m bench.calibrating [--json FILE]`; it exits with 1 when a call has failed, or when the p99 during the
calibration is more than 1.5 times that before.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench import report
from bench.fitted import save_fitted
from bench.stage import Stage, stage
from bench.windows import milliseconds, window_of
from cluster_serving.client import ClusterServingError, InputQueue

_PORT = 26401
_JOB = "calibrated"
_NETWORK = "mobilenetv2"
_RECORDS = 1000
_WARM = 50
_SLOWEST = 1.5


class Call(NamedTuple):
    """Begin and end of a call, in seconds of the monotonic clock, and whether it was answered."""

    begun_s: float
    ended_s: float
    answered: bool


def main() -> None:
    """Calibrate, print the table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--seconds", type=float, default=20, help="before, after, and after the way back")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with stage(_PORT) as place:
        model = place.directory / "model"
        model.mkdir()
        records = np.load(save_fitted(_NETWORK, model, _RECORDS))
        settings = {"modelPath": str(model / f"{_NETWORK}.onnx"), "accuracyAgreement": 0.95}
        with place.node(_JOB, **settings), _caller(records) as calls:
            rounds = [_round(place, calls, options.seconds) for _ in range(options.rounds)]
    report.show("A caller beside a calibration", rounds)
    report.write(options.json, rounds)
    if any(figures["calls.failed"] for figures in rounds):
        sys.exit("calls have failed")
    if (ratio := float(np.median([figures["during.p99_ratio"] for figures in rounds]))) > _SLOWEST:
        sys.exit(f"the p99 during the calibration is {ratio:.2f} times that before, more than {_SLOWEST:g}")


def _round(place: Stage, calls: list[Call], seconds: float) -> report.Figures:
    first = len(calls)
    acts: dict[str, Callable[[], object]] = {
        "before": lambda: time.sleep(seconds),
        "during": lambda: place.command("calibrate", _JOB, f"--records={_RECORDS}", "--precision=int8", "--apply"),
        "after": lambda: time.sleep(seconds),
        "back": lambda: place.command("calibrate", _JOB, "--rollback"),
    }
    figures: report.Figures = {}
    for name, act in acts.items():
        window = window_of(act)
        ms = milliseconds(np.array([(call.begun_s, call.ended_s) for call in calls[first:]]), [window])
        figures |= {f"{name}.p50_ms": float(np.median(ms)), f"{name}.p99_ms": float(np.percentile(ms, 99))}
        figures[f"{name}.p99_ratio"] = figures[f"{name}.p99_ms"] / figures["before.p99_ms"]
        figures[f"{name}.seconds"] = window[1] - window[0]
    figures["calls.failed"] = float(sum(not call.answered for call in calls[first:]))
    return figures


@contextmanager
def _caller(records: NDArray[np.float32]) -> Generator[list[Call]]:
    """Call with one record after another, and yield the list of the calls, which grows."""
    calls: list[Call] = []
    stop = threading.Event()

    def call() -> None:
        with InputQueue(port=_PORT, name=_JOB) as queue:
            for number in count():
                if stop.is_set():
                    return
                begun_s, answered = time.monotonic(), True
                try:
                    queue.predict(records[number % len(records)], timeout=60)
                except ClusterServingError:
                    answered = False
                calls.append(Call(begun_s, time.monotonic(), answered))

    thread = threading.Thread(target=call)
    thread.start()
    try:
        while len(calls) < _WARM:
            time.sleep(0.1)
        yield calls
    finally:
        stop.set()
        thread.join()


if __name__ == "__main__":
    main()
