"""The job directory: what this machine knows of a job.

    <home>/<job, quoted>/         mode 0700, files 0600
        lock                      held by the supervisor for its life, says its pid: this decides "running"
        node_id                   this machine's name in the job; stays the same for ever
        node.json                 how the node was started last
        node.log                  what it printed when started in the background
        change.json               what `restart` asks the node to become; gone as soon as the node has read it
        tuned/                    what `tune` has measured: a file for each model, machine and configuration
        tune.log                  what its processes printed last
        serving                   touched every two seconds while the node serves, gone otherwise: for health checks
        change.<pid>              a pipe to that `restart`, through which the node tells how it goes
        redis/                    the embedded Redis: redis.conf, redis.pid, redis.log, its data; watch.json: its restarts;
                                  redis-check-aof: mends its append-only file
    <home>/.redis-<port>.lock     held by the process that looks for a Redis on this port and starts one

Home is `$CLUSTER_SERVING_HOME`, else `$XDG_STATE_HOME/cluster-serving`, else `~/.local/state/cluster-serving`.
It belongs to one machine: do not share it over a network.
"""

import fcntl
import hashlib
import os
import secrets
import socket
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec
import psutil

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault

_LONGEST_NAME = 180  # file systems allow 255 bytes
# A look whether the job runs takes the lock for an instant: no reason to call it taken.
_LOCK_PATIENCE_S = 0.5


class AlreadyRunning(Fault):
    """Another supervisor of this job runs on this machine."""

    exit_code = ExitCode.ALREADY_RUNNING


class ChangeRequest(msgspec.Struct, frozen=True):
    """What a running node is to become. It holds secrets, and lies in its owner's file until the node has read it."""

    config_path: str | None
    flags: list[str]  # of `start`, without the config path and without secrets
    environ: dict[str, str]  # CLUSTER_SERVING_*
    directory: str  # where relative paths of these begin
    report: str  # the pipe
    timeout_s: float


class NodeRecord(msgspec.Struct, frozen=True):
    """How a node was started: enough to find it, to stop it, and to start it again."""

    job: str
    node: str
    pid: int
    config_path: str | None
    flags: list[str]  # of `start`, without the config path
    redis: str  # for people; holds no secret
    local_redis_port: int | None  # set when Redis is a plain one on this machine
    drain_timeout_s: float
    started_ms: int
    redis_directory: str | None = None  # set when that Redis is an embedded one, of whatever job
    version: str = ""  # of the package: a process of another one cannot be changed, only stopped


def state_home(environ: Mapping[str, str]) -> Path:
    """The directory of all job directories."""
    if environ.get("CLUSTER_SERVING_HOME"):
        return Path(environ["CLUSTER_SERVING_HOME"]).absolute()
    state = environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "cluster-serving"


@dataclass(frozen=True)
class Job:
    """One job on this machine, running or not."""

    name: str
    directory: Path

    @classmethod
    def of(cls, name: str, environ: Mapping[str, str] = os.environ) -> "Job":
        """The job of this name; nothing is created."""
        return cls(name, state_home(environ) / _quoted(name))

    @property
    def lock_path(self) -> Path:
        """The file whose lock decides whether the job runs."""
        return self.directory / "lock"

    @property
    def log_path(self) -> Path:
        """What the node printed when it was started in the background."""
        return self.directory / "node.log"

    @property
    def redis_directory(self) -> Path:
        """Where the embedded Redis lives."""
        return self.directory / "redis"

    def create(self) -> None:
        """Create the directory, for its owner only.

        Raises:
            OSError: it cannot be created.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def running(self) -> bool:
        """Whether a supervisor of this job runs on this machine."""
        try:
            descriptor = os.open(self.lock_path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            return not _locked(descriptor)
        finally:
            os.close(descriptor)

    def supervisor(self) -> psutil.Process | None:
        """The supervisor, when the job runs: the process named in the lock file, if it has that file open."""
        if not self.running():
            return None
        try:
            process = psutil.Process(int(self.lock_path.read_text(encoding="ascii")))
            opened = [file.path for file in process.open_files()]
        except (OSError, ValueError, psutil.Error):
            return None
        return process if str(self.lock_path.resolve()) in opened else None

    @contextmanager
    def acquire(self) -> Generator[None]:
        """Be the supervisor of this job until the block ends.

        Raises:
            AlreadyRunning: another process is.
        """
        self.create()
        descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            deadline = time.monotonic() + _LOCK_PATIENCE_S
            while not _locked(descriptor):
                if time.monotonic() > deadline:
                    raise AlreadyRunning(f"Cluster Serving with name {self.name} already exists on this machine")
                time.sleep(0.02)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            # The file stays: who removed it could let two processes lock two files of one name.
            yield
        finally:
            os.close(descriptor)

    def record(self, record: NodeRecord) -> None:
        """Remember how the node was started."""
        self.create()
        self._write("node.json", msgspec.json.format(msgspec.json.encode(record)))

    def read(self) -> NodeRecord | None:
        """How the node was started last; None when it never was, or when the record is of another version."""
        try:
            return msgspec.json.decode((self.directory / "node.json").read_bytes(), type=NodeRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def show_serving(self, serving: bool) -> None:
        """Let a look from outside see whether the node serves."""
        sign = self.directory / "serving"
        with suppress(OSError):  # nobody will see it; no reason to stop
            if serving:
                sign.touch(mode=0o600)
            else:
                sign.unlink(missing_ok=True)

    @contextmanager
    def asking(self) -> Generator[None]:
        """Be the only one who asks the node of this job for a change, until the block ends.

        Raises:
            Fault: somebody else does.
        """
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            if not _locked(descriptor):
                raise Fault(f"another restart of job {self.name} is under way; try again when it has ended")
            try:
                yield
            finally:
                self._change_path.unlink(missing_ok=True)  # ours: nobody else asks
        finally:
            os.close(descriptor)

    @property
    def _change_path(self) -> Path:
        return self.directory / "change.json"

    def ask(self, request: ChangeRequest) -> None:
        """Leave a request for the node, which reads it on SIGHUP."""
        self._write(self._change_path.name, msgspec.json.encode(request))

    def asked(self) -> bool:
        """Whether a request lies there, as far as this user can see."""
        return os.access(self._change_path, os.F_OK)

    def take_request(self) -> ChangeRequest | None:
        """Read the request and remove it; None when there is none that can be read."""
        try:
            content = self._change_path.read_bytes()
            self._change_path.unlink()
            return msgspec.json.decode(content, type=ChangeRequest)
        except (OSError, msgspec.DecodeError):
            return None

    def node_id(self) -> str:
        """This machine's name in the job: host name and six random digits, made once."""
        file = self.directory / "node_id"
        if not file.exists():
            self.create()
            made = self._write(f"node_id.{os.getpid()}", f"{socket.gethostname()}-{secrets.token_hex(3)}".encode())
            try:
                os.link(made, file)
            except FileExistsError:
                pass  # another process was first: its name counts
            finally:
                made.unlink()
        return file.read_text(encoding="utf-8")

    def _write(self, name: str, content: bytes) -> Path:
        """Replace a file in one step."""
        file, draft = self.directory / name, self.directory / f".{name}.{os.getpid()}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
            return draft.replace(file)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(file)) from error  # a full disk names no file


def all_jobs(environ: Mapping[str, str] = os.environ) -> list[Job]:
    """Every job that this machine knows, running or not, by name."""
    home = state_home(environ)
    jobs = [Job(unquote(path.name), path) for path in home.iterdir() if path.is_dir()] if home.is_dir() else []
    named = [Job(record.job, job.directory) if (record := job.read()) else job for job in jobs]
    return sorted(named, key=lambda job: job.name)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _quoted(name: str) -> str:
    """A job's name as a file name: reversible unless very long."""
    quoted = quote(name, safe="")
    if quoted.startswith("."):
        quoted = f"%2E{quoted[1:]}"
    if len(quoted) <= _LONGEST_NAME:
        return quoted
    return f"{quoted[:100]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"
