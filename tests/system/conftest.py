"""Fixtures for the tests of whole processes."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.held_starts import held_starts
from support.private_redis import PrivateRedis, private_redis
from support.swarm import images
from support.swarm.lab import Lab, running_lab, why_not


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Measure no coverage of what runs here, in this process, but in modules marked `measured`."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("measured") is None:
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateRedis]:
    """A Redis for the tests of one file, which may stop it, limit it, or fill it."""
    with private_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of `held_starts` for processes that are started from here on."""
    directory = tmp_path / "held"
    monkeypatch.setenv("PYTHONPATH", held_starts(directory))
    return directory


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A Swarm of three hosts that have the images."""
    if reason := why_not():
        pytest.skip(reason)
    with running_lab() as lab:
        begun_s = time.monotonic()
        images.prepare(lab, tmp_path_factory.mktemp("images"))
        print(f"\nimages on all hosts after {time.monotonic() - begun_s:.0f} s")
        yield lab


@pytest.fixture(scope="module", autouse=True)
def children_measured(request: pytest.FixtureRequest) -> Iterator[None]:
    """Measure no coverage of the processes that are started here but in modules marked `measured`: it costs half their CPU time."""
    measuring = os.environ.get("COVERAGE_PROCESS_CONFIG")
    if measuring is not None and request.node.get_closest_marker("measured") is None:
        del os.environ["COVERAGE_PROCESS_CONFIG"]
    yield
    if measuring is not None:
        os.environ["COVERAGE_PROCESS_CONFIG"] = measuring
