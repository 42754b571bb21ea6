"""The users of node/job/users.acl: a node, a client and an operator do all they do, and nothing else."""

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from bench.receiver import receiver

from cluster_serving.client import InputQueue, OutputQueue, QueueFull, RecordFailed, keys
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.protocol.absence import Inquiry
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.link import Link
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.dashboard import dead_letters
from cluster_serving.frontend.dashboard.history import Recorder, points_since
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.metrics.use_reports import UseReporter
from cluster_serving.frontend.models.models import Models
from cluster_serving.frontend.server.redis_kind import check_redis
from cluster_serving.node import job as job_package
from cluster_serving.node.job.redis_program import find_server
from support.models import MODELS, affine
from support.private_redis import PrivateRedis
from support.running_frontend import RunningFrontend, running_frontend
from support.running_node import RunningNode, running_node
from support.stopped import stopped
from support.wait import wait_until

ROOT = Path(__file__).parents[2]
ACL = Path(job_package.__file__).with_name("users.acl")
JOB = "serving_stream"  # whose keys the file names
ADMIN = "user admin on >all-rights ~* &* +@all\n"
ONES = np.ones(4, np.float32)
HAS_SELECTORS = find_server(os.environ).version >= (7,)


class GuardedRedis(PrivateRedis):
    """A Redis with the users of the file, and one more for the test."""

    def client(self) -> Any:
        """Return a client of the user who may do everything."""
        return redis.Redis(port=self.port, username="admin", password="all-rights")  # noqa: S106

    def user(self, name: str) -> Any:
        """Return a client of one of the file's users."""
        return redis.Redis(port=self.port, username=name, password=secret(name))

    def denied(self) -> list[str]:
        """Return Redis' refusals so far, each with its user.

        CLIENT SETINFO is left out: redis-py tries it, and Redis 7.0 does not know it.
        """
        with self.client() as client:
            found = client.acl_log()
        named = [f"{entry['username']} {entry['reason']} {entry['object']}" for entry in found]
        return [name for name in named if "command client" not in name]


def secret(name: str) -> str:
    return f"SECRET-OF-{name.upper()}S"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedRedis]:
    directory = tmp_path_factory.mktemp("redis")
    users = directory / "users.acl"
    text = ACL.read_text(encoding="utf-8") + ADMIN
    if not HAS_SELECTORS:  # as SECURITY.md says
        text = text.replace("(", "").replace(")", "")
    users.write_text(text, encoding="utf-8")
    server = GuardedRedis(directory, "--aclfile", str(users))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def node(server: GuardedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    named = {"redisUsername": "node", "redisPassword": secret("node")}
    model = str(MODELS / "affine.py")
    home = tmp_path_factory.mktemp("node")
    with running_node(home, server, modelPath=model, jobName=JOB, lease=2, runTimeout=2, **named) as node:
        yield node


def login(server: GuardedRedis, user: str) -> dict[str, Any]:
    return {"port": server.port, "name": JOB, "username": user, "password": secret(user)}


@pytest.mark.parametrize("user", ["client", "frontend"])
def test_a_client_does_all_that_it_does(node: RunningNode, server: GuardedRedis, user: str) -> None:
    with (
        InputQueue(**login(server, user)) as queue,
        OutputQueue(**login(server, user)) as output,
    ):
        assert queue.predict(ONES, timeout=60)[1] == 4  # after a letter that another test may have replayed
        queue.enqueue("one", x=ONES)
        wait_until(lambda: output.query("one") != "[]", "the result of one")
        queue.enqueue("two", x=ONES)
        wait_until(lambda: "two" in output.dequeue(), "the result of two")
        answers = list(queue.predict_many([{"x": ONES}] * 50))

    assert len(answers) == 50
    with InputQueue(**login(server, user), patience_s=0) as queue, server.client() as admin, stopped(node.process.pid):
        # The node's next heartbeat would admit records again.
        admin.set(keys.full_key(JOB), "no memory")
        try:
            for _ in range(2):
                with pytest.raises(QueueFull, match="no memory"):
                    queue.enqueue_many([("three", {"x": ONES}), ("four", {"x": ONES})])
        finally:
            admin.delete(keys.full_key(JOB))
    with server.user(user) as client:
        assert client.memory_usage(JOB) > 0  # asked for while a job has no limits yet
    assert server.denied() == []


@pytest.mark.parametrize("user", ["client", "frontend"])
def test_a_client_may_ask_for_lost_records(server: GuardedRedis, user: str) -> None:
    inquiry = Inquiry(JOB, "")
    link = Link(RedisSettings(port=server.port, username=user, password=secret(user)))
    with closing(link):
        hope = inquiry.read_hope(link.exchange(*inquiry.for_hope([b"1-1"])))

    assert hope.lost == {b"1-1"}
    assert server.denied() == []


def test_a_frontend_asks_whether_redis_is_a_cluster(server: GuardedRedis) -> None:
    check_redis(RedisSettings(port=server.port, username="frontend", password=secret("frontend")))

    assert server.denied() == []


def test_a_frontend_answers_now_and_later(node: RunningNode, server: GuardedRedis, tmp_path: Path) -> None:
    named = {"redisUsername": "frontend", "redisPassword": secret("frontend")}
    key = bytes(range(32))
    signing = {"callbackSecret": base64.b64encode(key).decode(), "callbackHosts": ["127.0.0.1"]}
    with (
        receiver(key) as hooks,
        running_frontend(tmp_path, server, jobName=JOB, **named, **signing) as frontend,
    ):
        hooks.fail_next("error")
        later = ask(frontend, "POST", f"/predict?callback={hooks.url}")["id"]
        answers = [
            ask(frontend, "POST", "/predict"),
            ask(frontend, "GET", f"/results/{later}?wait=30"),
        ]
        wait_until(lambda: hooks.taken, "the callback comes")
        running = ask(frontend, "POST", "/predict?async=1")["id"]
        deleted = ask(frontend, "DELETE", f"/results/{running}")

    assert answers[0]["predictions"] == answers[1]["predictions"]
    assert deleted["id"] == running
    assert server.denied() == []


@pytest.mark.parametrize("user", ["client", "frontend"])
def test_it_may_wait_for_replicas(node: RunningNode, server: GuardedRedis, user: str) -> None:
    with server.user(user) as client:
        assert client.wait(0, 1) == 0
    assert server.denied() == []


def test_a_frontend_reports_its_use(server: GuardedRedis) -> None:
    async def scenario() -> None:
        link = AsyncLink(RedisSettings(port=server.port, username="frontend", password=secret("frontend")))
        await UseReporter(link, JOB, 0, Timers(1).of(0)).report()
        assert await link.call_checked(("XREVRANGE", keys.decisions_key(JOB), "+", "-")) == [[]]
        await link.close()

    asyncio.run(scenario())

    with server.client() as client:
        assert client.xlen(keys.frontends_key(JOB)) > 0
        assert client.ttl(keys.frontends_key(JOB)) > 0
    assert server.denied() == []


def ask(frontend: RunningFrontend, method: str, path: str) -> Any:
    body = json.dumps({"instances": [{"x": [1, 2, 3, 4]}]}).encode() if method == "POST" else None
    request = urllib.request.Request(f"{frontend.url}{path}", body, method=method)  # noqa: S310 - our own http URL
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
        return json.load(response)


def test_a_node_does_all_that_it_does(node: RunningNode, server: GuardedRedis) -> None:
    """Also renew leases, find poison by itself, keep a dead letter, and take over what a reader had that died."""
    with server.client() as client:
        before = client.xlen(keys.dead_key(JOB))  # of letters that another test has replayed
    with InputQueue(**login(server, "client")) as queue:
        with pytest.raises(RecordFailed):
            queue.predict(np.array([affine.KILLS, 0, 0, 0], np.float32), timeout=60)
        for reader in node.children("reader"):
            reader.kill()
        assert queue.predict(ONES, timeout=60)[1] == 4
    with server.client() as client:
        assert client.xlen(keys.dead_key(JOB)) > before
        assert client.exists(keys.limits_key(JOB))
    with server.user("operator") as operator:
        assert operator.xlen(keys.dead_key(JOB)) > before

    assert server.denied() == []


def test_an_operator_looks_after_dead_letters(node: RunningNode, server: GuardedRedis) -> None:
    with InputQueue(**login(server, "client")) as queue, pytest.raises(RecordFailed):
        queue.predict(np.array([affine.KILLS, 0, 0, 0], np.float32), timeout=60)

    with server.client() as client:
        letters = client.xlen(keys.dead_key(JOB))

        def have_died_again() -> bool:
            return bool(client.xlen(keys.dead_key(JOB)) == letters)

        for words in (["list"], ["replay", "--all", "--yes"], ["purge", "--all", "--yes"]):
            wait_until(have_died_again, "what was replayed is dead again")
            done = cluster_serving(server, "operator", "dead-letters", *words)

            assert done.returncode == 0, done.stdout + done.stderr
    node.settle()
    assert server.denied() == []


def cluster_serving(server: GuardedRedis, user: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "CLUSTER_SERVING_REDIS_USERNAME": user,
        "CLUSTER_SERVING_REDIS_PASSWORD": secret(user),
        "CLUSTER_SERVING_REDIS_URL": server.url,
    }
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", *words, "--job", JOB]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("user", ["node", "client"])
def test_a_record_is_traced(node: RunningNode, server: GuardedRedis, user: str) -> None:
    with InputQueue(**login(server, "client")) as queue, OutputQueue(**login(server, "client")) as output:
        queue.enqueue("traced", x=ONES)
        wait_until(lambda: output.query("traced") != "[]", "the result")

    done = cluster_serving(server, user, "trace", "traced")

    assert done.returncode == 0, done.stdout + done.stderr
    assert server.denied() == []


def test_a_node_starts_and_stops(server: GuardedRedis, tmp_path: Path) -> None:
    """The first connection, an empty Redis, and the end of its consumers and its heartbeat."""
    named = {"redisUsername": "node", "redisPassword": secret("node")}
    with running_node(tmp_path, server, modelPath=str(MODELS / "affine.py"), jobName=JOB, **named) as other:
        assert other.stop() == 0

    assert secret("node") not in other.log
    assert server.denied() == []


OTHERS = "another_job"
FORBIDDEN: list[tuple[str, Callable[[Any], object]]] = [
    ("keys", lambda client: client.keys("*")),
    ("flushall", lambda client: client.flushall()),
    ("flushdb", lambda client: client.flushdb()),
    ("config", lambda client: client.config_get("*")),
    ("shutdown", lambda client: client.execute_command("SHUTDOWN", "NOSAVE")),
    ("acl", lambda client: client.acl_list()),
    ("monitor", lambda client: client.execute_command("MONITOR")),
    ("script", lambda client: client.script_flush()),
    ("replicaof", lambda client: client.execute_command("REPLICAOF", "NO", "ONE")),
    ("module", lambda client: client.execute_command("MODULE", "LIST")),
    ("publish", lambda client: client.publish("channel", "x")),
    ("another job", lambda client: client.xadd(OTHERS, {"a": "b"})),
    ("its answers", lambda client: client.xadd(keys.reply_key(OTHERS, "c"), {"a": "b"})),
    ("its results", lambda client: client.hgetall(f"{keys.result_prefix(OTHERS)}u")),
    ("a script", lambda client: client.eval("return redis.call('XLEN', KEYS[1])", 1, OTHERS)),
    ("a key behind a script", lambda client: client.eval(f"return redis.call('XLEN', '{OTHERS}')", 0)),
]


@pytest.mark.parametrize("user", ["node", "client", "frontend", "operator"])
@pytest.mark.parametrize(("what", "call"), FORBIDDEN, ids=[what for what, _ in FORBIDDEN])
def test_everything_else_is_refused(server: GuardedRedis, user: str, what: str, call: Callable[[Any], object]) -> None:
    with server.user(user) as client, pytest.raises(redis.ResponseError, match=r"(?i)no permission|can't access"):
        call(client)
    with server.client() as admin:
        admin.execute_command("ACL", "LOG", "RESET")


@pytest.mark.parametrize("user", ["client", "frontend"])
def test_a_client_sees_neither_secrets_nor_dead_letters(server: GuardedRedis, user: str) -> None:
    reads: list[Callable[[Any], object]] = [
        lambda client: client.hgetall(keys.MODEL_SECURED),
        lambda client: client.xread({keys.dead_key(JOB): "0"}),
        lambda client: client.xrange(JOB),
    ]
    for read in reads:
        with server.user(user) as client, pytest.raises(redis.ResponseError):
            read(client)
    with suppress(redis.ResponseError), server.client() as admin:
        admin.execute_command("ACL", "LOG", "RESET")


@pytest.mark.skipif(not HAS_SELECTORS, reason="Redis 6.2 has no selectors")
@pytest.mark.parametrize("key", [JOB, keys.limits_key(JOB), keys.full_key(JOB)])
@pytest.mark.parametrize("user", ["client", "frontend"])
def test_a_client_deletes_neither_stream_nor_limits(
    node: RunningNode, server: GuardedRedis, user: str, key: str
) -> None:
    deletions: list[Callable[[Any], object]] = [
        lambda client: client.delete(key),
        lambda client: client.unlink(key),
        lambda client: client.pexpire(key, 1),
        lambda client: client.xtrim(key, maxlen=0),
        lambda client: client.eval("return redis.call('DEL', KEYS[1])", 1, key),
    ]
    for delete in deletions:
        with (
            server.user(user) as client,
            pytest.raises(redis.ResponseError, match=r"(?i)no permission|can't access|can't run"),
        ):
            delete(client)
    with server.client() as admin:
        admin.execute_command("ACL", "LOG", "RESET")


def test_without_a_login_nothing_is_answered(server: GuardedRedis) -> None:
    with redis.Redis(port=server.port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


@pytest.mark.skipif(not HAS_SELECTORS, reason="Redis before 7 has no selectors")
def test_a_dashboard_has_history_and_with_one_right_more_dead_letters(server: GuardedRedis, node: RunningNode) -> None:
    """The right is that of docs/how-to/dashboard.md."""
    (right,) = re.findall(
        r"^\((~serving_stream .*)\)$", (ROOT / "docs" / "how-to" / "dashboard.md").read_text(), re.MULTILINE
    )
    with server.client() as admin:
        letter = admin.xadd(keys.dead_key(JOB), {"dead_letter": '{"code": "WorkerDied"}', "uri": "of the dashboard"})

        async def look(user: str) -> str:
            url = f"redis://{user}:{secret('frontend')}@localhost:{server.port}"
            models = Models(FrontendConfig.model_validate({"redisUrl": url}), [], Timers(1).of(0))
            await models.start()
            try:
                await Recorder(models).record()
                served = models.find(JOB)
                assert await points_since(served, 0)
                newest = (await dead_letters.newest(served))["letters"][0]
                assert (await dead_letters.replay(served, [newest["id"]]))["done"] == 1
                return str(newest["uri"])
            finally:
                await models.close()

        try:
            with pytest.raises(RedisRefused, match="NOPERM"):
                asyncio.run(look("frontend"))
            mine = next(line for line in ACL.read_text().splitlines() if line.startswith("user frontend"))
            admin.execute_command("ACL", "SETUSER", "dashboard", *split_rules(mine), f"({right})")
            assert asyncio.run(look("dashboard")) == "of the dashboard"
        finally:
            admin.xdel(keys.dead_key(JOB), letter)
            admin.acl_log_reset()


def split_rules(line: str) -> list[str]:
    """The rules of a user, as ACL SETUSER takes them."""
    return re.findall(r"\([^)]*\)|\S+", line)[2:]
