"""Passwords stay out of `ps`, the log and what a node leaves behind; the files of a job are for their owner only."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
import yaml

from cluster_serving.node.job.directory import Job
from support.models import MODELS
from support.private_redis import PrivateRedis, free_port, private_redis
from support.wait import wait_until

PASSWORD = 'hunt"er/2@ #secret'  # noqa: S105 - the kind that breaks out of URLs and quotes
WRONG = "hunt-the-wrong-one"
JOB = "guarded"
CLI = [sys.executable, "-P", "-m", "cluster_serving.node.cli"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivateRedis]:
    directory = tmp_path / "redis"
    directory.mkdir()
    with private_redis(directory, "--requirepass", PASSWORD) as server:
        yield server


class Home:
    """A job directory, a config file, and the commands on them."""

    def __init__(self, directory: Path, **config: object) -> None:
        self.state = directory / "state"
        self.config = directory / "config.yaml"
        common = {"modelPath": str(MODELS / "affine.py"), "jobName": JOB, "modelParallelism": 1, "threadPerModel": 1}
        self.config.write_text(yaml.safe_dump(common | config))
        self.environ = os.environ | {"CLUSTER_SERVING_HOME": str(self.state)}

    def run(
        self, *words: str, umask: int = -1, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One command, to its end."""
        return subprocess.run(
            [*CLI, *words],
            env=self.environ | dict(environ or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
            umask=umask,
            check=False,
        )

    def job(self) -> Job:
        """The job, as this home knows it."""
        return Job.of(JOB, self.environ)

    def processes(self) -> list[psutil.Process]:
        """The node and its children, as `ps` sees them."""
        supervisor = self.job().supervisor()
        assert supervisor is not None
        return [supervisor, *supervisor.children(recursive=True)]

    def files(self) -> list[Path]:
        """All that the job has left."""
        return [path for path in self.state.rglob("*") if path.is_file() and not path.is_symlink()]


def shown(text: str, secret: str) -> bool:
    """Return whether a text has the secret in any form, or a piece of the secret."""
    return any(form in text for form in (secret, quote(secret, safe=""), quote(secret), "hunt"))


@pytest.mark.parametrize("way", ["environment", "file", "url"])
def test_a_password_is_seen_nowhere(tmp_path: Path, server: PrivateRedis, way: str) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    home = Home(tmp_path, redisUrl=server.url)
    words = [f"--redis-url=redis://:{quote(PASSWORD, safe='')}@{server.url}"] if way == "url" else []
    environ = {
        "environment": {"CLUSTER_SERVING_REDIS_PASSWORD": PASSWORD},
        "file": {"CLUSTER_SERVING_REDIS_PASSWORD_FILE": str(file)},
    }.get(way, {})

    try:
        started = home.run("start", "-c", str(home.config), "--set=logLevel=debug", *words, environ=environ)
        assert started.returncode == 0, started.stdout
        processes = home.processes()
        lines = [" ".join(process.cmdline()) for process in processes]
        status = home.run("status", environ=environ)
    finally:
        home.run("stop", JOB, environ=environ)

    assert len(lines) >= 4
    assert not [line for line in lines if shown(line, PASSWORD)]
    assert not shown(started.stdout, PASSWORD)
    assert (status.returncode, shown(status.stdout, PASSWORD)) == (0 if environ else 1, False), status.stdout
    assert [path for path in home.files() if shown(path.read_bytes().decode(errors="replace"), PASSWORD)] == []


def test_a_wrong_password_is_not_told_either(tmp_path: Path, server: PrivateRedis) -> None:
    home = Home(tmp_path, redisUrl=f"redis://:{WRONG}@{server.url}")

    refused = home.run("start", "-c", str(home.config))

    assert refused.returncode != 0
    assert not shown(refused.stdout, WRONG)


def test_all_files_of_a_job_are_for_their_owner_only(tmp_path: Path) -> None:
    """Also those of the Redis that `start` brings, and whatever the umask lets through."""
    home = Home(tmp_path, redisUrl=f"localhost:{free_port()}", redisPassword=PASSWORD)

    try:
        started = home.run("start", "-c", str(home.config), umask=0)
        assert started.returncode == 0, started.stdout
        wait_until(lambda: any("appendonly" in path.name for path in home.files()), "Redis has written its data")
        while_it_runs = open_to_others(home)
    finally:
        home.run("shutdown", JOB, umask=0)

    assert while_it_runs == []
    assert open_to_others(home) == []
    assert {"node.json", "node.log", "lock", "node_id"} <= {path.name for path in home.files()}


def open_to_others(home: Home) -> list[str]:
    """List the paths in the job's directory that others of this machine may read or write, each with its mode."""
    found: list[str] = []
    for path in [home.job().directory, *home.job().directory.rglob("*")]:
        with suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if mode & 0o077 and not stat.S_ISLNK(mode):
                found.append(f"{path.relative_to(home.state)} {stat.filemode(mode)}")
    return found
