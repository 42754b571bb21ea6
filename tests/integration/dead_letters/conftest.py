"""A working directory, a home and a job for every test of dead letters."""

from pathlib import Path

import pytest

from support.dead_letters import Letters
from support.private_redis import PrivateRedis


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and a home of its own."""
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLUSTER_SERVING_JOB_NAME", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path / "home"


@pytest.fixture
def job(request: pytest.FixtureRequest) -> str:
    """A job of the test's own on the Redis of all tests."""
    return f"dead-{request.node.name}"


@pytest.fixture
def letters(redis_server: PrivateRedis, job: str) -> Letters:
    """The dead letters of a job."""
    return Letters(redis_server, job)
