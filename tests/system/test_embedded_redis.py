"""The embedded Redis of a node, as `start` runs it, when it ends under load."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import redis

from cluster_serving.client import ConnectionLost, InputQueue, OutputQueue
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.job import redis_server
from cluster_serving.node.job.redis_watch import watched
from support.broken_redis import damage, mend
from support.clients import in_background
from support.models import MODELS
from support.private_redis import free_port
from support.wait import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.measured]
JOB = "embedded"


class Site:
    """The commands of a user, in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        self._home = home
        self.directory = home / JOB / "redis"

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command."""
        command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", *words]
        environment = os.environ | {"CLUSTER_SERVING_HOME": str(self._home)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    def start(self, job: str) -> "subprocess.CompletedProcess[str]":
        """Start a job on the Redis of this site."""
        options = [f"--model-path={MODELS / 'affine.py'}", f"--redis-url=localhost:{self.port}", "--job-name", job]
        return self.command("start", *options, "--set", "modelParallelism=1", "--set", "threadPerModel=1")

    def status(self, job: str = JOB) -> Any:
        """Return the report of `status` about a job."""
        return json.loads(self.command("status", job, "--json").stdout)[0]

    def has_restarted(self, number: int) -> bool:
        """Return whether the node has started its Redis again so many times."""
        return watched(self.directory).restarts == number

    def is_watched_by(self, supervisor: int) -> bool:
        """Return whether a node waits for the end of its Redis: after attempts that failed, it looks half a minute later."""
        told = f"Pid:\t{redis_server.owned(self.directory)}\n"
        for descriptor in Path(f"/proc/{supervisor}/fdinfo").iterdir():
            with suppress(OSError):  # closed meanwhile
                if told in descriptor.read_text():
                    return True
        return False

    def kill_redis(self) -> None:
        """End the server as the kernel does when memory is short."""
        pid = redis_server.owned(self.directory)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def log(self) -> str:
        """Return the text that the node has printed."""
        return (self._home / JOB / "node.log").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("home"))
    done = site.start(JOB)
    assert done.returncode == 0, done.stdout + done.stderr
    yield site
    for job in ("beside", JOB):
        site.command("shutdown", job)


def enqueue(port: int, numbers: range) -> None:
    """Enqueue a record a number, and those again of which nobody knows whether Redis took them, as `ConnectionLost` says."""
    with InputQueue(port=port, name=JOB, patience_s=60) as queue:
        while numbers:
            try:
                queue.enqueue_many((f"{number}", {"x": np.full(4, number, np.float32)}) for number in numbers)
            except ConnectionLost as error:
                numbers = numbers[error.accepted :]
            else:
                return


def answer(output: OutputQueue, number: int) -> Any:
    """The answer, if it is there and Redis too."""
    try:
        found = output.query(str(number))
    except ConnectionLost:
        return None
    return None if isinstance(found, str) else found


def test_it_is_started_again_and_every_record_is_answered(site: Site) -> None:
    wait_until(partial(site.is_watched_by, site.status()["pid"]), "it is done with what other tests did to its Redis")
    before, since = watched(site.directory).restarts, len(site.log())
    for kill in range(3):
        numbers = range(kill * 3000, (kill + 1) * 3000)
        with redis.Redis(port=site.port) as client:
            client.config_set(
                "appendfsync", "always"
            )  # with everysec, a busy disk may hold back two seconds of the file
        with in_background(partial(enqueue, site.port, numbers)), OutputQueue(port=site.port, name=JOB) as output:
            wait_until(partial(answer, output, numbers[0]), "answers come")
            site.kill_redis()
            wait_until(partial(site.has_restarted, before + kill + 1), "it is started again")
            for number in numbers:
                _, total = wait_until(partial(answer, output, number), f"the answer of {number}")
                assert total == 4 * number

    wait_until(lambda: site.status()["state"] == "ready", "the node is ready")
    shown = site.status()
    assert (shown["redis_restarts"], shown["redis_pid"]) == (before + 3, redis_server.owned(site.directory))
    assert shown["redis_server"].startswith(("Redis ", "Valkey "))
    assert "problem" not in shown
    assert "server" in site.command("status", JOB).stdout
    assert site.log()[since:].count("the embedded Redis has ended, and is started again") == 3
    assert site.log()[since:].count("the embedded Redis is back") == 3


def status_with(site: Site, problem: str) -> Any:
    """The status, if it tells this problem: an attempt to start Redis may be under way, and is told instead."""
    status = site.status()
    return status if problem in status.get("problem", "") else None


def test_a_start_beside_it_repairs_what_the_node_cannot(site: Site) -> None:
    with redis.Redis(port=site.port) as client:
        client.config_set("appendfsync", "always")
        client.set("second", "broken here")
        client.set("third", "so that this is not the end")
    damage(site.directory, b"broken here")
    site.kill_redis()
    wait_until(lambda: "is damaged" in watched(site.directory).problem, "the node cannot start it")
    status = wait_until(
        partial(status_with, site, "the embedded Redis does not run: the append-only file"), "it is told"
    )
    refused = site.start("beside")
    mend(refused.stderr)

    repaired = site.start("beside")  # a job that would use the same Redis, and not another one in its own directory

    assert status["state"] == "unknown"
    assert refused.returncode == 6
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert redis_server.owned(site.directory) is not None
    wait_until(lambda: site.status()["state"] == "ready", "the node goes on")
    assert site.command("stop", "beside").returncode == 0


def test_a_start_of_the_same_job_repairs_it_and_is_content(site: Site) -> None:
    """Between the death of a Redis and the attempts of the nodes there may be half a minute."""
    supervisors = [pid for job in (JOB, "beside") if (pid := site.status(job)["pid"]) is not None]
    for pid in supervisors:
        os.kill(pid, signal.SIGSTOP)  # nobody else repairs it
    site.kill_redis()
    wait_until(lambda: redis_server.owned(site.directory) is None, "it has ended")

    repaired = site.start(JOB)
    again = site.start(JOB)
    for pid in supervisors:
        os.kill(pid, signal.SIGCONT)

    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert "has ended: starting it again, with its data." in repaired.stdout
    assert f"job {JOB} runs, and goes on with this Redis." in repaired.stdout
    assert again.returncode == 7
    wait_until(lambda: site.status()["state"] == "ready", "the node goes on")


def test_it_stays_where_another_job_uses_it(site: Site) -> None:
    assert site.start("beside").returncode == 0

    done = site.command("restart", JOB, f"--redis-url=localhost:{free_port()}")

    assert done.returncode == ExitCode.REDIS
    assert f"runs on port {site.port}, and job beside uses it: stop that first" in done.stderr
    assert f"job {JOB} goes on serving" in done.stderr
    assert site.command("stop", "beside").returncode == 0


def test_it_moves_to_another_port_with_its_data_and_the_frontend(tmp_path: Path) -> None:
    """Two servers on the same files would delete each other's data."""
    site, moved = Site(tmp_path / "home"), free_port()
    config = tmp_path / "config.yaml"
    config.write_text(
        f"modelPath: {MODELS / 'affine.py'}\njobName: {JOB}\nmodelParallelism: 1\nfrontend: {{drainTimeout: 60}}\n"
    )
    try:
        done = site.command("start", "-c", str(config), f"--redis-url=localhost:{site.port}", "--http", "--port=0")
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads((tmp_path / "home" / JOB / "frontend.json").read_text())["drain_s"] == 60
        first = redis_server.owned(site.directory)
        with redis.Redis(port=site.port) as client:
            client.set("kept", "yes")

        done = site.command("restart", JOB, f"--redis-url=localhost:{moved}")

        assert done.returncode == 0, done.stdout + done.stderr
        assert first is not None
        assert not psutil.pid_exists(first)
        with redis.Redis(port=moved) as client:
            assert client.get("kept") == b"yes"
        url = next(line for line in done.stdout.splitlines() if line.startswith("HTTP: ")).removeprefix("HTTP: ")
        assert InputQueue(url).predict('{"instances": [{"x": [1, 2, 3, 4]}]}')
    finally:
        done = site.command("shutdown", JOB)
    assert "Frontend of job" in done.stdout
    assert redis_server.owned(site.directory) is None
