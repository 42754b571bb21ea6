"""The autoscaler with a real Redis and the real scaler: what it reads, sets, tells, and leaves alone."""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import structlog
from prometheus_client import generate_latest

from cluster_serving.client import keys
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.load import Load
from cluster_serving.frontend.metrics.timers import Count, Timers
from cluster_serving.frontend.metrics.use_reports import UseReporter
from cluster_serving.node.job.redis_program import find_server
from cluster_serving.swarm.autoscale.decision import Decision
from cluster_serving.swarm.autoscale.facts import Doubtful, read_facts
from cluster_serving.swarm.autoscale.frontends import Use, read_use
from cluster_serving.swarm.autoscale.loop import Autoscaler, Metrics, ScalerClient
from cluster_serving.swarm.autoscale.scaler import Scaler, Tasks, server_of
from cluster_serving.swarm.autoscale.settings import Autoscale
from support.heartbeats import described
from support.http_server import answering
from support.private_redis import PrivateRedis, free_port
from support.swarm.engine import Engine, running
from support.wait import wait_until

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)
RUNS = Load(records_s=80, rows=8, busy=(0.5, 0.5), reader=0.1)  # runs of 0.1 s, so that a node does 160/s


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine("stack_node", 1)
    with running(engine, tmp_path / "docker.sock"):
        yield engine


@contextmanager
def served(scalers: Mapping[str, Scaler]) -> Generator[str]:
    """Scalers over HTTP for a block; their address."""
    with server_of(scalers, ("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def scaler(engine: Engine, tmp_path: Path) -> Iterator[ScalerClient]:
    """The scaler over HTTP, with at most 5 nodes."""
    with served({"/nodes": Scaler(tmp_path / "docker.sock", "stack_node", 0, 5)}) as address:
        yield ScalerClient(address)


@pytest.fixture
def link(redis_server: PrivateRedis) -> Iterator[Link]:
    link = Link(RedisSettings(port=redis_server.port))
    yield link
    link.close()


class Job:
    """A job without nodes of its own: the test writes records and heartbeats."""

    def __init__(self, server: PrivateRedis, name: str) -> None:
        self.name = name
        self._client: Any = server.client()

    def enqueue(self, count: int) -> None:
        """Add records."""
        with self._client.pipeline(transaction=False) as pipeline:
            for _ in range(count):
                pipeline.xadd(self.name, {"uri": "u"})
            pipeline.execute()

    def answer_all(self) -> None:
        """Take all records away."""
        for entry, _ in self._client.xrange(self.name):
            self._client.xdel(self.name, entry)

    def decisions(self) -> list[str]:
        """The decisions that Redis keeps."""
        return [fields[b"words"].decode() for _, fields in self._client.xrange(keys.decisions_key(self.name))]

    def beat(self, node: str, **fields: Any) -> None:
        """Write a heartbeat that stays."""
        beat = described(job=self.name, node=node, model_hash="m", workers=2, load=RUNS, **fields)
        self.write(node, beat.encode())

    def report(self, frontend: str, cpu: float, requests: int) -> None:
        """Write the report of a frontend's only process."""
        use = {"frontend": frontend, "process": 0, "cpu": cpu, "open": requests}
        self._client.xadd(keys.frontends_key(self.name), use)

    def write(self, node: str, beat: bytes) -> None:
        """Write bytes in the place of a heartbeat."""
        key = keys.node_key(self.name, node)
        self._client.set(key, beat)
        self._client.zadd(keys.NODES, {key: 0})


@pytest.fixture
def job(redis_server: PrivateRedis, request: pytest.FixtureRequest) -> Job:
    if find_server(os.environ).version < (7,):
        pytest.skip("Redis before 7 does not count arrivals")
    return Job(redis_server, request.node.name[:60])


# Facts


def test_arrivals_are_counted_also_when_they_are_answered(job: Job, link: Link) -> None:
    before = read_facts(link, job.name, 1)
    job.enqueue(5)
    job.answer_all()
    job.enqueue(2)
    after = read_facts(link, job.name, 1)

    assert (before.arrived, before.backlog, before.ready) == (0, 0, [])
    assert (after.arrived, after.backlog) == (7, 2)


def test_nodes_that_take_no_records_are_no_ready_nodes(job: Job, link: Link) -> None:
    job.beat("one")
    job.beat("two", state="draining")
    job.write("three", b"of another release")
    facts = read_facts(link, job.name, 1)

    assert [node.records_s for node in facts.ready] == [80]
    assert facts.model == "m"
    assert facts.ready[0].run_s == pytest.approx(0.1)


def test_heartbeats_that_nobody_can_read_are_doubtful(job: Job, link: Link) -> None:
    job.write("one", b"of another release")

    with pytest.raises(Doubtful, match="deploy one release everywhere"):
        read_facts(link, job.name, 1)


def test_a_redis_that_is_away_is_doubtful() -> None:
    link = Link(RedisSettings(port=free_port()))

    with pytest.raises(Doubtful, match="Connection refused"):
        read_facts(link, "job", 1)


# Scaler


def test_the_scaler_changes_the_number_and_nothing_else(engine: Engine, scaler: ScalerClient) -> None:
    before = json.dumps(engine.service["Spec"]["TaskTemplate"])

    assert scaler.read() == Tasks(1, updating=False)
    assert scaler.set(3) == Tasks(3, updating=False)
    assert scaler.read().replicas == 3
    assert json.dumps(engine.service["Spec"]["TaskTemplate"]) == before


@pytest.mark.parametrize("number", [-1, 6])
def test_the_scaler_sets_no_number_beyond_its_bounds(engine: Engine, scaler: ScalerClient, number: int) -> None:
    with pytest.raises(Doubtful, match="is not from 0 to 5"):
        scaler.set(number)

    assert engine.updates == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"Mode": {"Global": {}}}, "one task on every machine"),
        ({"Name": "other"}, "service stack_node not found"),
    ],
)
def test_a_service_without_a_number_is_told(engine: Engine, scaler: ScalerClient, change: Any, words: str) -> None:
    engine.service["Spec"] |= change

    with pytest.raises(Doubtful, match=words):
        scaler.read()


def test_a_change_by_somebody_else_is_not_overwritten(engine: Engine, scaler: ScalerClient) -> None:
    engine.meanwhile = True

    with pytest.raises(Doubtful, match="update out of sequence"):
        scaler.set(2)
    assert engine.updates == []


@pytest.mark.parametrize("state", ["updating", "paused", "rollback_started", "rollback_paused"])
def test_an_update_that_has_begun_since_the_look_is_left_alone(
    engine: Engine, scaler: ScalerClient, state: str
) -> None:
    assert not scaler.read().updating
    engine.service["UpdateStatus"] = {"State": state}

    with pytest.raises(Doubtful, match="the tasks of stack_node are being replaced by new ones"):
        scaler.set(2)
    assert engine.updates == []


def test_an_engine_and_a_scaler_that_are_away_are_told(tmp_path: Path) -> None:
    with served({"/nodes": Scaler(tmp_path / "none.sock", "stack_node", 0, 5)}) as address:
        client = ScalerClient(address)
        with pytest.raises(Doubtful, match=r"Docker engine at .*none.sock does not answer: .*No such file"):
            client.read()

    with pytest.raises(Doubtful, match=r"scaler at http://127.0.0.1:.* does not answer"):
        client.read()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"hello\n", "does not answer: hello"),
        (b'HTTP/1.0 200 OK\r\nContent-Length: 33\r\n\r\n{"repl', "does not answer: IncompleteRead"),
        (b'HTTP/1.0 502 Bad\r\nContent-Length: 33\r\n\r\n{"err', "the scaler answers 502"),
    ],
)
def test_a_scaler_that_is_killed_while_it_answers_is_in_doubt(answer: bytes, words: str) -> None:
    with answering([answer, b""]) as address, pytest.raises(Doubtful, match=words):
        ScalerClient(address).read()


@pytest.mark.parametrize("content", [b"", b"{}", b'{"replicas": "3"}', b'{"replicas": 3.5}', b"[" * 2000])
def test_nonsense_is_refused(engine: Engine, scaler: ScalerClient, content: bytes) -> None:
    connection = http.client.HTTPConnection(urlsplit(scaler.url).netloc)
    connection.request("PUT", "/nodes", content)

    assert connection.getresponse().status == 400
    assert engine.updates == []
    connection.close()


# Loop


class Watched:
    """An autoscaler whose clock the test moves, and its log."""

    def __init__(self, job: Job, link: Link, scaler: ScalerClient, **settings: Any) -> None:
        self.metrics, address = Metrics(), scaler.url.removesuffix("/nodes")
        self._autoscaler = Autoscaler(job.name, link, address, Autoscale(max=5, **settings), self.metrics)
        self._now_s = 0.0

    def look(self, seconds: float) -> tuple[Decision, list[str]]:
        """Look every two seconds for a while; the last decision, and what was logged."""
        until_s = self._now_s + seconds
        decisions: list[Decision] = []
        with structlog.testing.capture_logs() as lines:
            while self._now_s < until_s:
                self._now_s += 2
                decisions += self._autoscaler.look(self._now_s, NOON)[:1]
        return decisions[-1], [line["event"] for line in lines]


def test_a_load_is_followed_and_each_decision_is_a_line(
    job: Job, link: Link, scaler: ScalerClient, engine: Engine
) -> None:
    watched = Watched(job, link, scaler, scale_down_window_s=30)
    job.beat("one")
    _, first = watched.look(10)
    job.enqueue(4000)
    up, lines = watched.look(4)
    job.answer_all()
    watched.look(200)

    assert first == ["left alone: the load is not observed for 10 s yet"]
    assert engine.updates[0] > 1
    assert up.wanted == engine.updates[0] == 5
    assert lines[-1].startswith("5 nodes from 1: max, ")
    assert "records/s arrive, 4,000 wait or run, a node does 160/s" in lines[-1]
    assert engine.updates[-4:] == [4, 3, 2, 1]
    told = job.decisions()
    assert len(told) == len(engine.updates)
    assert told[0] == lines[-1]
    assert told[-1].startswith("1 node from 2, enough for 30 s: ")


def test_metrics_have_wanted_and_actual_and_the_reason(job: Job, link: Link, scaler: ScalerClient) -> None:
    watched = Watched(job, link, scaler, min=3)
    job.beat("one")
    watched.look(12)
    told = generate_latest(watched.metrics.registry).decode()

    label = f'job_name="{job.name}"'
    assert f"cluster_serving_autoscaler_wanted_nodes{{{label}}} 3.0" in told
    assert f"cluster_serving_autoscaler_nodes{{{label}}} 1.0" in told
    assert f"cluster_serving_autoscaler_ready_nodes{{{label}}} 1.0" in told
    assert f'cluster_serving_autoscaler_reason{{cluster_serving_autoscaler_reason="min",{label}}} 1.0' in told


def test_a_dry_run_changes_nothing(job: Job, link: Link, scaler: ScalerClient, engine: Engine) -> None:
    _, lines = Watched(job, link, scaler, min=3, dry_run=True).look(20)

    assert engine.updates == []
    assert lines[-1].startswith("dry run: 3 nodes from 1: min, 0 would do")


def test_nodes_that_are_being_replaced_are_left_alone(
    job: Job, link: Link, scaler: ScalerClient, engine: Engine
) -> None:
    engine.service["UpdateStatus"] = {"State": "updating"}
    watched = Watched(job, link, scaler, min=3)
    during, lines = watched.look(30)
    engine.service["UpdateStatus"] = {"State": "completed"}
    after, _ = watched.look(12)

    assert (during.wanted, lines) == (None, ["left alone: the nodes are being replaced by new ones"])
    assert after.wanted == 3
    assert engine.updates == [3]


def test_nothing_is_done_while_redis_is_away(job: Job, scaler: ScalerClient, engine: Engine) -> None:
    away = Link(RedisSettings(port=free_port()))
    watched = Watched(job, away, scaler, scale_down_window_s=10)
    engine.service["Spec"]["Mode"]["Replicated"]["Replicas"] = 4
    decision, lines = watched.look(60)

    assert decision.wanted is None
    assert len(lines) == 1
    assert lines[0].startswith("left alone: ")
    assert engine.updates == []


# Frontends


@pytest.fixture
def frontends(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine("stack_frontend", 1)
    with running(engine, tmp_path / "frontends.sock"):
        yield engine


@pytest.fixture
def both(engine: Engine, frontends: Engine, tmp_path: Path) -> Iterator[str]:
    """The address of a scaler of nodes and of frontends, of these from 1 to 4."""
    scalers = {
        "/nodes": Scaler(tmp_path / "docker.sock", "stack_node", 0, 5),
        "/frontends": Scaler(tmp_path / "frontends.sock", "stack_frontend", 1, 4),
    }
    with served(scalers) as address:
        yield address


def test_frontends_follow_their_use_beside_nodes(
    job: Job, link: Link, both: str, frontends: Engine, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster_serving.swarm.autoscale.frontends._FRESH_MS", 600_000)  # the looks may take long
    settings = Autoscale.model_validate({"max": 5, "frontendsMax": 4, "scaleDownWindow": 30})
    metrics = Metrics()
    autoscaler = Autoscaler(job.name, link, both, settings, metrics)
    job.beat("one")

    def look(first_s: int, last_s: int) -> Decision:
        return [autoscaler.look(second, NOON)[1] for second in range(first_s, last_s, 2)][-1]

    unknown = look(0, 2)
    job.report("a", 0.2, 0)
    quiet = look(2, 14)
    job.report("a", 0.95, 0)
    risen = look(14, 26)
    job.report("a", 0.05, 0)
    fallen = look(26, 70)

    assert unknown.words == "left alone: no frontend reports its use"
    assert quiet.words == "1 frontend: 0.20 cores are used, 0 requests are open"
    assert risen.words.startswith("2 frontends from 1: 0.95 cores are used, ")
    assert fallen.words.startswith("1 frontend: 0.05 cores are used, ")
    assert frontends.updates == [2, 1]
    assert engine.updates == []
    assert job.decisions()[0] == risen.words
    told = generate_latest(metrics.registry).decode()
    assert f'cluster_serving_autoscaler_wanted_frontends{{job_name="{job.name}"}} 1.0' in told
    assert f'cluster_serving_autoscaler_ready_frontends{{job_name="{job.name}"}} 1.0' in told


def test_the_last_report_of_each_process_counts(job: Job, link: Link) -> None:
    job.report("a", 0.9, 9)
    job.report("a", 0.25, 2)
    job.report("b", 0.5, 1)

    assert read_use(link, job.name) == Use(frontends=2, processes=2, cores=0.75, requests=3)


def test_a_report_of_another_release_is_left_out(job: Job, link: Link) -> None:
    link.call("XADD", keys.frontends_key(job.name), "*", "frontend", "a", "share", "0.5")
    with pytest.raises(Doubtful, match="the reports of the frontends cannot be read"):
        read_use(link, job.name)
    job.report("b", 0.5, 1)

    assert read_use(link, job.name) == Use(frontends=1, processes=1, cores=0.5, requests=1)


def test_a_process_reports_its_use(job: Job, link: Link, redis_server: PrivateRedis) -> None:
    timers = Timers(1).of(0)
    timers.count(Count.IN_FLIGHT, 3)

    async def scenario() -> None:
        sending = AsyncLink(RedisSettings(port=redis_server.port))
        reporter = UseReporter(sending, job.name, 0, timers)
        sum(number * number for number in range(200_000))
        await reporter.report()
        await sending.close()

    asyncio.run(scenario())

    use = read_use(link, job.name)
    assert (use.frontends, use.processes, use.requests) == (1, 1, 3)
    assert 0 < use.cores <= 1.5


# Commands


def answer_of(port: int) -> str:
    """Return the answer to the health check of the image, of the autoscaler the metrics; empty: no good answer yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", "/livez")
        answer = connection.getresponse()
        return answer.read().decode() if answer.status == 200 else ""
    except OSError:
        return ""
    finally:
        connection.close()


def test_both_commands_run_until_sigterm(job: Job, redis_server: PrivateRedis, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"jobName: {job.name}\nredisUrl: localhost:{redis_server.port}\n")
    ports = {"scaler": free_port(), "autoscale": free_port()}
    more = {
        "scaler": ("--stack", "stack", "--socket", str(tmp_path / "docker.sock")),
        "autoscale": ("--scaler", f"http://127.0.0.1:{ports['scaler']}"),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "cluster_serving.node.cli", "swarm", name, "--port", str(port), *more[name]],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, port in ports.items()
    ]
    told = f'cluster_serving_autoscaler_nodes{{job_name="{job.name}"}} 1.0'
    try:
        wait_until(lambda: told in answer_of(ports["autoscale"]), "the number of nodes is known", 60)
        well = answer_of(ports["scaler"])
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        printed = [process.communicate(timeout=60)[0] for process in processes]

    assert well == "{}"
    assert [process.returncode for process in processes] == [0, 0]
    assert "left alone: the load is not observed for 10 s yet" in printed[1]
