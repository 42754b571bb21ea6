"""The job directory: everything that this machine knows of a job.

    <home>/<job, quoted>/         mode 0700, files 0600
        lock                      lock of the supervisor, with the supervisor's pid: a held lock means "running"
        node_id                   name of this machine in the job, never changed
        node.json                 record of the node's last start
        frontend.json             process of the frontend that was started beside the node
        frontend.log              output of that frontend
        node.log                  output of a node that was started in the background
        node.log.<n>              older output, 1 is the newest
        change.json               request of `restart` to the node, removed as soon as the node has read the request
        tuned/                    results of `tune`: a file for each model, machine and configuration
        tune.log                  last output of the processes of `tune`
        calibration/              records that `calibrate` has sampled (`node/calibration/folder.py`)
        calibrate.log             last output of the processes of `calibrate`
        serving                   for health checks: touched every two seconds while the node serves, otherwise absent
        change.<pid>              pipe to the `restart` with this pid, open in the node until the change has ended
        redis/                    the embedded Redis: redis.conf, redis.pid, redis.log and the data
            watch.json            restarts of the embedded Redis
            redis-check-aof       repairs the append-only file
    <home>/.proofs/               proofs that rows of a model may share a batch, of all jobs (`engines/kept_proofs.py`)
    <home>/.redis-<port>.lock     lock of the process that looks for a Redis on this port and starts one

Home is `$CLUSTER_SERVING_HOME`, else `$XDG_STATE_HOME/cluster-serving`, else `~/.local/state/cluster-serving`.
Home belongs to a single machine: do not share home over a network.
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
from cluster_serving.client.servers.process.whole_file import whole_file

_LONGEST_NAME = 180  # file systems allow 255 bytes
# `Job.running` takes the lock for an instant, so a lock counts as taken only after this time.
_LOCK_PATIENCE_S = 0.5


class AlreadyRunning(Fault):
    """Another supervisor of this job runs on this machine."""

    exit_code = ExitCode.ALREADY_RUNNING


class ChangeRequest(msgspec.Struct, frozen=True):
    """Request to a running node for a change. The file holds secrets, is for its owner only, and is removed after reading."""

    config_path: str | None
    flags: list[str]  # of `start`, without the config path and without secrets
    environ: dict[str, str]  # CLUSTER_SERVING_*
    directory: str  # directory that the relative paths above start at
    report: str  # path of the pipe
    timeout_s: float


class NodeRecord(msgspec.Struct, frozen=True):
    """Record of a node's start, with enough to find the node, stop the node, and start the node again."""

    job: str
    node: str
    pid: int
    config_path: str | None
    flags: list[str]  # of `start`, without the config path
    redis: str  # for people, without secrets
    local_redis_port: int | None  # set when Redis is a plain one on this machine
    drain_timeout_s: float
    started_ms: int
    redis_directory: str | None = None  # set when the Redis is embedded, of this job or a different job
    version: str = ""  # of the package: a node of a different version cannot be changed, only stopped


FRONTEND_DRAIN_S = 15.0
"""Default of the frontend's `drainTimeout`."""


class FrontendRecord(msgspec.Struct, frozen=True):
    """Process of a frontend that was started beside a node. The time of its creation, in seconds since boot, tells a reused pid.

    `port`: port of HTTP that was asked for (None: that of the frontend's own settings). `drain_s`: seconds that the frontend may
    take to stop.
    """

    pid: int
    born_s: float
    port: int | None = None
    drain_s: float = FRONTEND_DRAIN_S


def state_home(environ: Mapping[str, str]) -> Path:
    """Return the directory of all job directories.

    Raises:
        Fault: the environment names none, and this user has no home.
    """
    if environ.get("CLUSTER_SERVING_HOME"):
        return Path(environ["CLUSTER_SERVING_HOME"]).absolute()
    if environ.get("XDG_STATE_HOME"):
        return Path(environ["XDG_STATE_HOME"]) / "cluster-serving"
    try:
        return Path.home() / ".local" / "state" / "cluster-serving"
    except RuntimeError as error:
        raise Fault(
            "this user has no home: set CLUSTER_SERVING_HOME to a directory that this user can write"
        ) from error


@dataclass(frozen=True)
class Job:
    """Job on this machine, running or not."""

    name: str
    directory: Path

    @classmethod
    def of(cls, name: str, environ: Mapping[str, str] = os.environ) -> "Job":
        """Return the job of a name. Nothing is created.

        The directory has the quoted name of the job. `all_jobs` reverses the quoting, unless the name is very long.
        """
        home = state_home(environ)
        quoted = quote(name, safe="")
        if quoted.startswith("."):
            quoted = f"%2E{quoted[1:]}"
        if len(quoted) > _LONGEST_NAME:
            quoted = f"{quoted[:100]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        return cls(name, home / quoted)

    @property
    def lock_path(self) -> Path:
        """File whose lock decides whether the job runs."""
        return self.directory / "lock"

    @property
    def log_path(self) -> Path:
        """File with the output of a node that was started in the background."""
        return self.directory / "node.log"

    @property
    def frontend_log_path(self) -> Path:
        """File with the output of a frontend that was started beside the node."""
        return self.directory / "frontend.log"

    @property
    def redis_directory(self) -> Path:
        """Directory of the embedded Redis."""
        return self.directory / "redis"

    def proof_directory(self, model_cache: str) -> Path:
        """Return the directory of the proofs and models in INT8 that workers of all jobs keep: in `modelCache`, if that is set."""
        return (Path(model_cache) if model_cache else self.directory.parent) / ".proofs"

    def create(self) -> None:
        """Create the directory, for its owner only.

        Raises:
            Fault: the directory cannot be created.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            mend = "set CLUSTER_SERVING_HOME to a directory that this user can write"
            raise Fault(f"{error.filename}: {error.strerror}; {mend}") from error

    def running(self) -> bool:
        """Return whether a supervisor of this job runs on this machine."""
        try:
            descriptor = os.open(self.lock_path, os.O_RDWR)
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            return not _locked(descriptor)
        finally:
            os.close(descriptor)

    def supervisor(self) -> psutil.Process | None:
        """Return the supervisor of a running job: the process named in the lock file, if the process has the file open."""
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
        """Hold the supervisor's lock of this job until the block ends.

        Raises:
            AlreadyRunning: a supervisor of this job holds the lock.
        """
        self.create()
        descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            deadline = time.monotonic() + _LOCK_PATIENCE_S
            while not _locked(descriptor):
                if time.monotonic() > deadline:
                    raise AlreadyRunning(f"Cluster Serving with name {self.name} already exists on this machine")
                time.sleep(0.02)
            try:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            except OSError as error:  # of a full disk, which names no file
                raise OSError(error.errno, error.strerror, str(self.lock_path)) from error
            # The file stays: after a removal, two processes could lock two files of the same name.
            yield
        finally:
            os.close(descriptor)

    def record(self, record: NodeRecord) -> None:
        """Write the record of the node's start."""
        self.create()
        self._write("node.json", msgspec.json.format(msgspec.json.encode(record)))

    def read(self) -> NodeRecord | None:
        """Read the record of the node's last start. None: there is no record, or a different version wrote the record."""
        try:
            return msgspec.json.decode((self.directory / "node.json").read_bytes(), type=NodeRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def record_frontend(self, record: FrontendRecord) -> None:
        """Write the record of the frontend beside the node."""
        self._write("frontend.json", msgspec.json.encode(record))

    def read_frontend(self) -> FrontendRecord | None:
        """Read the record of the last frontend beside the node. None: there is no record that this version can read."""
        try:
            return msgspec.json.decode((self.directory / "frontend.json").read_bytes(), type=FrontendRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def show_serving(self, serving: bool) -> None:
        """Show health checks whether the node serves."""
        sign = self.directory / "serving"
        with suppress(OSError):  # health checks do not see the change then, but the node goes on
            if serving:
                sign.touch(mode=0o600)
            else:
                sign.unlink(missing_ok=True)

    @contextmanager
    def requesting_change(self) -> Generator[None]:
        """Hold the right to request a change of the node of this job, until the block ends.

        Raises:
            Fault: a different process requests a change.
        """
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            if not _locked(descriptor):
                raise Fault(f"another restart of job {self.name} is under way; try again when it has ended")
            try:
                yield
            finally:
                self._change_path.unlink(missing_ok=True)  # written by this process, which alone may request
        finally:
            os.close(descriptor)

    @property
    def _change_path(self) -> Path:
        return self.directory / "change.json"

    def request_change(self, request: ChangeRequest) -> None:
        """Leave a request for the node to read on SIGHUP."""
        self._write(self._change_path.name, msgspec.json.encode(request))

    def change_requested(self) -> bool:
        """Return whether a request waits, as far as this user can see."""
        return os.access(self._change_path, os.F_OK)

    def take_request(self) -> ChangeRequest | None:
        """Read the request and remove the file. None: there is no readable request."""
        try:
            content = self._change_path.read_bytes()
            self._change_path.unlink()
            return msgspec.json.decode(content, type=ChangeRequest)
        except (OSError, msgspec.DecodeError):
            return None

    def node_id(self) -> str:
        """Return the name of this machine in the job: host name and six random digits, made once."""
        file = self.directory / "node_id"
        if not file.exists() or not file.stat().st_size:  # a power loss may have left the file without its content
            self.create()
            made = self._write(f"node_id.{os.getpid()}", f"{socket.gethostname()}-{secrets.token_hex(3)}".encode())
            try:
                if file.exists():
                    made.replace(file)
                else:
                    os.link(made, file)
            except FileExistsError:
                pass  # a different process was first, so the name from that process counts
            finally:
                made.unlink(missing_ok=True)
        return file.read_text(encoding="utf-8")

    def _write(self, name: str, content: bytes) -> Path:
        """Replace a file in a single step, and return the path."""
        file = self.directory / name
        with whole_file(file, 0o600) as stream:
            stream.write(content)
        return file


def all_jobs(environ: Mapping[str, str] = os.environ) -> list[Job]:
    """Return every job that this machine knows, running or not, sorted by name."""
    home = state_home(environ)
    jobs = [Job(unquote(path.name), path) for path in home.glob("[!.]*") if path.is_dir()]
    named = [Job(record.job, job.directory) if (record := job.read()) else job for job in jobs]
    return sorted(named, key=lambda job: job.name)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
