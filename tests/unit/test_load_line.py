"""The periodic line of the log, while there is load and not more often than asked for, and the scalars for TensorBoard."""

import structlog

from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.client.wire.load import Load
from cluster_serving.node.supervisor.load_line import LoadLine
from cluster_serving.node.supervisor.tensorboard import Scalars
from support.heartbeats import described

NO_SCALARS = Scalars("", "")


def beat(answered: int) -> Heartbeat:
    return described(
        load=Load(records_s=12.34, p50_s=0.0021, p99_s=0.05, rows=4), figures={"answered": answered, "failed": 0}
    )


def test_a_node_with_load_tells_it_and_an_idle_one_is_silent() -> None:
    line = LoadLine(1e-9, NO_SCALARS)
    with structlog.testing.capture_logs() as told:
        line.tell(beat(0), 0)
        line.tell(beat(5), 2)
        line.tell(beat(5), 0)
        line.tell(beat(5), 2)  # records that wait for an answer are load too

    expected = {"records_s": 12.3, "errors_s": 0.0, "p50_ms": 2.1, "p99_ms": 50.0, "backlog": 2, "fill": 0.5}
    assert told == [{"event": "load", "log_level": "info", **expected}] * 2


def test_lines_keep_their_interval_and_can_be_off() -> None:
    with structlog.testing.capture_logs() as told:
        LoadLine(3600, NO_SCALARS).tell(beat(5), 2)
        LoadLine(0, NO_SCALARS).tell(beat(5), 2)

    assert not told
