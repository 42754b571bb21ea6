"""`profile` and `dump` on the processes of a real node and a real frontend."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.cli import main
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_frontend import running_frontend
from support.running_node import RunningNode, running_node
from support.wait import wait_until

JOB = "looked_into"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("looked_into")


@pytest.fixture(scope="module")
def node(home: Path, redis_server: PrivateRedis) -> Iterator[RunningNode]:
    model = str(MODELS / "affine.py")
    with running_node(home, redis_server, modelPath=model, jobName=JOB, modelParallelism=2) as node:
        yield node


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Run:
    """A command in an empty directory, in the home of the node."""

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command(*words),
            env=environment(home),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "cluster_serving.node.cli", *words]


def environment(home: Path) -> dict[str, str]:
    return os.environ | {"CLUSTER_SERVING_HOME": str(home / "state")}


def test_a_profile_names_the_functions_of_the_process(node: RunningNode, run: Run, tmp_path: Path) -> None:
    done = run("profile", JOB, "reader", "--seconds", "1", "--idle")

    assert done.returncode == 0, done.stderr
    svg = (tmp_path / "profile-reader.svg").read_text(encoding="utf-8")
    assert "<title>Reader.run (cluster_serving/node/reader/reader.py" in svg.replace("run (/", "run (")
    assert f"reader (pid {node.children('reader')[0].pid}) of job {JOB}: " in svg
    assert [path.name for path in tmp_path.iterdir()] == ["profile-reader.svg"]


def test_a_worker_is_profiled_by_its_number_or_pid_into_a_file(node: RunningNode, run: Run, tmp_path: Path) -> None:
    """The number is that of its log lines, and the file is written over."""
    (ready,) = [line for line in node.log.splitlines() if "child=worker-1" in line]
    pid = ready.partition("pid=")[2].partition(" ")[0]
    output = tmp_path / "out.svg"
    output.write_text("old")
    for words in (["--process", "1"], ["--process", pid]):
        done = run("profile", JOB, *words, "--seconds", "1", "--idle", "--native", "-o", str(output))

        assert done.returncode == 0, done.stderr
        assert f"Recording worker-1 (pid {pid}) for 1 s." in done.stderr
        assert "Worker.run" in output.read_text(encoding="utf-8")


def test_an_idle_worker_has_no_profile(node: RunningNode, run: Run, tmp_path: Path) -> None:
    runs: list[Any] = []

    def found_nothing() -> bool:
        """Profile the worker for a second, and return whether it did nothing. An idle worker wakes now and then."""
        for profile in tmp_path.iterdir():
            profile.unlink()
        runs.append(run("profile", JOB, "worker", "--seconds", "1", "--rate", "10"))
        return bool(runs[-1].returncode)

    wait_until(found_nothing, "a second in which the worker does nothing")

    done = runs[-1]
    pid = node.children("worker")[0].pid
    assert done.stderr.splitlines()[-1] == (
        f"worker-0 (pid {pid}) did nothing for 1 s: send records meanwhile, or give --idle"
    )
    assert done.returncode == ExitCode.FAILED
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("unmeasured")
def test_ctrl_c_ends_a_recording_and_keeps_it(node: RunningNode, home: Path, tmp_path: Path) -> None:
    words = command("profile", JOB, "writer", "--seconds", "600", "--idle")
    recording = subprocess.Popen(words, env=environment(home), cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert recording.stderr is not None
    assert "Recording writer" in recording.stderr.readline()
    writer = node.children("writer")[0].pid
    for _ in range(5):  # it looks once or twice before it records
        wait_until(lambda: _is_traced(writer), "py-spy looks at the writer")
        wait_until(lambda: not _is_traced(writer), "py-spy lets the writer go on")

    recording.send_signal(signal.SIGINT)

    assert recording.wait(120) == 0, recording.stderr.read()
    assert "Writer.run" in (tmp_path / "profile-writer.svg").read_text(encoding="utf-8")
    recording.stderr.close()


def _is_traced(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return any(line.startswith("TracerPid:") and line.split()[1] != "0" for line in lines)


def test_dump_prints_the_stacks_of_every_process(node: RunningNode, run: Run) -> None:
    done = run("dump", JOB)

    assert done.returncode == 0, done.stderr
    assert f"supervisor (pid {node.process.pid})" in done.stdout
    for name in ("worker-0 (pid", "worker-1 (pid", "Supervisor.run (", "Reader.run (", "Worker.run (", "Writer.run ("):
        assert name in done.stdout
    assert "start --foreground" not in done.stdout  # a command line may hold a password


def test_dump_of_one_role(node: RunningNode, run: Run) -> None:
    """A lone role means the job of config.yaml, or the one that runs here."""
    done = run("dump", "writer")

    assert done.returncode == 0, done.stderr
    assert "Writer.run (" in done.stdout
    assert "Reader.run (" not in done.stdout


def test_processes_of_a_frontend(node: RunningNode, redis_server: PrivateRedis, run: Run, tmp_path: Path) -> None:
    with running_frontend(tmp_path / "frontend", redis_server, workers=2) as frontend:
        children = Path(f"/proc/{frontend.process.pid}/task/{frontend.process.pid}/children").read_text().split()
        dumps = [run("dump", "frontend", "--process", pid) for pid in children]
        profile = run("profile", "frontend", "--process", children[0], "--seconds", "1", "--idle", "-o", "f.svg")

    assert len(children) == 2
    for pid, done in zip(children, dumps, strict=True):
        assert done.returncode == 0, done.stderr
        assert f"(pid {pid})" in done.stdout
        assert "cluster_serving/frontend/server/process.py" in done.stdout
    assert profile.returncode == 0, profile.stderr
    assert "frontend/server/process.py" in (tmp_path / "f.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("profile", "no_such_job"), ExitCode.NOT_RUNNING, "No job no_such_job was ever started on this machine"),
        (
            ("dump", "no_such_job", "reader"),
            ExitCode.NOT_RUNNING,
            "No job no_such_job was ever started on this machine",
        ),
        (("dump", JOB, "worker", "--process", "7"), ExitCode.FAILED, "there is no process 7, but worker-0 (pid "),
        (("dump", JOB, "reeder"), ExitCode.USAGE, "'reeder' is not one of"),
        (("profile", JOB, "-o", "/no/such/place.svg"), ExitCode.FAILED, "/no/such/place.svg: No such file"),
        (("profile", JOB, "-o", "/dev/null"), ExitCode.FAILED, "/dev/null is not a file"),
        (("profile", JOB, "--seconds", "0"), ExitCode.USAGE, "--seconds"),
    ],
)
def test_what_cannot_be_done_is_said(
    node: RunningNode, home: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    done = CliRunner(env=environment(home)).invoke(main, words)

    assert done.exit_code == code, done.stderr
    assert said in done.stderr
    assert isinstance(done.exception, SystemExit)
