"""Latency of calls during a change of the model: a node swaps between two models again and again under a client in a closed loop.

The tiny MLP of the other measurements, from two directories; the config file is rewritten and the node gets SIGHUP. A call that
is under way between SIGHUP and the end of the old lane counts as *during*, one in the pause before each swap as *before*. Memory
is sampled in these pauses, over all processes of the node: RSS, which counts what processes share as often as they share it,
and what no file stands behind, with the ring. The first tenth of the swaps is the warm-up.
Run it by `python -m bench.swaps [--swaps N] [--json FILE]`; it exits with 1 when a call has failed, when the node has grown by more
than 5 %, or when the p99 during swaps is more than three times that before.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import redis
import yaml

from bench import report
from bench.mlp import save_mlp
from bench.soak import anonymous_bytes, ring_bytes
from bench.stage import Stage, stage
from bench.windows import Window, milliseconds, window_of
from cluster_serving.client import ClusterServingError, InputQueue, keys

JOB = "bench_swaps"
_PORT = 26384
_PAUSE_S = 2.0
_POLL_S = 0.05
_PATIENCE_S = 120.0
_CALLS = 10_000_000  # room for so many; pages that no call touches take no memory
_LARGEST_GROWTH = 0.05
_SLOWEST = 3.0
_MB = 1 << 20


class Sample(NamedTuple):
    """Bytes of all processes of the node."""

    rss: int
    anonymous: int


def main() -> None:
    """Swap, print the table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--swaps", type=int, default=100)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    with stage(_PORT) as place:
        models = [place.directory / name for name in ("first", "second")]
        for model in models:
            save_mlp(model)
        with place.node(JOB, modelPath=str(models[0]), modelParallelism=1, threadPerModel=1):
            figures = measure(place, models, options.swaps)
    report.show_once("Swaps of a model under load", figures, f"{options.swaps} swaps")
    report.write(options.json, [figures])
    if problem := complaint(figures):
        sys.exit(problem)


def measure(place: Stage, models: Sequence[Path], swaps: int) -> report.Figures:
    """Call and swap; what came of it."""
    context = get_context("spawn")
    calls, count = context.RawArray("d", 2 * _CALLS), context.RawArray("q", 2)
    caller = context.Process(target=call, args=(calls, count), daemon=True)
    caller.start()
    wait_for(lambda: count[0] > 1000, "calls flow")
    quiet: list[Window] = []
    busy: list[Window] = []
    samples: list[Sample] = []
    supervisor = _supervisor()
    for number in range(1, swaps + 1):
        quiet.append(window_of(lambda: time.sleep(_PAUSE_S)))
        samples.append(_sample(supervisor))
        busy.append(window_of(partial(swap, place, supervisor, models[number % 2])))
    samples.append(_sample(supervisor))
    caller.terminate()
    caller.join()
    spans = np.frombuffer(calls, np.float64)[: 2 * count[0]].reshape(-1, 2)
    before, during = (np.percentile(milliseconds(spans, windows), [99, 99.9]).tolist() for windows in (quiet, busy))
    first, last = samples[max(1, swaps // 10)], samples[-1]
    return {
        "swaps.failed": float(count[1]),
        "swaps.calls": float(count[0]),
        "swaps.seconds_per_swap": float(np.median([end - start for start, end in busy])),
        "swaps.p99_before_ms": before[0],
        "swaps.p99_during_ms": during[0],
        "swaps.p99_ratio": during[0] / before[0],
        "swaps.p999_during_ms": during[1],
        "swaps.slowest_ms": float(1000 * (spans[:, 1] - spans[:, 0]).max()),
        "swaps.rss_mb": last.rss / _MB,
        "swaps.rss_growth": last.rss / first.rss - 1,
        "swaps.anonymous_growth": last.anonymous / first.anonymous - 1,
    }


def call(calls: Any, count: Any) -> None:
    """Be the client: one call at a time; when each began and ended, how many there were, and how many failed."""
    row = {"x": np.ones(128, np.float32)}
    spans = np.frombuffer(calls, np.float64).reshape(-1, 2)
    with InputQueue(port=_PORT, name=JOB) as queue:
        for place in range(_CALLS):
            spans[place, 0] = time.monotonic()
            try:
                queue.predict(row, timeout=_PATIENCE_S)
            except ClusterServingError:
                count[1] += 1
            spans[place, 1] = time.monotonic()
            count[0] = place + 1


def swap(place: Stage, supervisor: psutil.Process, model: Path) -> None:
    """Change the model, and wait until nothing of the old lane is left."""
    path = place.directory / f"{JOB}.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"modelPath": str(model)}))
    old = _children(supervisor.pid)
    supervisor.send_signal(signal.SIGHUP)
    wait_for(lambda: len(new := _children(supervisor.pid)) == len(old) and not old & new, "the new lane is alone")


def wait_for(condition: Any, what: str) -> None:
    """Wait until it holds."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"{what}: not within {_PATIENCE_S:g} s")
        time.sleep(_POLL_S)


def complaint(figures: report.Figures) -> str:
    """Return the sentence for the first figure beyond its bound, or an empty text."""
    if figures["swaps.failed"]:
        return f"{figures['swaps.failed']:.0f} calls have failed"
    if figures["swaps.rss_growth"] > _LARGEST_GROWTH:
        return f"the node has grown by more than {_LARGEST_GROWTH:.0%} after the warm-up"
    if figures["swaps.p99_ratio"] > _SLOWEST:
        return f"the p99 during swaps is more than {_SLOWEST:g} times that before"
    return ""


def _supervisor() -> psutil.Process:
    with redis.Redis(port=_PORT) as client:
        (key,) = client.scan_iter(keys.node_key(JOB, "*"))
        return psutil.Process(json.loads(client.get(key) or b"")["pid"])


def _children(pid: int) -> set[str]:
    """From one small file: to look through all processes, as psutil does, takes from those that are measured."""
    return set(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split())


def _sample(supervisor: psutil.Process) -> Sample:
    tree = [supervisor, *supervisor.children()]
    anonymous = sum(anonymous_bytes(process.pid) for process in tree) + ring_bytes(supervisor.pid)
    return Sample(sum(process.memory_info().rss for process in tree), anonymous)


if __name__ == "__main__":
    main()
