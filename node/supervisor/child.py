"""Child process of the supervisor: its start, its ready message, and the reason of its end.

    supervisor                                   child: python -P -m cluster_serving.node.supervisor.child KIND
    Popen, environment, descriptors  ─────────►  affinity, then imports
    spec on standard input           ─────────►  KIND.main(spec, ready)
    ready pipe                       ◄─────────  {"ready": {...}} or {"failed": "...", "code": n}, and a newline

A child dies with its parent: the kernel sends SIGKILL to the child (PR_SET_PDEATHSIG), even during a hang in native code. A child
imports this module first, before numpy or a framework, so that numpy and the framework find thread counts and affinity in place.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cluster_serving.client.servers.process.exit_codes import why_ended
from cluster_serving.client.servers.process.parent import die_with_parent, leave_signals_to_parent

PR_SET_NAME = 15
PR_SET_PTRACER = 0x59616D61
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
)

# Not the millions that some systems allow: programs that close all possible descriptors would be slow.
_MOST_DESCRIPTORS = 16_384
_SPECS = {"reader": "ReaderSpec", "writer": "WriterSpec", "worker": "WorkerSpec"}


class Placement(msgspec.Struct, frozen=True):
    """Cores, threads and NUMA domain of a child.

    `cores`: the child's own cores (empty: all cores of the supervisor). `threads`: number of threads that the child's libraries
    start. `domain`: NUMA domain of the child's memory (None: the domains of its cores).
    """

    cores: tuple[int, ...] = ()
    threads: int = 1
    domain: int | None = None


def allow_descriptors() -> None:
    """Raise the limit of open files as far as allowed. Bells, pipes and children of hundreds of workers need more than 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


class Child:
    """Running child process, seen from the supervisor.

    Args:
        kind: `reader`, `writer` or `worker`: the module whose `main` runs.
        name: name in logs.
        spec: configuration sent to the child on standard input.
        placement: cores, threads and NUMA domain.
        descriptors: file descriptors that the child inherits.
        environment: further environment variables.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        spec: msgspec.Struct,
        placement: Placement,
        descriptors: Sequence[int],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.ready: dict[str, Any] | None = None
        self.failure: tuple[str, int] | None = None
        self.started_s = time.monotonic()
        self.ready_s = 0.0
        """Time of the ready message, in seconds of the monotonic clock."""
        self._buffer = b""
        self._ready_fd, write_fd = os.pipe()
        os.set_blocking(self._ready_fd, False)
        boot = {"parent": os.getpid(), "name": name, "ready_fd": write_fd, "placement": msgspec.to_builtins(placement)}
        threads = dict.fromkeys(THREAD_VARIABLES, str(placement.threads))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cluster_serving.node.supervisor.child", kind],
                stdin=subprocess.PIPE,
                env={**os.environ, **threads, **(environment or {})},
                pass_fds=(*descriptors, write_fd),
            )
        except OSError:
            os.close(self._ready_fd)
            raise
        finally:
            os.close(write_fd)
        self.pid = self._process.pid
        self.death_fd = self._watch_death()
        assert self._process.stdin is not None  # noqa: S101 - stdin=PIPE
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:  # the child died, and `reap` tells why
            stdin.write(msgspec.json.encode(boot) + b"\n" + msgspec.json.encode(spec))

    def _watch_death(self) -> int:
        try:
            return os.pidfd_open(self.pid)
        except OSError:  # without the descriptor the child's end would go unnoticed
            self._process.kill()
            self._process.wait()
            os.close(self._ready_fd)
            raise

    def fileno(self) -> int:
        """Return the ready pipe, for `select`. `hear` closes the pipe."""
        return self._ready_fd

    @property
    def booting(self) -> bool:
        """True until the child has sent `ready` or `failed`."""
        return self._ready_fd >= 0

    def hear(self) -> None:
        """Read the ready pipe, and set `ready` or `failure` when the child has sent its message."""
        while self.booting:
            try:
                chunk = os.read(self._ready_fd, 1 << 16)
            except BlockingIOError:
                return
            if not chunk:
                self._close_pipe()
                return
            self._buffer += chunk
            if not self._buffer.endswith(b"\n"):
                continue
            # Do not wait for the end of file: a process forked by the model keeps the pipe open.
            self._close_pipe()
            message = json.loads(self._buffer)
            self.ready = message.get("ready")
            self.ready_s = time.monotonic()
            if self.ready is None:
                self.failure = (message["failed"], message["code"])

    def _close_pipe(self) -> None:
        if self.booting:
            os.close(self._ready_fd)
            self._ready_fd = -1

    def signal(self, number: int) -> None:
        """Send a signal, if the child still runs."""
        self._process.send_signal(number)

    def reap(self) -> str | None:
        """Return the reason why the child ended, or None while the child runs."""
        code = self._process.poll()
        if code is None:
            return None
        return why_ended(code)

    def close(self) -> None:
        """Close the descriptors, after the child has been reaped."""
        os.close(self.death_fd)
        self._close_pipe()


def main() -> None:
    """Run as a child process: read the spec from standard input, and run the module of the given kind."""
    kind = sys.argv[1]
    die_with_parent()
    leave_signals_to_parent()
    boot = json.loads(sys.stdin.buffer.readline())
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_NAME, boot["name"].encode())  # name of the main thread in `ps` and `top`, cut to 15 bytes
    prctl(PR_SET_PTRACER, boot["parent"])  # Yama: processes of the supervisor may read the stacks (fails without Yama)
    if os.getppid() != boot["parent"]:
        sys.exit("the supervisor died while this process started")
    if boot["placement"]["cores"]:
        with contextlib.suppress(OSError):  # all of the cores have been taken away since: run on any core
            os.sched_setaffinity(0, boot["placement"]["cores"])
    if boot["placement"]["domain"] is not None:
        from cluster_serving.node.topology.memory import keep_process

        keep_process(boot["placement"]["domain"])
    ready_fd = int(boot["ready_fd"])

    def say(message: dict[str, Any]) -> None:
        os.write(ready_fd, msgspec.json.encode(message) + b"\n")
        os.close(ready_fd)

    def ready(**told: Any) -> None:
        # Only faults create reference cycles. With the default threshold a tenth of the time goes into searching for cycles.
        gc.freeze()
        gc.set_threshold(100_000)
        say({"ready": told})

    # From here on numpy and the frameworks may be imported. structlog imports rich, if installed, to colour consoles. The import
    # would take a fifth of a child's start time.
    modules: dict[str, Any] = sys.modules
    modules["rich"] = None
    from cluster_serving.client.servers.process.exit_codes import ExitCode
    from cluster_serving.client.servers.process.log import configure

    del modules["rich"]  # models may use rich
    from cluster_serving.client.servers.process.redaction import hide, secrets_of_spec
    from cluster_serving.node.models.base import ModelError

    configure(boot["name"])
    spec_type = getattr(importlib.import_module(f"cluster_serving.node.{kind}.spec"), _SPECS[kind])
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=spec_type)
    hide(*secrets_of_spec(spec))
    run = importlib.import_module(f"cluster_serving.node.{kind}.{kind}").main
    try:
        run(spec, ready)
    except ModelError as error:
        say({"failed": str(error), "code": int(ExitCode.MODEL)})
        sys.exit(ExitCode.MODEL)


if __name__ == "__main__":
    main()
