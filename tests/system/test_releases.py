"""This release and the release before on one Redis: clients, frontends and nodes, each of either."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster_serving import __version__
from cluster_serving.client import keys
from support import every_call, frozen
from support.heartbeats import described
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_frontend import RunningFrontend, running_frontend
from support.running_node import RunningNode, running_node
from support.wait import wait_until

OURS, THEIRS = "release_ours", "release_theirs"
OWN = f"{__version__} (wire {keys.WIRE})"
TODAY = Path(__file__).parents[2] / "src"
CALLS = {"predict", "predict_many", "as_completed", "query", "dequeue", "results", "asyncio"}


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the release before."""
    return frozen.unpack(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def nodes(
    redis_server: PrivateRedis, former: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, RunningNode]]:
    """A node of each release, with a job of its own."""
    home, model = tmp_path_factory.mktemp("nodes"), str(MODELS / "affine.py")
    with ExitStack() as both:
        with frozen.imported(former):
            theirs = both.enter_context(running_node(home / "theirs", redis_server, modelPath=model, jobName=THEIRS))
        ours = both.enter_context(running_node(home / "ours", redis_server, modelPath=model, jobName=OURS))
        yield {OURS: ours, THEIRS: theirs}


def calls_by(folder: Path, server: PrivateRedis, job: str) -> dict[str, Any]:
    """Return what came of every call of a client that is imported from a folder."""
    command = [sys.executable, "-P", every_call.__file__, f"redis://{server.url}", job]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    assert Path(report["folder"]) == folder / "cluster_serving"
    return dict(report["calls"])


@pytest.mark.parametrize(("is_former", "job"), [(True, OURS), (False, THEIRS)], ids=["client before", "node before"])
def test_a_client_understands_nodes_of_the_neighbouring_release(
    nodes: dict[str, RunningNode], former: Path, redis_server: PrivateRedis, is_former: bool, job: str
) -> None:
    report = calls_by(former if is_former else TODAY, redis_server, job)

    assert report == dict.fromkeys(CALLS, True)
    assert nodes[job].heartbeat().get("version") == (__version__ if job == OURS else None)


def post(frontend: RunningFrontend, job: str, query: str = "") -> Any:
    body = json.dumps({"instances": [{"x": [number] * 4} for number in range(3)]}).encode()
    path = f"/v1/models/{job}:predict{query}"
    with urllib.request.urlopen(f"{frontend.url}{path}", body, timeout=20) as response:  # noqa: S310 - ours
        return json.loads(response.read())["predictions"]


def ready(frontend: RunningFrontend) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"{frontend.url}/readyz", timeout=20) as response:  # noqa: S310 - ours
            return dict(json.loads(response.read()))
    except urllib.error.HTTPError as error:
        return dict(json.loads(error.read()))


RIGHT = [{"y": [2.0 * number + 1] * 4, "total": 4.0 * number} for number in range(3)]


def test_a_frontend_of_the_release_before_calls_this_node(
    nodes: dict[str, RunningNode], former: Path, redis_server: PrivateRedis, tmp_path: Path
) -> None:
    with frozen.imported(former), running_frontend(tmp_path, redis_server, jobName=OURS) as frontend:
        assert nodes.keys() <= set(ready(frontend)["models"])
        assert post(frontend, OURS) == RIGHT


def test_this_frontend_calls_nodes_of_both_and_tells_the_releases(
    nodes: dict[str, RunningNode], redis_server: PrivateRedis, tmp_path: Path
) -> None:
    with running_frontend(tmp_path, redis_server, jobName=OURS) as frontend:
        assert [post(frontend, job) for job in nodes] == [RIGHT, RIGHT]
        assert ready(frontend)["releases"] == {"frontend": OWN, "others": ["before 0.1.0 (wire 1)"]}
        assert "nodes are of another version" in frontend.log
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            post(frontend, THEIRS, "?async=1")
        assert "cannot be answered later: upgrade its nodes" in json.loads(refused.value.read())["error"]
        with foreign(redis_server, "releases_foreign"):
            wait_until(lambda: "0.9.0 (wire 9)" in ready(frontend)["releases"]["others"], "its release is told")
            assert "releases_foreign" not in ready(frontend)["models"]
            with pytest.raises(urllib.error.HTTPError, match="503") as refused:
                post(frontend, "releases_foreign")
            assert "cannot read version 0.9.0 (wire 9)" in json.loads(refused.value.read())["error"]
            assert "whose answers cannot be read" in frontend.log


@contextmanager
def foreign(server: PrivateRedis, job: str) -> Generator[None]:
    """Keep the heartbeat of a node of a release far ahead for a block."""
    key = keys.node_key(job, "n")
    with server.client() as client:
        client.set(key, described(job=job, version="0.9.0", wire=9).encode())
        client.zadd(keys.NODES, {key: time.time()})
        try:
            yield
        finally:
            client.delete(key)


@pytest.mark.parametrize("job", [OURS, THEIRS])
def test_status_tells_the_releases(nodes: dict[str, RunningNode], job: str) -> None:
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "status", job]
    home = nodes[job].config_path.parent / "state"
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(home)}

    table, document = (
        subprocess.run(
            [*command, *options], env=environment, capture_output=True, text=True, timeout=200, check=True
        ).stdout
        for options in ((), ("--json",))
    )

    (report,) = json.loads(document)
    warning = f"nodes of the job are of version before 0.1.0 (wire 1), this command of {OWN}"
    if job == OURS:
        assert (report["version"], report["wire"], report.get("warning")) == (__version__, keys.WIRE, None)
        assert OWN in table
    else:
        assert (report["version"], report["wire"], report["warning"]) == (None, 1, warning)
        assert "before 0.1.0 (wire 1)" in table


def test_a_node_logs_nodes_of_another_release(
    nodes: dict[str, RunningNode], redis_server: PrivateRedis, tmp_path: Path
) -> None:
    with running_node(tmp_path, redis_server, modelPath=str(MODELS / "affine.py"), jobName=THEIRS) as node:
        assert "a node of the job is of another version" in node.log
        assert "before 0.1.0 (wire 1)" in node.log
        mixed = calls_by(TODAY, redis_server, THEIRS)
        assert node.stop() == 0

    assert mixed == dict.fromkeys(CALLS, True)
