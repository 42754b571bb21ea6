"""The job directory, and who holds its lock."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.node.job.directory import AlreadyRunning, ChangeRequest, Job, NodeRecord, all_jobs, state_home

RECORD = NodeRecord(
    job="a/b",
    node="n-1",
    pid=1,
    config_path="/c.yaml",
    flags=["--parallelism", "2"],
    redis="redis://localhost:6379/0",
    local_redis_port=6379,
    drain_timeout_s=10,
    started_ms=1,
)


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"CLUSTER_SERVING_HOME": str(tmp_path / "home")}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"CLUSTER_SERVING_HOME": "/h", "XDG_STATE_HOME": "/x"}, "/h"),
        ({"XDG_STATE_HOME": "/x"}, "/x/cluster-serving"),
        ({}, str(Path.home() / ".local/state/cluster-serving")),
    ],
)
def test_home(environ: dict[str, str], expected: str) -> None:
    assert str(state_home(environ)) == expected


@pytest.mark.parametrize(
    "name", ["serving_stream", "a/b", "..", ".", "../../etc", "a b\n", "größe", "{tag}", "x" * 300]
)
def test_every_name_gets_one_directory_in_the_home(home: dict[str, str], name: str) -> None:
    job = Job.of(name, home)
    job.create()

    assert job.directory.resolve().parent == state_home(home)
    assert job.directory.is_dir()


def test_a_home_that_cannot_be_made_is_told_with_the_mend(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    job = Job.of("j", {"CLUSTER_SERVING_HOME": str(tmp_path / "file" / "home")})

    assert not job.running()
    with pytest.raises(Fault, match="file/home/j: Not a directory; set CLUSTER_SERVING_HOME to a directory that this"):
        job.create()


def test_record_is_private_and_comes_back(home: dict[str, str]) -> None:
    job = Job.of("a/b", home)
    job.record(RECORD)

    assert job.read() == RECORD
    assert stat.S_IMODE(job.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((job.directory / "node.json").stat().st_mode) == 0o600
    assert [file.name for file in job.directory.iterdir()] == ["node.json"]


def test_record_of_another_version_counts_as_none(home: dict[str, str]) -> None:
    job = Job.of("j", home)
    job.create()
    (job.directory / "node.json").write_text('{"job": 1}')

    assert job.read() is None


def test_node_id_is_made_once(home: dict[str, str]) -> None:
    first = Job.of("j", home).node_id()

    assert Job.of("j", home).node_id() == first
    assert Job.of("k", home).node_id() != first
    assert [file.name for file in Job.of("j", home).directory.iterdir()] == ["node_id"]


def test_a_node_id_without_content_is_made_anew(home: dict[str, str]) -> None:
    job = Job.of("j", home)
    made = job.node_id()
    (job.directory / "node_id").write_text("")

    again = job.node_id()

    assert again.rpartition("-")[0] == made.rpartition("-")[0]
    assert job.node_id() == again
    assert [file.name for file in job.directory.iterdir()] == ["node_id"]


def test_a_user_without_a_home_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)  # of no entry in /etc/passwd

    with pytest.raises(Fault, match=r"^this user has no home: set CLUSTER_SERVING_HOME"):
        state_home({})


def test_lock_decides_running(home: dict[str, str]) -> None:
    job = Job.of("j", home)

    assert not job.running()
    assert job.supervisor() is None
    with job.acquire():
        assert job.running()
        supervisor = job.supervisor()
        assert supervisor is not None
        assert supervisor.pid == os.getpid()
        with pytest.raises(AlreadyRunning, match="Cluster Serving with name j already exists"), job.acquire():
            pass
    assert not job.running()


def test_lock_ends_with_its_process(home: dict[str, str], tmp_path: Path) -> None:
    """Nothing has to be cleaned up after SIGKILL."""
    job = Job.of("j", home)
    program = (
        "import sys\n"
        "from cluster_serving.node.job.directory import Job\n"
        "with Job.of('j').acquire(): print(1, flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | home
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        supervisor = job.supervisor()
        assert supervisor is not None
        assert supervisor.pid == child.pid

        child.kill()
        child.wait()

    assert not job.running()
    assert job.supervisor() is None


def test_lock_held_without_a_pid_names_nobody(home: dict[str, str]) -> None:
    job = Job.of("j", home)
    with job.acquire():
        job.lock_path.write_text("1")

        assert job.running()
        assert job.supervisor() is None


def test_all_jobs(home: dict[str, str]) -> None:
    assert all_jobs(home) == []
    (state_home(home) / ".proofs").mkdir(parents=True)
    for name in ("b", "a/b", "x" * 300):
        job = Job.of(name, home)
        job.record(NodeRecord(name, "n", 1, None, [], "", None, 1, 1))

    assert [job.name for job in all_jobs(home)] == ["a/b", "b", "x" * 300]
    assert all(job == Job.of(job.name, home) for job in all_jobs(home))


def test_who_may_not_request_removes_no_request(home: dict[str, str]) -> None:
    """It is that of the other one, and the node may not have read it yet."""
    job = Job.of("j", home)
    job.create()
    with job.requesting_change():
        job.request_change(ChangeRequest(None, [], {}, "/", "/pipe", 1.0))

        with pytest.raises(Fault, match="another restart of job j is under way"), job.requesting_change():
            pass

        assert job.change_requested()
    assert not job.change_requested()
