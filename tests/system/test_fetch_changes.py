"""A node whose model is a URL: it starts from it, changes to another one while it serves, and keeps what it has otherwise."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.client import InputQueue
from cluster_serving.client.process.exit_codes import ExitCode
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


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as server:
        yield server


@pytest.fixture
def node(own_redis: PrivateRedis, tmp_path: Path, server: FileServer) -> Iterator[RunningNode]:
    checksum = server.put("/two.tar.gz", times(2))
    url = server.url("/two.tar.gz?signature=geheim-geheim-geheim")
    with running_node(tmp_path / "node", own_redis, modelPath=url, modelChecksum=checksum, jobName=JOB) as node:
        yield node


def run(node: RunningNode, *words: str) -> subprocess.CompletedProcess[str]:
    """A command about the job of a node."""
    return run_at(node.config_path.parent, *words)


def run_at(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(home / "state")}
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)


def restart(node: RunningNode, url: str, checksum: str, *words: str) -> subprocess.CompletedProcess[str]:
    return run(node, "restart", JOB, "--model-path", url, "--set", f"modelChecksum={checksum}", *words)


def factor(server: PrivateRedis) -> float:
    """What the model that serves multiplies with."""
    with InputQueue(port=server.port, name=JOB) as queue:
        return float(queue.predict(np.ones(4, np.float32), timeout=20)[0])


def see(server: PrivateRedis, wanted: float) -> None:
    """Wait for an answer of this model: just after a change the old one may have read a record."""
    wait_until(lambda: factor(server) == wanted, f"the model that multiplies with {wanted} answers")


def entries(node: RunningNode) -> list[str]:
    return sorted(path.name for path in (node.config_path.parent / "state" / JOB / "models").iterdir())


def test_the_quick_start_model_from_an_archive(own_redis: PrivateRedis, tmp_path: Path, server: FileServer) -> None:
    server.put("/digits.tar.gz", archive_of(**{path.name: path.read_bytes() for path in QUICKSTART.glob("*.onnx")}))
    url = server.url("/digits.tar.gz")

    with running_node(tmp_path / "node", own_redis, modelPath=url, jobName=JOB) as node:
        (takes,) = node.heartbeat()["inputs"]
        shape = [size or 1 for size in takes["shape"]][1:]
        with InputQueue(port=own_redis.port, name=JOB) as queue:
            answer = queue.predict(np.zeros(shape, np.float32), timeout=20)

    assert np.isfinite(answer).all()
    assert "modelChecksum is not set" in node.log
    assert f"fetching {url}" in node.log


def test_restart_fetches_the_next_model_beside_the_old_one(
    node: RunningNode, own_redis: PrivateRedis, server: FileServer
) -> None:
    checksum = server.put("/three.tar.gz", times(3))
    before = factor(own_redis)

    done = restart(node, server.url("/three.tar.gz"), checksum)

    assert done.returncode == 0, done.stderr
    assert f"fetching {server.url('/three.tar.gz')}" in done.stdout
    assert before == 2
    see(own_redis, 3)
    assert len(entries(node)) == 2
    assert run(node, "restart", JOB).returncode == 0  # as it was started last
    see(own_redis, 3)
    assert len([path for path, _ in server.asked if path.startswith("/three")]) == 1
    assert "geheim" not in node.log
    assert not [file for file in node.config_path.parent.rglob("*.json") if "geheim" in file.read_text()]


@pytest.mark.parametrize("how", [[], ["--cold"]], ids=["hitless", "cold"])
def test_what_cannot_be_fetched_leaves_the_old_one_serving(
    node: RunningNode, own_redis: PrivateRedis, server: FileServer, how: list[str]
) -> None:
    server.put("/three.tar.gz", times(3))

    wrong = restart(node, server.url("/three.tar.gz"), f"sha256:{'0' * 64}", *how)
    missing = restart(node, server.url("/four.tar.gz"), "", *how)

    assert wrong.returncode == missing.returncode == ExitCode.MODEL
    assert "is not what modelChecksum says: it is sha256:" in wrong.stderr
    assert "is not there (404)" in missing.stderr
    assert factor(own_redis) == 2
    assert node.process.poll() is None
    assert len(entries(node)) == 1


def test_an_archive_without_a_model(node: RunningNode, own_redis: PrivateRedis, server: FileServer) -> None:
    checksum = server.put("/empty.tar.gz", archive_of(readme=b"no model"))

    done = restart(node, server.url("/empty.tar.gz"), checksum)

    assert done.returncode == ExitCode.MODEL
    assert f"what {server.url('/empty.tar.gz')} holds: There is no model detected" in done.stderr
    assert factor(own_redis) == 2


def test_it_serves_and_beats_while_it_fetches(node: RunningNode, own_redis: PrivateRedis, server: FileServer) -> None:
    go_on = threading.Event()
    checksum = server.put("/three.tar.gz", times(3))
    server.pages["/three.tar.gz"].go_on = go_on
    told: list[subprocess.CompletedProcess[str]] = []
    waiting = threading.Thread(target=lambda: told.append(restart(node, server.url("/three.tar.gz"), checksum)))

    waiting.start()
    wait_until(lambda: any(path == "/three.tar.gz" for path, _ in server.asked), "it fetches")
    first = node.heartbeat()
    while_fetching = factor(own_redis)
    wait_until(lambda: node.heartbeat()["answered"] > first["answered"], "it goes on beating")
    go_on.set()
    waiting.join(60)

    assert while_fetching == 2
    assert told[0].returncode == 0, told[0].stderr
    see(own_redis, 3)


def test_it_ends_while_it_fetches(node: RunningNode, server: FileServer) -> None:
    server.pages["/three.tar.gz"] = Page(times(3), go_on=threading.Event())
    told: list[subprocess.CompletedProcess[str]] = []
    waiting = threading.Thread(target=lambda: told.append(restart(node, server.url("/three.tar.gz"), "")))
    waiting.start()
    wait_until(lambda: any(path == "/three.tar.gz" for path, _ in server.asked), "it fetches")

    code = node.stop(signal.SIGTERM)
    waiting.join(60)

    assert code == 0
    assert told[0].returncode == ExitCode.FAILED
    assert "the node was told to stop" in told[0].stderr


def test_a_fetch_that_takes_too_long(node: RunningNode, own_redis: PrivateRedis, server: FileServer) -> None:
    server.pages["/three.tar.gz"] = Page(times(3), go_on=threading.Event())

    done = restart(node, server.url("/three.tar.gz"), "", "--timeout", "2")

    assert done.returncode == ExitCode.FAILED
    assert "the model is not fetched after 2 s; the old model goes on serving" in done.stderr
    assert factor(own_redis) == 2


def test_a_restart_while_the_first_model_is_fetched_comes_after_it(
    own_redis: PrivateRedis, tmp_path: Path, server: FileServer
) -> None:
    page = server.pages["/two.tar.gz"] = Page(times(2), go_on=threading.Event())
    checksum = server.put("/three.tar.gz", times(3))
    home = tmp_path / "node"
    command = ["restart", JOB, "--model-path", server.url("/three.tar.gz"), "--set", f"modelChecksum={checksum}"]
    told: list[subprocess.CompletedProcess[str]] = []

    def restart_soon() -> None:
        wait_until(lambda: server.asked, "it fetches")
        told.append(run_at(home, *command))

    def go_on_then() -> None:
        wait_until(lambda: list(home.glob(f"state/{JOB}/change.*")), "the restart has asked")
        assert page.go_on is not None
        page.go_on.set()

    threads = [threading.Thread(target=restart_soon), threading.Thread(target=go_on_then)]
    for thread in threads:
        thread.start()
    with running_node(home, own_redis, modelPath=server.url("/two.tar.gz"), jobName=JOB):
        for thread in threads:
            thread.join(90)
        see(own_redis, 3)

    assert told[0].returncode == 0, told[0].stderr


def test_a_start_that_cannot_fetch(tmp_path: Path, own_redis: PrivateRedis, server: FileServer) -> None:
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(tmp_path)}
    command = [
        sys.executable,
        "-P",
        "-m",
        "cluster_serving.node.cli",
        "start",
        "--model-path",
        server.url("/none.tar.gz"),
    ]

    done = subprocess.run(
        [*command, "--redis-url", own_redis.url],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == ExitCode.MODEL
    assert f"{server.url('/none.tar.gz')} is not there (404)" in done.stderr
    assert "Traceback" not in done.stderr
