"""Commands with a real Redis: they prepare it, look into it, leave it alone or stop it."""

import json
import os
import subprocess
import sys
import types
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner, Result

from cluster_serving.client import keys
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.frontend.server.redis_kind import RedisIsCluster
from cluster_serving.frontend.server.redis_kind import check_redis as refuse_cluster
from cluster_serving.node.cli import main
from cluster_serving.node.config.loading import Config
from cluster_serving.node.job import redis_server
from cluster_serving.node.job.directory import Job, NodeRecord
from cluster_serving.node.job.redis_errors import RedisAway, RedisUnavailable
from cluster_serving.node.job.redis_program import find_server
from cluster_serving.node.lifecycle import background
from cluster_serving.node.lifecycle.prepare import check_redis, prepare
from support.heartbeats import described
from support.private_redis import PrivateRedis, free_port, private_redis
from support.wait import wait_until

MODEL = Path(__file__).parents[2] / "node" / "quickstart" / "model"


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patient: None) -> Generator[int]:
    """Job `a` has started a Redis on this port; job `b` uses it."""
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("REDIS_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    port = free_port()
    said: list[str] = []
    url = f"localhost:{port}"
    try:
        for name in ("a", "b"):
            job = Job.of(name)
            config = Config(model_path=str(MODEL), job_name=name, redis_url=url)
            prepare(config, job, said.append)
            job.record(
                NodeRecord(name, job.node_id(), 1, None, [f"--redis-url={url}"], f"redis://{url}/0", port, 10, 1)
            )
        assert said == [f"Starting Redis on port {port}: {find_server(os.environ).described()}."]
        yield port
    finally:
        redis_server.stop(Job.of("a").redis_directory)


def test_shutdown_stops_redis_only_when_nobody_uses_it(port: int) -> None:
    with Job.of("b").acquire():
        kept = run("shutdown", "a").output
    hint = run("shutdown", "b")
    of_no_job = run("shutdown")
    assert redis_server.listener(port) is redis_server.Listener.REDIS
    stopped = run("shutdown", "a").output

    assert "Redis stays: job b uses it." in kept
    for result in (hint, of_no_job):
        assert "Redis was started by job a: stop it with cluster-serving shutdown a" in result.output
        assert "is shutdown" not in result.output
        assert result.exit_code == ExitCode.NOT_RUNNING
    assert "Redis stopped; its data stays on disk." in stopped
    assert "Cluster Serving is shutdown." not in kept
    assert stopped.splitlines()[-1] == "Cluster Serving is shutdown."
    assert redis_server.listener(port) is redis_server.Listener.NOBODY


def test_shutdown_of_a_job_leaves_the_redis_of_another_and_says_so(port: int) -> None:
    program = """
import signal
from cluster_serving.node.job.directory import Job
with Job.of("b").acquire():
    print(flush=True)
    signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as node:
        assert node.stdout is not None
        node.stdout.readline()
        result = run("shutdown", "b")

    assert result.exit_code == ExitCode.OK
    assert result.stdout.splitlines()[-2:] == [
        "Cluster Serving job b stopped.",
        "Redis was started by job a: stop it with cluster-serving shutdown a",
    ]
    assert redis_server.listener(port) is redis_server.Listener.REDIS


def test_status_tells_queue_and_heartbeat(port: int) -> None:
    job = Job.of("a")
    beat = described(job="a", workers_alive=1, workers=2, figures={"answered": 5, "failed": 1})
    with RedisSettings(port=port).client() as client, job.acquire():
        client.xgroup_create("a", keys.GROUP, "0", mkstream=True)
        for _ in range(3):
            client.xadd("a", {"uri": "x"})
        client.xreadgroup(keys.GROUP, "n", {"a": ">"}, count=2)
        starting = run("status", "a", "--json")
        client.set(keys.node_key("a", job.node_id()), beat.encode())
        ready = run("status", "a", "--json")
        table = run("status").stdout
        facts = run("status", "a").stdout

    assert (json.loads(starting.stdout)[0]["state"], starting.exit_code) == ("starting", 1)
    (shown,) = json.loads(ready.stdout)
    assert ready.exit_code == 0
    assert (shown["state"], shown["backlog"], shown["pending"]) == ("ready", 3, 2)
    assert (shown["workers"], shown["answered"], shown["failed"]) == ("1 of 2", 5, 1)
    headings, row = (line.split() for line in table.splitlines())
    assert dict(zip(headings, row, strict=True))["backlog"] == "3"
    assert ["backlog", "3"] in [line.split() for line in facts.splitlines()]


def test_status_of_a_stopped_job_with_records_waiting(port: int) -> None:
    with RedisSettings(port=port).client() as client:
        client.xadd("a", {"uri": "x"})

    waiting = run("status", "--json")

    assert [(one["job"], one["state"], one["backlog"]) for one in json.loads(waiting.stdout)] == [
        ("a", "not running", 1)
    ]
    assert waiting.exit_code == 3


def test_heartbeat_that_cannot_be_read(port: int) -> None:
    job = Job.of("a")
    with RedisSettings(port=port).client() as client, job.acquire():
        client.set(keys.node_key("a", job.node_id()), "no JSON")
        result = run("status", "a", "--json")

    (shown,) = json.loads(result.stdout)
    assert (shown["state"], result.exit_code) == ("unknown", 1)
    assert f"the heartbeat in Redis at redis://localhost:{port}/0 cannot be read" in shown["problem"]


def test_records_of_a_redis_that_another_one_replaces(port: int) -> None:
    said: list[str] = []
    job = Job.of("c")
    (job.redis_directory / "appendonlydir").mkdir(parents=True)
    config = Config(model_path=str(MODEL), job_name="c", redis_url=f"localhost:{port}")

    assert not prepare(config, job, said.append)

    (line,) = said
    assert f"the records kept in {job.redis_directory} are not visible to this start" in line


def failing_start(free_port: int, *words: str) -> Result:
    return run("start", "--model-path", str(MODEL), "--job-name", "c", "--redis-url", f"localhost:{free_port}", *words)


def test_failed_start_stops_the_redis_that_it_started(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    del port
    other = free_port()
    password = ["--set", "redisPassword=geheim"]
    monkeypatch.setattr(background, "_command", lambda _options: [sys.executable, "-S", "-c", "raise SystemExit(5)"])  # pyright: ignore[reportUnknownLambdaType]

    node_failed = failing_start(other, *password)
    nobody_after_node = redis_server.listener(other)
    login_failed = failing_start(other, *password, "--set", "redisUsername=nobody")

    assert node_failed.exit_code == 5
    assert f"Starting Redis on port {other}: " in node_failed.stdout
    assert login_failed.exit_code == 6
    assert nobody_after_node is redis_server.listener(other) is redis_server.Listener.NOBODY
    assert redis_server.owned(Job.of("c").redis_directory) is None


def test_failed_foreground_start_stops_the_redis_that_it_started(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    del port
    other = free_port()
    node = types.ModuleType("node")
    monkeypatch.setattr(node, "serve", lambda *_: 5, raising=False)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setitem(sys.modules, "cluster_serving.node.lifecycle.node", node)
    try:
        result = failing_start(other, "--foreground")
    finally:
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()

    assert result.exit_code == 5
    assert redis_server.listener(other) is redis_server.Listener.NOBODY


def test_status_names_the_password_that_it_lacks(port: int) -> None:
    with RedisSettings(port=port).client() as client:
        client.config_set("requirepass", "geheim")
    with Job.of("a").acquire():
        result = run("status", "a", "--json")

    (shown,) = json.loads(result.stdout)
    assert (shown["state"], result.exit_code) == ("unknown", 1)
    assert "required. Set redisPassword or CLUSTER_SERVING_REDIS_PASSWORD" in shown["problem"]


def test_dead_nodes_last_words_do_not_count(port: int) -> None:
    """The heartbeat outlives a killed node by some seconds."""
    with RedisSettings(port=port).client() as client:
        client.set(keys.node_key("a", Job.of("a").node_id()), '{"state": "ready"}')

    result = run("status", "a")

    assert "not running" in result.stdout
    assert result.exit_code == 3


def test_redis_that_does_not_let_us_in(port: int) -> None:
    secret = "geheim"  # noqa: S105  # of this test's own server
    with RedisSettings(port=port).client() as client:
        client.config_set("requirepass", secret)

    with pytest.raises(RedisUnavailable, match="Authentication required; check redisUsername and redisPassword"):
        check_redis(RedisSettings(port=port))
    with pytest.raises(RedisUnavailable, match="; check redisUsername and redisPassword"):
        check_redis(RedisSettings(port=port, password="wrong"))  # noqa: S106  # of this test's own server
    check_redis(RedisSettings(port=port, password=secret))
    assert redis_server.listener(port) is redis_server.Listener.REDIS


@pytest.mark.parametrize(
    ("policy", "refused"),
    [("noeviction", False), ("volatile-ttl", False), ("allkeys-lru", True), ("allkeys-lfu", True)],
)
def test_a_redis_that_throws_records_away_is_refused(own_redis: PrivateRedis, policy: str, refused: bool) -> None:
    settings = RedisSettings(port=own_redis.port)
    with own_redis.client() as client:
        client.config_set("maxmemory-policy", policy)
        check_redis(settings)  # without a limit nothing is thrown away
        client.config_set("maxmemory", "1gb")
    if not refused:
        check_redis(settings)
        return

    with pytest.raises(RedisUnavailable) as caught:
        check_redis(settings)
    assert str(caught.value) == (
        f"Redis at redis://localhost:{own_redis.port}/0 cannot be used: it throws away accepted records when its memory is full "
        f"(maxmemory-policy {policy}): set maxmemory-policy noeviction, or allowEviction in config.yaml"
    )
    check_redis(settings, allow_eviction=True)


@pytest.mark.skipif(find_server(os.environ).version < (7,), reason="--cluster-port came with Redis 7.0")
def test_a_redis_cluster_is_refused(tmp_path: Path) -> None:
    """By the node and by the frontend."""
    options = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with private_redis(tmp_path, *options) as server:
        settings = RedisSettings(port=server.port)
        with pytest.raises(
            RedisUnavailable, match=r"is a Redis Cluster, and the keys of a job need one server: set redisUrl to"
        ):
            check_redis(settings)
        with pytest.raises(
            RedisIsCluster, match=r"is a Redis Cluster, and the keys of a job need one server: set redisUrl to"
        ):
            refuse_cluster(settings)


def test_a_frontend_starts_before_its_redis(own_redis: PrivateRedis) -> None:
    refuse_cluster(RedisSettings(port=own_redis.port))
    refuse_cluster(RedisSettings(port=own_redis.port, username="nobody", password="wrong"))  # noqa: S106
    refuse_cluster(RedisSettings(port=free_port()))


def test_redis_without_tls(port: int) -> None:
    with pytest.raises(RedisUnavailable, match=f"Redis at rediss://localhost:{port}/0 cannot be used"):
        check_redis(RedisSettings(port=port, tls=True, timeout_s=1))


def test_a_start_waits_for_a_redis_that_is_away(
    own_redis: PrivateRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "home"))
    url = f"unix://{own_redis.socket_path}"
    config = Config(model_path=str(MODEL), job_name="d", redis_url=url)
    said: list[str] = []
    own_redis.stop()

    with pytest.raises(RedisAway, match="cannot be used"):
        prepare(config, Job.of("d"), said.append)
    assert said == []
    with ThreadPoolExecutor(1) as pool:
        started_redis = pool.submit(prepare, config, Job.of("d"), said.append, 60)
        wait_until(lambda: said, "it says that it waits")
        own_redis.start()

        assert not started_redis.result(60)
    (line,) = said
    assert line.startswith(f"Redis at {url}")
    assert line.endswith("; trying again for 60 s")
