"""Fixtures for all tests."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from coverage import Coverage
from hypothesis import HealthCheck, is_hypothesis_test, settings
from xdist.scheduler import LoadFileScheduling

from support.private_redis import PrivateRedis, private_redis

# No example fails because the machine is busy.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

_LONG_NAME = 24
_LONGEST_FIRST = ("frameworks", "system", "integration")


def pytest_configure() -> None:
    """Let programs that tests start hear Ctrl-C and SIGHUP: a script in the background, or under nohup, ignores them.

    Search for reference cycles rarely: with Python's own threshold that is a fifth of the CPU time of tests in this process.
    """
    gc.set_threshold(100_000)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Leave the coverage of a process of xdist to pytest-cov, which pauses it for some tests.

    As a child of pytest, the process measures itself too, and does not pause.
    """
    plugin: Any = session.config.pluginmanager.getplugin("_cov")
    if hasattr(session.config, "workerinput") and plugin is not None:
        pausing = plugin.cov_controller
        pausing.pause()
        while (other := Coverage.current()) is not None:
            other.stop()
        pausing.resume()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Compile the test files of a fresh clone once, on all cores: each process of xdist would compile every file for itself."""
    files = [file for argument in config.args for file in Path(argument).rglob("test_*.py")]
    if sys.dont_write_bytecode or any(
        file.parent.glob(f"__pycache__/*-pytest-{pytest.__version__}.pyc") for file in files
    ):
        return
    cores = len(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "--no-cov"]
    shares = [subprocess.Popen([*command, *files[core::cores]], stdout=subprocess.DEVNULL) for core in range(cores)]
    for share in shares:
        share.wait()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Measure the coverage of the tests' collection in the first process of xdist alone.

    Each process imports all test files, and coverage doubles their CPU time.
    """
    plugin: Any = session.config.pluginmanager.getplugin("_cov")
    worker: dict[str, Any] = getattr(session.config, "workerinput", {})
    if plugin is None or worker.get("workerid", "gw0") == "gw0":
        return (yield)
    plugin.cov_controller.pause()
    try:
        return (yield)
    finally:
        plugin.cov_controller.resume()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest, in their order of chance: the short ones fill what is left of the time."""
    here = Path(__file__).parent
    items.sort(key=lambda item: [not item.path.is_relative_to(here / name) for name in _LONGEST_FIRST])
    for item in items:
        # The lines that these run hundreds of times are reached by quick tests too, and coverage doubles their CPU time.
        if item.get_closest_marker("slow") or is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.no_cover)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Give each process a test file at a time, and one of them all of `tests/frameworks`: TensorFlow takes seconds to import."""
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = _share  # pyright: ignore[reportPrivateUsage] - made to be overridden
    return scheduler


def _share(nodeid: str) -> str:
    file, _, _ = nodeid.partition("::")
    return "frameworks" if file.startswith("tests/frameworks/") else file


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name long bytes by their length: an archive has the time in it, and each process that runs tests would name it otherwise."""
    return f"{len(val)} bytes" if isinstance(val, bytes) and len(val) > _LONG_NAME else None


@pytest.fixture(scope="session", autouse=True)
def loggers_that_keep_nothing() -> Iterator[None]:
    """Loggers look up how to log at each use: one that was kept while a test had set up the log would print, and no test see it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", partial(_configure_uncached, structlog.configure))
        yield


def _configure_uncached(configure: Callable[..., None], **settings: Any) -> None:
    configure(**settings | {"cache_logger_on_first_use": False})


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
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls with little time left, and starts, wait for Redis, which may take long to answer on a busy machine."""
    monkeypatch.setattr("cluster_serving.client.protocol.retrying._LEAST_CONNECT_S", 60.0)
    monkeypatch.setattr("cluster_serving.client.threads.admission._LEAST_REPLY_S", 60.0)
    monkeypatch.setattr("cluster_serving.client.threads.replies._LEAST_REPLY_S", 60.0)
    monkeypatch.setattr("cluster_serving.client.aio.replies._INQUIRY_S", 60.0)
    monkeypatch.setattr("cluster_serving.node.job.redis_server._ANSWER_S", 60.0)
    monkeypatch.setattr("cluster_serving.node.lifecycle.prepare._FIRST_ANSWER_S", 60.0)
    monkeypatch.setattr("cluster_serving.node.commands.job_reports._FIRST_ANSWER_S", 60.0)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that the test starts go without coverage: an interrupt that falls into its lock leaves it locked, for ever."""
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
