"""Result of a load. Its JSON is an interface: `docs/reference/bench.schema.json` is made from these classes."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.node.load.compare import Compared, compared
from cluster_serving.node.load.limit import limiting
from cluster_serving.node.load.machine import machine
from cluster_serving.node.load.measure import Measured
from cluster_serving.node.load.windows import Times, Window

FEWEST_ROUNDS = 3
"""Rounds of each of two results from which on a change may be sure."""
_QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p99_9_ms": 0.999}
_FROM_WHOLE_MS = ("stream", "queue")
_PEERS = 10  # answers beyond a quantile from which on a window tells the quantile


class BadResult(Fault):
    """File that holds no result of a load."""

    exit_code = ExitCode.USAGE


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Load as it was asked for."""

    job: Annotated[str, Meta(description="Job, or model of the frontend.")]
    over: Annotated[str, Meta(description="`queue`, or the URL of the frontend.")]
    connections: Annotated[int, Meta(description="Most requests under way.", ge=1)]
    rate: Annotated[float | None, Meta(description="Requests a second of an open loop. null: a closed loop.")]
    arrivals: Annotated[str | None, Meta(description="`poisson` or `fixed`, of an open loop.")]
    deadline_ms: Annotated[float | None, Meta(description="Milliseconds after which an answer is of no use.")]
    timeout_s: Annotated[float, Meta(description="Seconds after which a request has failed.")]
    records: Annotated[str, Meta(description="Input: its first name and the number of records.")]


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds from when a request was due to its answer, of the rightly answered requests."""

    mean: float
    p50: float
    p90: float
    p99: float
    p99_9: float
    max: float


class StageTime(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds of a stage, from a sample of the receipts."""

    mean: float
    p99: Annotated[float | None, Meta(description="null: of `client`, the rest of the mean latency.")]


class FailedRequests(msgspec.Struct, frozen=True, kw_only=True):
    """Failed requests of one code."""

    code: Annotated[str, Meta(description="Error code, `HTTP 404`, `QueueFull`, `ConnectionLost` or `ResultTimeout`.")]
    count: int
    message: Annotated[str, Meta(description="Text of the first error.")]


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """Work of the sending processes."""

    processes: int
    busy: Annotated[float, Meta(description="Share of a core that the busiest process used.")]
    late_ms: Annotated[float, Meta(description="Longest time for which a request was due and not sent.")]


class LimitFound(msgspec.Struct, frozen=True, kw_only=True):
    """Part that limits the load."""

    code: Annotated[
        str, Meta(description="Name of a stage, or `workers`, `sender`, `connections`, `errors`, `rate`, `unknown`.")
    ]
    sentence: str


class Result(msgspec.Struct, kw_only=True):
    """Result of `cluster-serving bench`."""

    schema: Annotated[int, Meta(description="Version of this form: 1.", ge=1, le=1)] = 1
    terms: Terms
    machine: Annotated[str, Meta(description="Machine of the sending processes.")]
    began: Annotated[str, Meta(description="Time of the begin, ISO 8601.")]
    seconds: Annotated[float, Meta(description="Measured seconds.")]
    settling_s: Annotated[float, Meta(description="Seconds of load before the measured seconds.")]
    stable: Annotated[bool, Meta(description="Whether the load had settled.")]
    answered: Annotated[int, Meta(description="Requests answered rightly within the measured seconds.")]
    failed: list[FailedRequests]
    unanswered: Annotated[int, Meta(description="Requests without an answer at the end.")]
    oldest_ms: Annotated[float, Meta(description="Milliseconds since the oldest of them was due.")]
    rate_per_s: Annotated[float, Meta(description="Requests answered rightly a second.")]
    goodput_per_s: Annotated[
        float | None, Meta(description="Of these, requests answered within the deadline a second.")
    ]
    latency_ms: Annotated[Latency | None, Meta(description="null: no request was answered rightly.")]
    stages_ms: Annotated[dict[str, StageTime], Meta(description="By stage, in order. Empty: no answer had a receipt.")]
    limit: LimitFound
    sending: Sending
    windows: Annotated[
        list[dict[str, float]],
        Meta(description="Figures of each window. p99_ms and p99_9_ms are there where enough answers came."),
    ]
    rounds: Annotated[list[dict[str, float]], Meta(description="Medians of these figures over the windows of a round.")]
    comparison: Annotated[list[Compared] | None, Meta(description="Beside the result of --compare.")] = None


def summed_up(rounds: Sequence[Measured], terms: Terms, workers: int) -> Result:
    """Return the result of a load.

    Args:
        rounds: rounds with one counted window at least.
        terms: load as it was asked for.
        workers: number of workers of the job. 0: not known.
    """
    windows = [window for measured in rounds for window in measured.counted]
    seconds = sum(window.seconds for window in windows)
    messages = {code: text for measured in reversed(rounds) for code, text in measured.messages.items()}
    took_ms = 1000 * np.concatenate([window.took_s for window in windows])
    failed = sum((window.failed for window in windows), Counter[str]())
    good = None if terms.deadline_ms is None else float(np.count_nonzero(took_ms <= terms.deadline_ms)) / seconds
    latency_ms = None
    if took_ms.size:
        p50, p90, p99, p99_9 = np.quantile(took_ms, list(_QUANTILES.values()), method="inverted_cdf").tolist()
        mean, most = float(took_ms.mean()), float(took_ms.max())
        latency_ms = Latency(mean=mean, p50=p50, p90=p90, p99=p99, p99_9=p99_9, max=most)
    stages_ms = _stages(windows, took_ms)
    found = limiting(
        windows, {name: stage.mean for name, stage in stages_ms.items()}, terms.rate, workers, terms.connections
    )
    return Result(
        terms=terms,
        machine=machine(),
        began=rounds[0].began,
        seconds=seconds,
        settling_s=sum(window.seconds for measured in rounds for window in measured.windows) - seconds,
        stable=all(measured.is_stable for measured in rounds),
        answered=took_ms.size,
        failed=[
            FailedRequests(code=code, count=count, message=messages.get(code, ""))
            for code, count in failed.most_common()
        ],
        unanswered=windows[-1].under_way + windows[-1].unsent,
        oldest_ms=1000 * windows[-1].oldest_s,
        rate_per_s=took_ms.size / seconds,
        goodput_per_s=good,
        latency_ms=latency_ms,
        stages_ms=stages_ms,
        limit=LimitFound(code=found.code, sentence=found.sentence),
        sending=Sending(
            processes=rounds[-1].processes,
            busy=float(np.mean([window.busy for window in windows])),
            late_ms=1000 * max(window.late_s for window in windows),
        ),
        windows=[_figures(window, terms.deadline_ms) for window in windows],
        rounds=[_medians([_figures(window, terms.deadline_ms) for window in each.counted]) for each in rounds],
    )


def beside(before: Result, now: Result, tolerance: float) -> list[Compared]:
    """Return the figures of two results, compared round by round.

    With less than `FEWEST_ROUNDS` rounds of either, no change is sure: the windows of a round know nothing of how rounds differ.
    """
    is_enough = min(len(before.rounds), len(now.rounds)) >= FEWEST_ROUNDS
    last = None if is_enough else 1
    return compared(before.rounds[:last], now.rounds[:last], tolerance)


def read(path: Path) -> Result:
    """Return the result in a file.

    Raises:
        BadResult: the file holds no result.
        OSError: the file cannot be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except msgspec.MsgspecError as error:
        raise BadResult(f"{path} is no result of `cluster-serving bench --json`: {error}") from error


def _stages(windows: Sequence[Window], took_ms: Times) -> dict[str, StageTime]:
    """Return the stages, with the rest of the mean latency as `client`."""
    samples = [sample for window in windows for sample in window.samples]
    if not samples:
        return {}
    rows = [max(1, sample.rows) for sample in samples]  # a sample stands for the records of its batch
    found: dict[str, StageTime] = {}
    for name in samples[0].stages_ms:
        times = np.array([sample.stages_ms.get(name, 0.0) for sample in samples])
        if name in _FROM_WHOLE_MS:
            times = np.maximum(times - 0.5, 0)  # the enqueueing is told in whole milliseconds, rounded down
        mean = float(np.average(times, weights=rows))
        found[name] = StageTime(mean=mean, p99=float(np.quantile(times, 0.99, method="inverted_cdf")))
    if took_ms.size:
        rest = max(0.0, float(took_ms.mean()) - sum(stage.mean for stage in found.values()))
        found["client"] = StageTime(mean=rest, p99=None)
    return found


def _medians(windows: Sequence[dict[str, float]]) -> dict[str, float]:
    told = [name for name in windows[0] if all(name in figures for figures in windows)]
    return {name: float(np.median([figures[name] for figures in windows])) for name in told}


def _figures(window: Window, deadline_ms: float | None) -> dict[str, float]:
    took_ms = 1000 * window.took_s
    failed = sum(window.failed.values())
    figures = {
        "rate_per_s": window.rate,
        "failed": failed / max(1, failed + took_ms.size),
    }
    if deadline_ms is not None:
        figures["goodput_per_s"] = float(np.count_nonzero(took_ms <= deadline_ms)) / window.seconds
    for name, share in _QUANTILES.items():
        if took_ms.size * (1 - share) >= _PEERS:
            figures[name] = float(np.quantile(took_ms, share, method="inverted_cdf"))
    return figures
