"""`serve` and `start --http`: from the command to an answer by the printed calls, and the end of everything."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.checks import Case, Finding
from cluster_serving.client.servers.process.exit_codes import INTERRUPTED, ExitCode
from cluster_serving.frontend.server.examiner import EXAMINER
from support.models import MODELS
from support.private_redis import free_port
from support.programs import program
from support.wait import wait_until

_READ_ONLY = 'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; shift; exec "$@"'
COMMAND = [sys.executable, "-P", "-m", "cluster_serving.node.cli"]
DIGITS = Path(__file__).parents[2] / "node" / "quickstart" / "model" / "digits.onnx"


class Serve:
    """A `serve` on free ports, with a Redis of its own; `inside`: command that it is an argument of."""

    def __init__(self, home: Path, *words: str, inside: Sequence[str] = (), **environment: str) -> None:
        self.log = home / "serve.log"
        self._inside = inside
        self.redis_port, self.port = free_port(), free_port()
        self.environment = os.environ | {"CLUSTER_SERVING_HOME": str(home / "state")} | environment
        command = [
            *inside,
            *COMMAND,
            "serve",
            *words,
            f"--redis-url=localhost:{self.redis_port}",
            f"--port={self.port}",
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, cwd=home)

    @property
    def text(self) -> str:
        """Text that `serve` has printed so far."""
        return self.log.read_text()

    def shown(self) -> str:
        """The screen, once it is complete."""
        wait_until(lambda: self.process.poll() is not None or "Ctrl-C ends" in self.text, "the screen")
        assert self.process.poll() is None, self.text
        return self.text

    def curl(self) -> str:
        """The answer to the printed curl."""
        call = re.search(r"^((?:curl|python3 -c)(?:.|\n)*?)\n\n", self.shown(), re.MULTILINE)
        assert call is not None, self.text
        return subprocess.run(
            ["/bin/sh", "-c", call[1]], capture_output=True, text=True, check=True, env=self.environment
        ).stdout

    def python(self) -> str:
        """Run the printed program, and return its output."""
        pasted = re.search(r"^((?:import|from) (?:.|\n)*?)\n\nMore", self.shown(), re.MULTILINE)
        assert pasted is not None, self.text
        return subprocess.run(
            [sys.executable, "-P", "-c", pasted[1]], capture_output=True, text=True, check=True
        ).stdout

    def terminate(self) -> None:
        """Ask it to stop, and not the command that it is an argument of, which ignores the signal."""
        process = psutil.Process(self.process.pid)
        if self._inside:
            (process,) = process.children()
        process.terminate()

    def left(self) -> list[str]:
        """The processes that belong to it."""
        return processes_of(self.environment["CLUSTER_SERVING_HOME"])


def processes_of(home: str) -> list[str]:
    """The command lines of the processes with this home."""
    found: list[str] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("CLUSTER_SERVING_HOME") == home:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def examined(serve: Serve, redis_port: int) -> list[Finding]:
    """Return doctor's findings about the frontend of `serve`, where doctor looks at the frontends on a Redis of this machine."""
    children = psutil.Process(serve.process.pid).children(recursive=True)
    subjects = {f"frontend (pid {child.pid})" for child in children}
    found = EXAMINER.examine(Case(None, {}, redis=RedisSettings("127.0.0.1", redis_port)))
    return [each for each in found if each.subject in subjects]


@contextmanager
def serving(home: Path, *words: str, inside: Sequence[str] = (), **environment: str) -> Generator[Serve]:
    serve = Serve(home, *words, inside=inside, **environment)
    try:
        yield serve
    finally:
        if serve.process.poll() is None:
            serve.terminate()
            serve.process.wait(60)


def test_the_printed_calls_are_answered_and_ctrl_c_ends_everything(tmp_path: Path) -> None:
    program("curl")
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-many-letters\n")
    keys.chmod(0o600)
    with serving(
        tmp_path, str(DIGITS), CLUSTER_SERVING_API_KEYS_FILE=str(keys), API_KEY="a-key-of-many-letters"
    ) as serve:
        answer = serve.curl()
        printed = serve.python()
        wait_until(lambda: "answered" in serve.text, "the live line")
        of_job = examined(serve, serve.redis_port)
        of_another = examined(serve, free_port())
        serve.process.send_signal(signal.SIGINT)

        assert serve.process.wait(60) == ExitCode.OK, serve.text
    assert [each.status for each in of_job] == ["ok", "ok"]
    assert not of_another
    assert answer.startswith('{"predictions":[[')
    assert printed.startswith("[")
    assert "image        float32 [N,1,8,8]" in serve.text
    assert "a-key-of-many-letters" not in serve.text
    assert re.search(r"^Dashboard: http://localhost:\d+/dashboard$", serve.text, re.MULTILINE)
    assert "Every machine" not in serve.text
    assert serve.text.endswith("Redis stopped; its data stays on disk.\nStopped.\n")
    assert not serve.left()


def test_a_container_serves_what_is_mounted_and_ends_with_its_process_1(tmp_path: Path) -> None:
    """Process 1 of its own processes, a model that cannot be written, no home; from the Dockerfile: how it is started."""
    if os.geteuid() != 0:
        pytest.skip("only root makes namespaces")
    program("curl")
    dockerfile = (Path(__file__).parents[2] / "docker" / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["tini", "--", "cluster-serving"]' in dockerfile
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(DIGITS, model)
    inside = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
        "sh",
        "-ec",
        _READ_ONLY,
        "sh",
        str(model),
    ]
    with serving(tmp_path, str(model), inside=inside, HOME="/nonexistent") as serve:
        answer = serve.curl()
        of_host = examined(serve, serve.redis_port)
        serve.terminate()

        assert serve.process.wait(60) == ExitCode.OK, serve.text
    assert answer.startswith('{"predictions":[[')
    assert not of_host  # its files are those of its container
    assert "Every machine that reaches the port may call" in serve.text
    assert serve.text.endswith("Redis stopped; its data stays on disk.\nStopped.\n")
    assert not serve.left()


def test_a_changed_model_is_loaded_again_and_a_broken_one_is_not(tmp_path: Path) -> None:
    program("curl")
    folder = tmp_path / "model"
    folder.mkdir()
    source = (MODELS / "price.py").read_text()
    model = folder / "price.py"
    model.write_text(source)
    with serving(tmp_path, str(model), "--reload") as serve:
        before = serve.curl()
        model.write_text(f"{source}\nraise ValueError('half written')\n")
        wait_until(lambda: "Not reloaded: " in serve.text, "the refusal")
        kept = serve.curl()
        model.write_text(source.replace("class Model:", "class Model:\n    changed = True\n"))
        wait_until(lambda: "\nReloaded: " in serve.text, "the change")
        after = serve.curl()

    assert before == kept == after
    assert not serve.left()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGKILL, -signal.SIGKILL)])
def test_an_end_during_the_start_leaves_no_server(tmp_path: Path, number: signal.Signals, code: int) -> None:
    model = tmp_path / "model.py"
    model.write_text("import time\ntime.sleep(600)\n")
    with serving(tmp_path, str(model)) as serve:
        state = Path(serve.environment["CLUSTER_SERVING_HOME"]) / "serving_stream"
        wait_until(lambda: (state / "frontend.json").exists(), "both are started")
        serve.process.send_signal(number)

        assert serve.process.wait(60) == code, serve.text
        wait_until(lambda: not any("cluster_serving" in each for each in serve.left()), "nothing runs")
    if number == signal.SIGINT:
        assert serve.text.endswith("Stopped before the model was ready; nothing is left running.\n")
        assert not serve.left()
    else:  # as after a killed start, the embedded Redis stays with its data
        ended = subprocess.run(
            [*COMMAND, "shutdown"], env=serve.environment, cwd=tmp_path, capture_output=True, check=True
        )
        assert b"Redis stopped" in ended.stdout


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["nowhere.onnx"], ExitCode.MODEL, "nowhere.onnx does not exist"),
        (["model.txt"], ExitCode.MODEL, "is not a model file"),
        ([str(DIGITS), "--reload"], ExitCode.USAGE, "--reload is for a model in Python"),
        ([str(DIGITS), "--redis-url=127.0.0.2:1"], ExitCode.REDIS, "cannot be used"),
        ([str(DIGITS)], ExitCode.FAILED, "of 0.0.0.0 is taken"),
    ],
)
def test_a_fault_is_one_sentence_and_nothing_is_left(
    tmp_path: Path, words: list[str], code: ExitCode, sentence: str
) -> None:
    (tmp_path / "model.txt").touch()
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(tmp_path / "state")}
    with socket.create_server(("0.0.0.0", 0)) as other:  # noqa: S104 - as the frontend listens
        options = [f"--port={other.getsockname()[1]}", f"--redis-url=localhost:{free_port()}"]
        ended = subprocess.run(
            [*COMMAND, "serve", *options, *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    assert (ended.returncode, sentence in ended.stderr) == (code, True), ended.stderr
    assert not processes_of(environment["CLUSTER_SERVING_HOME"])


def test_start_with_http_and_stop(tmp_path: Path) -> None:
    port = free_port()
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(tmp_path / "state")}

    def run(*words: str) -> str:
        ended = subprocess.run(
            [*COMMAND, *words], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return ended.stdout

    try:
        options = (f"--model-path={DIGITS}", f"--redis-url=localhost:{free_port()}", f"--port={port}")
        started = run("start", "--http", *options)
        with urllib.request.urlopen(f"http://localhost:{port}/livez", timeout=60) as reply:
            status = reply.status
        stopped = run("stop")
        left = processes_of(environment["CLUSTER_SERVING_HOME"])
    finally:
        run("shutdown")

    assert f"HTTP: http://localhost:{port}\nDashboard: http://localhost:{port}/dashboard" in started
    assert status == 200
    assert stopped.startswith("Frontend of job serving_stream stopped.\n")
    assert not any("cluster_serving" in each for each in left)
