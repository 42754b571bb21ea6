"""A node whose model is a URL: it starts from it, changes to another one while it serves, and keeps what it has otherwise."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.client import InputQueue
from cluster_serving.client.servers.process.exit_codes import ExitCode
from support.file_server import FileServer, Page, file_server
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

JOB = "fetched"
QUICKSTART = Path(__file__).parents[2] / "node" / "quickstart" / "model"
MODEL = """
import numpy as np

class Model:
    inputs = [("x", "float32", (None, 4))]
    outputs = [("y", "float32", (None, 4))]

    def predict(self, batch):
        return {"y": FACTOR * batch["x"]}
"""


def archive_of(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"model/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def times(factor: int) -> bytes:
    """An archive with a model that multiplies."""
    return archive_of(**{"times.py": MODEL.replace("FACTOR", f"np.float32({factor})").encode()})


@pytest.fixture(scope="module")
def server() -> Iterator[FileServer]:
    with file_server() as server:
        yield server


@contextmanager
def node_of_two(home: Path, redis_server: PrivateRedis, server: FileServer, job: str) -> Generator[RunningNode]:
    checksum = server.put("/two.tar.gz", times(2))
    url = server.url("/two.tar.gz?signature=geheim-geheim-geheim")
    with running_node(home, redis_server, modelPath=url, modelChecksum=checksum, jobName=job) as node:
        yield node


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, redis_server: PrivateRedis, server: FileServer
) -> Iterator[RunningNode]:
    """One for all who leave it serving; each changes it to a model of his own."""
    with node_of_two(tmp_path_factory.mktemp("fetched"), redis_server, server, JOB) as node:
        yield node


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command about the job of a node."""
    return subprocess.run(
        command(*words), env=environment(home), capture_output=True, text=True, timeout=120, check=False
    )


def command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "cluster_serving.node.cli", *words]


def environment(home: Path) -> dict[str, str]:
    return os.environ | {"CLUSTER_SERVING_HOME": str(home / "state")}


def restart(node: RunningNode, url: str, checksum: str, *words: str) -> subprocess.CompletedProcess[str]:
    settings = ["--model-path", url, "--set", f"modelChecksum={checksum}"]
    return run(node.config_path.parent, "restart", node.job, *settings, *words)


def factor(server: PrivateRedis) -> float:
    """Return the factor that the serving model multiplies with."""
    with InputQueue(port=server.port, name=JOB) as queue:
        return float(queue.predict(np.ones(4, np.float32), timeout=60)[0])


def see(server: PrivateRedis, wanted: float) -> None:
    """Wait for an answer of this model: just after a change the old one may have read a record."""
    wait_until(lambda: factor(server) == wanted, f"the model that multiplies with {wanted} answers")


def entries(node: RunningNode) -> list[str]:
    return sorted(path.name for path in (node.config_path.parent / "state" / JOB / "models").iterdir())


def times_asked(server: FileServer, page: str) -> int:
    return len([path for path, _ in server.asked if path == page])


def test_the_quick_start_model_from_an_archive(redis_server: PrivateRedis, tmp_path: Path, server: FileServer) -> None:
    server.put("/digits.tar.gz", archive_of(**{path.name: path.read_bytes() for path in QUICKSTART.glob("*.onnx")}))
    url = server.url("/digits.tar.gz")

    with running_node(tmp_path, redis_server, modelPath=url, jobName="digits") as node:
        (takes,) = node.heartbeat()["inputs"]
        shape = [size or 1 for size in takes["shape"]][1:]
        with InputQueue(port=redis_server.port, name="digits") as queue:
            answer = queue.predict(np.zeros(shape, np.float32), timeout=60)

    assert np.isfinite(answer).all()
    assert "modelChecksum is not set" in node.log
    assert f"fetching {url}" in node.log


def test_restart_fetches_the_next_model_beside_the_old_one(
    node: RunningNode, redis_server: PrivateRedis, server: FileServer
) -> None:
    checksum = server.put("/three.tar.gz", times(3))
    (before,) = [name for name in entries(node) if name.startswith("two")]

    done = restart(node, server.url("/three.tar.gz"), checksum)

    assert done.returncode == 0, done.stderr
    assert f"fetching {server.url('/three.tar.gz')}" in done.stdout
    see(redis_server, 3)
    assert before in entries(node)
    assert run(node.config_path.parent, "restart", JOB).returncode == 0  # as it was started last
    see(redis_server, 3)
    assert times_asked(server, "/three.tar.gz") == 1
    assert "geheim" not in node.log
    assert not [file for file in node.config_path.parent.rglob("*.json") if "geheim" in file.read_text()]


@pytest.mark.parametrize("how", [[], ["--cold"]], ids=["hitless", "cold"])
def test_what_cannot_be_fetched_leaves_the_old_one_serving(
    node: RunningNode, redis_server: PrivateRedis, server: FileServer, how: list[str]
) -> None:
    server.put("/wrong.tar.gz", times(4))
    before, kept = factor(redis_server), entries(node)

    wrong = restart(node, server.url("/wrong.tar.gz"), f"sha256:{'0' * 64}", *how)
    missing = restart(node, server.url("/missing.tar.gz"), "", *how)

    assert wrong.returncode == missing.returncode == ExitCode.MODEL
    assert "is not what modelChecksum says: it is sha256:" in wrong.stderr
    assert "is not there (404)" in missing.stderr
    assert factor(redis_server) == before
    assert node.process.poll() is None
    assert entries(node) == kept


def test_an_archive_without_a_model(node: RunningNode, redis_server: PrivateRedis, server: FileServer) -> None:
    checksum = server.put("/empty.tar.gz", archive_of(readme=b"no model"))
    before = factor(redis_server)

    done = restart(node, server.url("/empty.tar.gz"), checksum)

    assert done.returncode == ExitCode.MODEL
    assert f"the content of {server.url('/empty.tar.gz')}: There is no model detected" in done.stderr
    assert factor(redis_server) == before


def test_it_serves_and_beats_while_it_fetches_until_that_takes_too_long(
    node: RunningNode, redis_server: PrivateRedis, server: FileServer
) -> None:
    go_on = threading.Event()
    server.pages["/slow.tar.gz"] = Page(times(5), go_on=go_on)
    before = factor(redis_server)

    with ThreadPoolExecutor() as pool:
        told = pool.submit(restart, node, server.url("/slow.tar.gz"), "", "--timeout", "15")
        wait_until(lambda: times_asked(server, "/slow.tar.gz"), "it fetches")
        first = node.heartbeat()
        while_fetching = factor(redis_server)
        wait_until(lambda: node.heartbeat()["answered"] > first["answered"], "it goes on beating")
    go_on.set()
    wait_until(lambda: ".new" not in entries(node), "the fetch that was given up has ended")

    assert while_fetching == before
    assert told.result().returncode == ExitCode.FAILED
    assert "the model is not fetched after 15 s; the old model goes on serving" in told.result().stderr
    assert factor(redis_server) == before


def test_it_ends_while_it_fetches(redis_server: PrivateRedis, tmp_path: Path, server: FileServer) -> None:
    server.pages["/seven.tar.gz"] = Page(times(7), go_on=threading.Event())

    with node_of_two(tmp_path, redis_server, server, "ends") as node, ThreadPoolExecutor() as pool:
        told = pool.submit(restart, node, server.url("/seven.tar.gz"), "")
        wait_until(lambda: times_asked(server, "/seven.tar.gz"), "it fetches")
        code = node.stop(signal.SIGTERM)

    assert code == 0
    assert told.result().returncode == ExitCode.FAILED
    assert "the node was told to stop" in told.result().stderr


def test_it_ends_while_it_fetches_its_first_model(
    redis_server: PrivateRedis, tmp_path: Path, server: FileServer
) -> None:
    page = server.pages["/first.tar.gz"] = Page(times(2), go_on=threading.Event())
    words = ["start", "--foreground", "--model-path", server.url("/first.tar.gz"), "--redis-url", redis_server.url]
    node = subprocess.Popen(
        command(*words), env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    wait_until(lambda: times_asked(server, "/first.tar.gz"), "it fetches")

    node.send_signal(signal.SIGHUP)  # of a `restart`, or of nobody
    node.send_signal(signal.SIGTERM)
    said, _ = node.communicate(timeout=120)

    assert page.go_on is not None
    page.go_on.set()
    assert node.returncode == 0, said
    assert "Traceback" not in said


def test_a_restart_while_the_first_model_is_fetched_comes_after_it(
    redis_server: PrivateRedis, tmp_path: Path, server: FileServer
) -> None:
    go_on = threading.Event()
    server.pages["/eight.tar.gz"] = Page(times(8), go_on=go_on)
    checksum = server.put("/nine.tar.gz", times(9))
    words = ["--model-path", server.url("/nine.tar.gz"), "--set", f"modelChecksum={checksum}"]

    def restart_soon() -> subprocess.CompletedProcess[str]:
        wait_until(lambda: times_asked(server, "/eight.tar.gz"), "it fetches")
        return run(tmp_path, "restart", "first", *words)

    def go_on_then() -> None:
        wait_until(lambda: list(tmp_path.glob("state/first/change.*")), "the restart has asked")
        go_on.set()

    with ThreadPoolExecutor() as pool:
        told = pool.submit(restart_soon)
        pool.submit(go_on_then)
        with running_node(tmp_path, redis_server, modelPath=server.url("/eight.tar.gz"), jobName="first") as node:
            done = told.result()
            serving = node.log.count("event=serving")

    assert done.returncode == 0, done.stderr
    assert serving == 2


def test_a_start_that_cannot_fetch(tmp_path: Path, redis_server: PrivateRedis, server: FileServer) -> None:
    url = server.url("/none.tar.gz")

    done = run(tmp_path, "start", "--model-path", url, "--redis-url", redis_server.url)

    assert done.returncode == ExitCode.MODEL
    assert f"{url} is not there (404)" in done.stderr
    assert "Traceback" not in done.stderr
