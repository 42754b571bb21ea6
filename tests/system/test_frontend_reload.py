"""A frontend that goes on with other settings, and one whose processes hang."""

import http.client
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from support.private_redis import PrivateRedis, free_port
from support.running_frontend import RunningFrontend, running_frontend
from support.wait import wait_until


@pytest.fixture
def frontend(redis_server: PrivateRedis, tmp_path: Path) -> Iterator[RunningFrontend]:
    with running_frontend(tmp_path, redis_server, workers=2) as frontend:
        yield frontend


def children(frontend: RunningFrontend) -> list[psutil.Process]:
    return psutil.Process(frontend.process.pid).children()


def change(frontend: RunningFrontend, **config: Any) -> None:
    """Write other settings, and say so."""
    document = yaml.safe_load(frontend.config_path.read_text())
    document["frontend"].update(config)
    frontend.config_path.write_text(yaml.safe_dump(document))
    frontend.process.send_signal(signal.SIGHUP)


IDLE_S = 0.5  # a process that ends closes a connection that was idle for so long


def reloaded(frontend: RunningFrontend, times: int = 1) -> None:
    """Wait until the new processes have taken over, and the old ones have ended."""
    wait_until(lambda: frontend.log.count("event=listening") == times + 1, "it listens anew")
    workers = int(frontend.log.rpartition("processes=")[2].split()[0])
    wait_until(lambda: len(children(frontend)) == workers, "the old processes have ended")


def are_replaced(frontend: RunningFrontend, before: list[psutil.Process]) -> bool:
    return not set(before) & set(children(frontend))


def status(port: int, path: str = "/livez") -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


def goes_on(answers: Counter[str], answered: int) -> bool:
    return answers["200"] > answered + 20


@contextmanager
def calls(frontend: RunningFrontend) -> Generator[Counter[str]]:
    """Callers over kept connections, and over a new one each time: what they are answered."""
    answers: Counter[str] = Counter()
    done = threading.Event()

    def keep_calling() -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", frontend.port, timeout=60)) as connection:
            called_s = time.monotonic()
            while not done.wait(0.01):
                try:
                    connection.request("GET", "/livez")
                    answers[str(connection.getresponse().read())] += 1
                except ConnectionError as error:
                    if time.monotonic() - called_s < IDLE_S:
                        answers[repr(error)] += 1
                    connection.close()
                called_s = time.monotonic()

    def call_anew() -> None:
        while not done.wait(0.01):
            try:
                answers[str(status(frontend.port))] += 1
            except OSError as error:
                answers[repr(error)] += 1

    threads = [threading.Thread(target=target) for target in (keep_calling, call_anew, call_anew)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        done.set()
        for thread in threads:
            thread.join(120)


def test_sighup_brings_new_settings_and_fails_no_call(frontend: RunningFrontend) -> None:
    before = children(frontend)
    with calls(frontend) as answers:
        for times, workers in enumerate((2, 3, 1), 1):
            change(frontend, workers=workers, jobName=f"job{times}")
            reloaded(frontend, times)
            answered = answers["200"]
            wait_until(partial(goes_on, answers, answered), "calls succeed")

    assert set(answers) == {"200", str(b'{"live":true}')}
    assert not set(before) & set(children(frontend))
    assert all(f"job=job{times} processes={workers}" in frontend.log for times, workers in ((1, 2), (2, 3), (3, 1)))
    assert frontend.stop() == 0


def test_a_changed_port_is_opened_and_the_old_one_closed(frontend: RunningFrontend) -> None:
    old, new = frontend.port, free_port()

    change(frontend, port=new)
    reloaded(frontend)

    assert status(new) == 200
    with pytest.raises(ConnectionRefusedError):
        status(old)


def test_the_level_of_the_log_changes_too(frontend: RunningFrontend) -> None:
    """Quieter, and back: a line of the first process shows the third settings, and no line the second."""
    for number, level in enumerate(("warning", "info"), 2):
        before = children(frontend)
        change(frontend, logLevel=level, jobName=f"job{number}")
        wait_until(partial(are_replaced, frontend, before), "new processes serve")

    wait_until(lambda: "job=job3" in frontend.log, "the last settings are told")
    assert "job=job2" not in frontend.log


USELESS: list[tuple[dict[str, Any], str]] = [
    ({"workers": "many"}, "workers is many, but must be a whole number"),
    ({"apiKeysFile": "/nowhere"}, "apiKeysFile /nowhere cannot be read"),
    ({"port": "taken"}, "is taken: another program listens there"),
    ({"workers": 3, "servableManagerConfPath": "gone.yaml"}, "servable Manager config dir not exist"),
]


def test_settings_of_no_use_change_nothing(frontend: RunningFrontend) -> None:
    before, of_use = children(frontend), frontend.config_path.read_text()

    def is_refused(times: int) -> bool:
        return frontend.log.count("not reloaded") == times

    for number, (config, reason) in enumerate(USELESS, 1):
        frontend.config_path.write_text(of_use)
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = other.getsockname()[1]
            change(frontend, **{key: taken if value == "taken" else value for key, value in config.items()})
            wait_until(partial(is_refused, number), "it says so")

        assert reason in frontend.log
        assert children(frontend) == before
        assert [status(frontend.port) for _ in range(10)] == [200] * 10
    frontend.process.send_signal(signal.SIGHUP)
    wait_until(lambda: is_refused(len(USELESS) + 1), "it tries again")
    assert frontend.stop() == 0


def test_a_process_that_cannot_start_with_new_settings_changes_nothing(frontend: RunningFrontend) -> None:
    before = children(frontend)
    change(frontend, workers=4)
    wait_until(lambda: len(children(frontend)) > 4, "new processes are started")
    next(child for child in children(frontend) if child not in before).kill()

    wait_until(lambda: "not reloaded" in frontend.log, "it says so")

    wait_until(lambda: children(frontend) == before, "the other new ones have ended")
    assert [status(frontend.port) for _ in range(20)] == [200] * 20


def test_sighup_stays_ignored(redis_server: PrivateRedis, tmp_path: Path) -> None:
    """A frontend under `nohup` starts with the signal ignored."""
    kept = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        frontend = RunningFrontend(tmp_path, redis_server)
    finally:
        signal.signal(signal.SIGHUP, kept)
    (before,) = children(frontend)

    frontend.process.send_signal(signal.SIGHUP)
    before.kill()
    wait_until(lambda: before not in (now := children(frontend)) and now, "the server has acted on both")

    assert "reload" not in frontend.log
    assert frontend.stop() == 0


def test_a_terminal_that_is_closed_ends_it(redis_server: PrivateRedis) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "cluster_serving.frontend", "--port=0", "--interface=127.0.0.1"]
    with subprocess.Popen([*command, "--redis-url", redis_server.url], stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        while b"listening" not in said:
            said += os.read(ours, 4096)
        process.send_signal(signal.SIGHUP)
        code = process.wait(120)
    os.close(ours)

    assert code == 0


def test_a_process_that_hangs_is_replaced(frontend: RunningFrontend) -> None:
    wait_until(lambda: "event=listening" in frontend.log, "all processes are ready")  # one that boots has two minutes
    victim, other = children(frontend)
    victim.suspend()

    wait_until(lambda: len(now := children(frontend)) == 2 and victim not in now, "another one is started", 100)

    wait_until(lambda: 'reason="it hung"' in frontend.log, "it is told")
    assert "no sign of life for 1" in frontend.log
    assert other in children(frontend)
    wait_until(lambda: all(frontend.answers() for _ in range(10)), "every connection is answered")
