"""Picture of a job, and the part that limits it."""

from typing import Any

import msgspec
import pytest

from cluster_serving.client.servers.picture import JobPicture, limit
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.client.wire.load import Load, ProcessLoad
from cluster_serving.node.commands.load_text import duration, number
from cluster_serving.node.commands.top import View, bar, keys, sparkline
from support.heartbeats import described

BUSY = JobPicture(
    records_s=500,
    errors_s=0,
    p50_s=0.01,
    p99_s=0.05,
    backlog=900,
    oldest_s=2,
    full="",
    fill=0.9,
    bytes_s=500 * 704,
    busy=(0.6, 0.5),
    reader=0.2,
    writer=0.1,
    redis_wait=0.1,
    redis=0.2,
    machine=0.5,
    throttled=0,
    starved=0,
    empty=0,
    burst=0,
    dead_letters=0,
    stages={"decode": 0.001, "model": 0.008, "store": 0.001, "write": 0.002},
)
WORKING = {"busy": (0.97, 0.97)}
DECODING = {"stages": {"decode": 0.009, "model": 0.002, "store": 0.001}}
SLOW_REDIS = {"redis_wait": 0.8, "stages": {**BUSY.stages, "write": 0.09}}
WITHOUT_WORK = {"busy": (0.3, 0.3), "oldest_s": 0.01, "empty": 0.4}


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"records_s": 0, "backlog": 0}, "idle", "No records come"),
        (
            {"records_s": 0, "backlog": 0, "full": "Redis uses 9 of its 10 MB"},
            "memory",
            "because Redis uses 9 of its 10",
        ),
        ({"starved": 0.3}, "memory", "Processes wait for memory 30% of the time"),
        ({"throttled": 0.3, "busy": (0.95, 0.95)}, "quota", "holds the node back 30%"),
        ({"redis": 0.98}, "redis", "Redis uses 98% of a core"),
        (
            {"redis": 0.98, "bytes_s": 1e9},
            "payload",
            "Redis uses 98% of a core, most of it for records of 2,000 kB: send",
        ),
        ({"redis": 0.98, "bytes_s": 1e8}, "redis", "Redis uses 98% of a core: send smaller records"),
        ({"bytes_s": 1e9}, "none", "Nothing is at its limit"),
        ({"reader": 0.96}, "reader", "The reader is busy 96% of the time"),
        (WORKING, "workers", "busy 97% of the time: add nodes, or run `cluster-serving tune`"),
        (WORKING | {"fill": 0.03}, "callers", "with batches 3% full: send more at once"),
        (WORKING | {"machine": 1.0}, "workers", "busy 97%"),
        (WORKING | DECODING, "decode", "busy 97% of the time, 75% of it with decoding: send smaller images"),
        (DECODING, "none", "Nothing is at its limit"),
        (SLOW_REDIS, "redis", "The writer waits for Redis 80% of the time, 90 ms a batch"),
        (SLOW_REDIS | WITHOUT_WORK, "redis", "The writer waits for Redis"),
        (SLOW_REDIS | WORKING, "workers", "busy 97%"),
        ({"redis_wait": 0.8}, "none", "Nothing is at its limit"),  # writes are quick, and the model takes longer
        ({"redis_wait": 0.8, "stages": {}}, "none", "Nothing is at its limit"),
        ({"writer": 0.95}, "writer", "The writer is busy 95% of the time"),
        ({"busy": (0.97, 0.1)}, "one-worker", "One worker is busy 97% of the time and the others 10%"),
        ({"records_s": 0}, "stalled", "900 records wait"),
        ({"oldest_s": 0.01, "fill": 0.1}, "callers", "The callers send no more"),
        (WITHOUT_WORK | {"burst": 2.5}, "callers", "The callers send no more"),
        (WITHOUT_WORK | {"burst": 64}, "lock-step", "64 records come at a time, and none are there 40% of the time"),
        (
            WITHOUT_WORK | {"burst": 64, "machine": 1.0},
            "lock-step",
            "The cores of a machine are busy 100% of the time, which",
        ),
        ({"empty": 0.02, "burst": 64}, "none", "Nothing is at its limit"),
        ({"machine": 0.99}, "machine", "The cores of a machine are busy 99% of the time, and the workers 55%"),
        ({}, "none", "Nothing is at its limit: workers are busy 55%"),
    ],
)
def test_limit_is_named(change: dict[str, Any], code: str, words: str) -> None:
    found = limit(BUSY._replace(**change))

    assert found.code == code
    assert words in found.sentence


def node(load: Load | None, **figures: Any) -> Heartbeat:
    return described(load=load, figures=figures)


def test_picture_of_several_nodes_is_their_sum_and_their_slowest() -> None:
    load = Load(records_s=30, errors_s=1, p50_s=0.1, p99_s=0.2, rows=8, busy=(0.5, 0.7), reader=0.3)
    writer = ProcessLoad(name="writer-1", busy=0.2, blocked=0.5)
    reader = ProcessLoad(name="reader", busy=0.4, cpu=0.3)
    stages = {"model": 0.1, "write": 0.2}
    load = msgspec.structs.replace(load, stages=stages, processes=(reader, writer), empty=0.2, burst=4)
    one = node(load, backlog=3)
    load = Load(records_s=10, p50_s=0.3, p99_s=0.9, rows=4, busy=(0.9,), redis=0.4, stages={"model": 0.5})
    other = described(load=load, full="Redis is full", figures={"backlog": 4, "oldest_ms": 1500})

    picture = JobPicture.of([node(None), one, other])

    assert picture is not None
    assert (picture.records_s, picture.errors_s, picture.p50_s, picture.p99_s) == (40, 1, 0.3, 0.9)
    assert (picture.backlog, picture.oldest_s, picture.dead_letters) == (4, 1.5, 0)
    assert (picture.busy, picture.reader, picture.redis) == ((0.5, 0.7, 0.9), 0.4, 0.4)
    assert (picture.writer, picture.redis_wait) == (0.2, 0.5)
    assert (picture.empty, picture.burst) == (0.1, 2)
    assert picture.full == "Redis is full"
    assert picture.fill == pytest.approx(0.875)
    assert (picture.stages["model"], picture.stages["write"], picture.stages["fill"]) == pytest.approx((0.2, 0.15, 0))
    assert picture.mean_busy == pytest.approx(0.7)


def test_nodes_that_tell_no_load_have_no_picture() -> None:
    assert JobPicture.of([node(None)]) is None
    assert JobPicture.of([]) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "-"),
        (0.0004, "0.4ms"),
        (0.0123, "12ms"),
        (0.00996, "10ms"),
        (0.9996, "1.0s"),
        (1.26, "1.3s"),
        (42, "42s"),
        (99.7, "1.7min"),
        (600, "10min"),
        (7200, "2h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (0.36, "0.4"), (12.4, "12"), (3400, "3,400")])
def test_rates(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("share", "text"), [(0, ""), (0.01, "▎"), (0.5, "█" * 15), (1, "█" * 30), (1.3, "█" * 30)])
def test_a_share_is_a_bar(share: float, text: str) -> None:
    assert bar(share) == text


@pytest.mark.parametrize(
    ("typed", "pressed"),
    [
        ("", []),
        ("q", ["q"]),
        ("jj\r", ["j", "j", "\r"]),
        ("\x1b[B\x1b[A\x1b", ["\x1b[B", "\x1b[A", "\x1b"]),
        ("\x1bj\n", ["\x1b", "j", "\n"]),
    ],
)
def test_keys_that_come_together_are_keys_of_their_own(typed: str, pressed: list[str]) -> None:
    assert keys(typed) == pressed


@pytest.mark.parametrize(("values", "text"), [([], ""), ([0, 0], "▁▁"), ([0, 1, 2, 4, 8, 3], "▁▂▃▅█▄")])
def test_values_are_a_line_of_bars(values: list[float], text: str) -> None:
    assert sparkline(values) == text


def reports(**rates: float) -> list[dict[str, Any]]:
    """Reports of jobs, by their records a second."""
    loads = {job: BUSY._replace(records_s=rate)._asdict() for job, rate in rates.items()}
    return [{"job": job, "state": "ready", "load": load} for job, load in loads.items()]


def rates_of(view: View) -> list[str]:
    """Words of the line of `top` with the last minute of a job: name, bars and rate."""
    return next(line.split() for line in view.lines(200) if line.startswith("records/s"))


def test_the_chosen_job_is_shown_before_the_next_look() -> None:
    view = View(None)
    view.take(reports(alpha=111, beta=999), 0)
    for key in ("j", "\r"):
        view.press(key)

    assert rates_of(view)[-1] == "999"
    assert not any("alpha" in line for line in view.lines(200))


@pytest.mark.parametrize(("interval_s", "kept"), [(0.25, 60), (1, 60), (5, 12), (90, 1)])
def test_the_last_minute_is_a_minute(interval_s: float, kept: int) -> None:
    view = View("job")
    for look in range(1000):
        view.take(reports(job=look), look * interval_s)

    _, bars, rate = rates_of(view)
    assert abs(len(bars) - kept) <= 1
    assert rate == "999"
