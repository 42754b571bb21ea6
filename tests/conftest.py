"""Fixtures for all tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.private_redis import PrivateRedis, private_redis

SYSTEM = Path(__file__).parent / "system"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In CI, repeat a failed test of whole processes once; the summary lists it, and it has a race that is to be found."""
    if "CI" in os.environ:
        for item in items:
            if SYSTEM in item.path.parents:
                item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateRedis]:
    """A redis-server for all tests that do not stop it; each uses a job of its own."""
    with private_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[PrivateRedis]:
    """A redis-server that the test may stop and start."""
    directory = tmp_path / "redis"
    directory.mkdir()
    with private_redis(directory) as server:
        yield server


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that the test starts go without coverage: an interrupt that falls into its lock leaves it locked, for ever."""
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
