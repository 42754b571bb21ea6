"""Cost of bad records for the good ones: among thousands one that crashes the worker, one that hangs it, and one that raises.

One node, two workers, batch 32, `runTimeout` 2 s, the model of `poison_model.py`, 40 ms a run. A client keeps 512 records under way
for as long as the measurement lasts: 4 s of good ones, the records with the three among them at seeded places, no two in one batch,
and good ones again until 6 s after the last of the three was answered. The model notes the rows of every run, so that the runs
of each record can be counted. The last restart is over when the last worker has warmed up; from then on answers are counted in half
seconds, by their arrival, and compared with the median half second before the first of the three was sent.
Run it by `python -m bench.poison [--records N] [--seed N] [--json FILE]`; it exits with 1 when anything but the three has failed,
when a record was run more than log2(batch) + 1 times too often, or when the rate is not back within 2 s.
"""

import argparse
import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import redis
from numpy.typing import NDArray

from bench import poison_model, report
from bench.poison_model import CRASH, HANG, RAISE, Run
from bench.stage import stage
from cluster_serving.client import InputQueue, keys
from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.wire.result import Result

JOB = "bench_poison"
_PORT = 26385
_BATCH = 32
_WORKERS = 2
_WINDOW = 512
_BEFORE_S = 4.0
_AFTER_S = 6.0
_STEP_S = 0.5
_BACK_S = 2.0
_LEAST_RATIO = 0.8
_PATIENCE_S = 120.0
_CODES = {CRASH: ErrorCode.WORKER_DIED, HANG: ErrorCode.WORKER_HUNG, RAISE: ErrorCode.INFERENCE_FAILED}
_NAMES = {CRASH: "crash", HANG: "hang", RAISE: "raise"}


class Load:
    """The records that are sent, and what has come of them.

    Args:
        records: so many have the three among them.
        seed: of their places.
    """

    def __init__(self, records: int, seed: int) -> None:
        self.harms: dict[int, float] = {}
        self.failures: dict[int, str] = {}
        self.wrong = 0
        self.first_sent_s = self.last_answered_s = math.inf
        """Moments at which the first of the three was sent, and the last one answered, in seconds of the monotonic clock."""
        self.sent_s: list[float] = []
        self.answered_s: list[float] = []
        self.slowest_s = 0.0
        self._records = records
        self._places = dict(zip(scattered(records, seed), _CODES, strict=True))

    def run(self) -> None:
        """Send all of them, and take every answer."""
        with InputQueue(port=_PORT, name=JOB) as queue:
            for result in queue.as_completed(self._requests(), timeout=_PATIENCE_S, window=_WINDOW):
                self._take(result)

    def _requests(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        begun_s = time.monotonic()
        start: int | None = None
        number = 0
        while time.monotonic() < self.last_answered_s + _AFTER_S:
            number += 1  # from 1: a warm-up has zeros
            self.sent_s.append(time.monotonic())
            if start is None and time.monotonic() > begun_s + _BEFORE_S:
                start = number
            harm = 0.0 if start is None else self._places.get(number - start, 0.0)
            if harm:
                self.first_sent_s = min(self.first_sent_s, time.monotonic())
                self.harms[number] = harm
            yield str(number), {"x": np.array([number, harm], np.float32)}

    def _take(self, result: Result) -> None:
        now_s = time.monotonic()
        number = int(result.uri)
        self.answered_s.append(now_s)
        if result.error is not None:
            self.failures[number] = result.error[0]
        elif result.outputs["y"] != 2 * number + 1:
            self.wrong += 1
        if number not in self.harms:
            self.slowest_s = max(self.slowest_s, now_s - self.sent_s[number - 1])
        elif len(self.harms) == len(_CODES) and self.harms.keys() <= self.failures.keys():
            self.last_answered_s = now_s


def main() -> None:
    """Send the records, print the table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--records", type=int, default=10_000, help="those with the three among them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    with stage(_PORT) as place:
        model = place.directory / "model" / "poison.py"
        model.parent.mkdir()
        shutil.copy(poison_model.__file__, model)
        sizes = {"batchSize": _BATCH, "modelParallelism": _WORKERS, "threadPerModel": 1}
        with place.node(JOB, modelPath=str(model), runTimeout=2, **sizes):
            load = Load(options.records, options.seed)
            load.run()
            letters = dead_letters()
        figures = measured(load, letters, list(poison_model.noted(model.parent)))
    report.show_once("Three bad records under load", figures, f"seed {options.seed}")
    report.write(options.json, [figures])
    if problem := complaint(figures):
        sys.exit(problem)


def scattered(records: int, seed: int) -> list[int]:
    """Places for the three, so far from each other that no batch has two of them."""
    random = Random(seed)
    while True:
        places = random.sample(range(records), len(_CODES))
        if all(abs(one - other) > _BATCH for one in places for other in places if one != other):
            return places


def dead_letters() -> list[int]:
    """The numbers of the records that are dead letters."""
    with redis.Redis(port=_PORT) as client:
        entries: Any = client.xrange(keys.dead_key(JOB))
    return [int(fields[keys.URI]) for _, fields in entries]


def measured(load: Load, letters: list[int], processes: list[list[Run]]) -> report.Figures:
    """Return the figures, from the load, its dead letters, and the runs of each process."""
    expected = {number: _CODES[harm] for number, harm in load.harms.items()}
    times = Counter(number for runs in processes for run in runs for number in run.numbers if number)
    extra = {_NAMES[harm]: times[number] - 1 for number, harm in load.harms.items()}
    ready_s = max(warm_s(runs) for runs in processes)
    answered_s = np.array(load.answered_s)
    before = rates(answered_s, load.sent_s[0] + 2 * _STEP_S, load.first_sent_s)
    after = rates(answered_s, ready_s, load.sent_s[-1])
    usual = float(np.median(before))
    settled = float(np.median(after[round(_BACK_S / _STEP_S) :]))
    return {
        "poison.records": float(len(load.sent_s)),
        "poison.not_answered_once": float(abs(len(load.answered_s) - len(load.sent_s))),
        "poison.failures": float(len(load.failures)),
        "poison.dead_letters": float(len(letters)),
        "poison.unexpected": float(len(set(expected.items()) ^ set(load.failures.items()) | expected.keys() ^ letters)),
        "poison.wrong": float(load.wrong),
        **{f"poison.extra_runs_{name}": float(extra[name]) for name in _NAMES.values()},
        "poison.extra_runs_others": float(max(count - 1 for number, count in times.items() if number not in expected)),
        "poison.restarts": float(len(processes) - _WORKERS),
        "poison.seconds": load.last_answered_s - load.first_sent_s,
        "poison.slowest_other_s": load.slowest_s,
        "poison.records_per_s_before": usual,
        "poison.records_per_s_meanwhile": float(np.median(rates(answered_s, load.first_sent_s, ready_s))),
        "poison.records_per_s_after": settled,
        "poison.ratio_after": settled / usual,
        "poison.back_s": back_s(after, _LEAST_RATIO * usual),
    }


def warm_s(runs: list[Run]) -> float:
    """Return the monotonic seconds at which a worker was ready: the beginning of its last warm-up run; 0 if there is none."""
    return max((run.begun_s for run in runs if run.is_warm_up), default=0.0)


def rates(answered_s: NDArray[np.float64], begin_s: float, end_s: float) -> NDArray[np.float64]:
    """Answers a second in each whole half second between the two."""
    edges = begin_s + _STEP_S * np.arange(max(2, math.floor((end_s - begin_s) / _STEP_S) + 1))
    return np.histogram(answered_s, edges)[0] / _STEP_S


def back_s(after: NDArray[np.float64], least: float) -> float:
    """Seconds to the end of the first half second with so many answers a second."""
    enough = np.flatnonzero(after >= least)
    return _STEP_S * (float(enough[0]) + 1) if len(enough) else math.inf


def complaint(figures: report.Figures) -> str:
    """Return the sentence for the first figure beyond its bound, or an empty text."""
    if figures["poison.not_answered_once"] or figures["poison.wrong"]:
        return "not every record has its one right answer"
    if figures["poison.unexpected"]:
        return "other records than the three have failed, or for another reason, or are dead letters"
    if (most := max(value for name, value in figures.items() if "extra_runs" in name)) > math.log2(_BATCH) + 1:
        return f"a record was run {most:.0f} times too often"
    if figures["poison.back_s"] > _BACK_S or figures["poison.ratio_after"] < _LEAST_RATIO:
        return f"{_BACK_S:g} s after the last restart the rate is not {_LEAST_RATIO:.0%} of what it was"
    return ""


if __name__ == "__main__":
    main()
