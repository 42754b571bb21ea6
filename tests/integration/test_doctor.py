"""`doctor` with a real server with bad settings, a real process that was left behind, and from the command line."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml
from click.testing import CliRunner, Result

from cluster_serving.client.keys import DEFAULT_JOB
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.node.cli import main
from cluster_serving.node.doctor.processes import PROCESSES, node_processes
from cluster_serving.node.doctor.redis import REDIS
from cluster_serving.node.doctor.redis_facts import read_redis
from cluster_serving.node.job.directory import Job, NodeRecord
from support.failed_snapshot import failed_snapshot
from support.private_redis import PrivateRedis, free_port, private_redis
from support.wait import wait_until

MODEL = Path(__file__).parents[2] / "node" / "quickstart" / "model"
# With the command line of a worker, and a ring. The parent ends at once.
_ORPHAN = (
    "import os, sys, time\n"
    "fd = os.memfd_create('cluster-serving-ring'); os.ftruncate(fd, 8192); os.pwrite(fd, b'x' * 8192, 0)\n"
    "print(os.getpid(), flush=True); time.sleep(600)"
)


def _problems(settings: RedisSettings) -> set[str]:
    # The machine's own faults are no part of these tests, and a busy machine answers late.
    of_machine = {"CS-REDIS-LATENCY", "CS-REDIS-CLOCK", "CS-REDIS-OVERCOMMIT", "CS-REDIS-HUGE-PAGES"}
    return {each.code for each in REDIS.run(read_redis(settings), "Redis") if each.is_problem} - of_machine


def test_a_server_with_bad_settings(tmp_path: Path) -> None:
    # A busy machine may hold up any command for 10 ms.
    with private_redis(tmp_path, "--maxmemory", "1gb", "--slowlog-log-slower-than", "-1") as server:
        settings = RedisSettings("127.0.0.1", server.port)
        assert _problems(settings) == set()

        with server.client() as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
            client.config_set("appendonly", "no")
            client.config_set("slowlog-log-slower-than", 10_000)
            client.eval("local n = 0; for i = 1, 2e7 do n = n + i end; return n", 0)  # takes longer than 10 ms
            found = _problems(settings)
            client.config_set("maxmemory", "0")

        assert found == {"CS-REDIS-EVICTS", "CS-REDIS-NO-AOF", "CS-REDIS-SLOW"}
        assert "CS-REDIS-NO-LIMIT" in _problems(settings)


def test_a_user_who_may_ask_nothing(tmp_path: Path) -> None:
    with private_redis(tmp_path) as server:
        with server.client() as client:
            client.acl_setuser("few", enabled=True, passwords=["+x"], commands=["+ping", "+client"])

        facts = read_redis(RedisSettings("127.0.0.1", server.port, username="few", password="x"))  # noqa: S106 - of a test

    statuses = {each.code: each.status for each in REDIS.run(facts, "Redis") if each.code != "CS-REDIS-LATENCY"}
    assert statuses.pop("CS-REDIS-OPEN") == "ok"
    assert set(statuses.values()) == {"skip"}


def test_a_snapshot_that_fails(own_redis: PrivateRedis) -> None:
    """Redis refuses PING too then, unless told to go on."""
    settings = RedisSettings("127.0.0.1", own_redis.port)

    def status() -> str:
        return next(each.status for each in REDIS.run(read_redis(settings), "Redis") if each.code == "CS-REDIS-DISK")

    with failed_snapshot(own_redis) as client:
        assert status() == "fail"
        client.config_set("stop-writes-on-bgsave-error", "no")
        assert status() == "warn"


def test_a_process_that_was_left_behind() -> None:
    worker = [sys.executable, "-c", _ORPHAN, "-m", "cluster_serving.node.supervisor.child", "worker"]
    shell = subprocess.run(
        ["/bin/sh", "-c", '"$@" >"$0" 2>&1 & echo $!', "/dev/null", *worker], capture_output=True, text=True, check=True
    )
    pid = int(shell.stdout)
    try:
        wait_until(lambda: any(each.pid == pid and each.rings for each in node_processes()), "the ring is open")
        found = {each.code: each for each in PROCESSES.run(node_processes(), "this machine")}
    finally:
        os.kill(pid, signal.SIGKILL)

    assert found["CS-LEAK-PROCESS"].is_problem
    assert pid in found["CS-LEAK-PROCESS"].verdict.evidence["pids"]
    assert str(pid) in found["CS-LEAK-PROCESS"].verdict.command
    wait_until(lambda: _has_ended(pid), "it has ended")


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    settings = {"modelPath": str(MODEL), "redisUrl": f"127.0.0.2:{free_port()}", "redisPassword": "geheim"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    return tmp_path


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


def test_one_document_and_nothing_else(home: Path) -> None:
    result = _run("--json")

    document = json.loads(result.stdout)
    found = {each["code"]: each["status"] for each in document["checks"]}
    assert result.exit_code == 1
    assert not document["ok"]
    assert found["CS-REDIS-AWAY"] == "fail"
    assert found["CS-REDIS-EVICTS"] == "skip"
    assert found["CS-MODEL-NONE"] == "ok"
    assert document["summary"]["fail"] >= 1
    assert "geheim" not in result.stdout
    assert not (home / "state").exists(), "it has changed nothing"


def test_a_mute_from_the_command_line(home: Path) -> None:
    assert "CS-REDIS-AWAY" in _run("--only-problems").stdout
    at_once = _run("mute", "cs-redis-away", "--for", "0s")
    assert (at_once.exit_code, "CS-REDIS-AWAY" in _run("--only-problems").stdout) == (1, True)
    assert "over at once" in at_once.stderr
    assert _run("mute", "cs-redis-away", "--for", "7d").exit_code == 0

    assert "CS-REDIS-AWAY" not in _run("--only-problems").stdout
    assert _run("unmute", "CS-REDIS-AWAY").exit_code == 0
    assert "CS-REDIS-AWAY" in _run().stdout
    assert (_run("mute", "CS-REDIS-EVICT").exit_code, _run("mute", "CS-MODEL-NONE").exit_code) == (2, 1)


def test_a_config_that_is_wrong_is_told_beside_a_job_that_was_started(home: Path) -> None:
    good = home / "good.yaml"
    (home / "config.yaml").rename(good)
    (home / "config.yaml").write_text("batchSizes: 4\n")
    started = Job.of(DEFAULT_JOB)
    started.record(NodeRecord(DEFAULT_JOB, "here", 1, str(good), [], "", None, 4, 1))

    result = _run("--json")

    found = {each["code"]: each for each in json.loads(result.stdout)["checks"]}
    assert result.exit_code == 1
    assert found["CS-CONFIG-WRONG"]["status"] == "fail"
    assert "batchSizes" in found["CS-CONFIG-WRONG"]["message"]
    assert found["CS-JOB-WORKERS"]["status"] == "skip"


@pytest.mark.usefixtures("home")
def test_it_could_not_look() -> None:
    result = _run("nope", "--json")

    assert result.exit_code == 2
    assert "No job nope" in json.loads(result.stdout)["error"]
    assert _run("nope").stdout == ""
