"""Child process of the supervisor: a reader, a writer, a worker or a shadow in its place on the machine.

    supervisor                                   child: python -P -m cluster_serving.node.supervisor.child KIND
    Child, with thread counts        ─────────►  starts, and imports this module
    placement on standard input      ─────────►  affinity, memory policy, then imports
    spec on standard input           ─────────►  KIND.main(spec, ready)
    ready pipe                       ◄─────────  ready, with the facts that KIND tells, or the fault of the model

A child imports this module first, before numpy or a framework, so that numpy and the framework find thread counts and affinity in
place. The messages of a child and its parent are drawn in client/servers/process/child.py.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cluster_serving.client.servers.process import child
from cluster_serving.client.servers.process.parent import Parent
from cluster_serving.client.servers.process.quick_imports import import_lean, make_imports_quick

if TYPE_CHECKING:
    from cluster_serving.node.supervisor.stderr import StandardError

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
_SPECS = {"reader": "ReaderSpec", "writer": "WriterSpec", "worker": "WorkerSpec", "shadow": "ShadowSpec"}


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


class Child(child.Child):
    """Reader, writer, worker or shadow of a node, seen from the supervisor.

    Args:
        kind: `reader`, `writer`, `worker` or `shadow`: the module whose `main` runs.
        name: name in logs, and in `ps`.
        spec: configuration of the child.
        placement: cores, threads and NUMA domain.
        descriptors: file descriptors that the child inherits.
        errors: receiver of the child's standard error.
        environment: further environment variables.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        spec: msgspec.Struct,
        placement: Placement,
        descriptors: Sequence[int],
        errors: "StandardError",
        environment: Mapping[str, str],
    ) -> None:
        try:
            super().__init__(
                name,
                ["cluster_serving.node.supervisor.child", kind],
                msgspec.json.encode(placement) + b"\n" + msgspec.json.encode(spec),
                descriptors,
                dict.fromkeys(THREAD_VARIABLES, str(placement.threads)) | dict(environment),
                errors.for_child,
            )
        finally:
            errors.close_for_child()
        self.kind = kind
        self._errors = errors

    def close(self) -> None:
        """Close the descriptors, after the child has been reaped and its last words have been passed on."""
        self._errors.join()
        super().close()


def main() -> None:
    """Run as a child process: read the spec from standard input, and run the module of the given kind."""
    kind = sys.argv[1]
    parent = Parent()
    placement = msgspec.json.decode(sys.stdin.buffer.readline(), type=Placement)
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_NAME, parent.child_name.encode())  # name of the main thread in `ps` and `top`, cut to 15 bytes
    prctl(PR_SET_PTRACER, parent.pid)  # Yama: processes of the supervisor may read the stacks (fails without Yama)
    if placement.cores:
        with contextlib.suppress(OSError):  # all of the cores have been taken away since: run on any core
            os.sched_setaffinity(0, placement.cores)
    if placement.domain is not None:
        from cluster_serving.node.topology.memory import keep_process

        keep_process(placement.domain)

    # From here on numpy and the frameworks may be imported.
    make_imports_quick()
    import_lean("structlog", *(() if kind in {"worker", "shadow"} else ("redis",)))
    from cluster_serving.client.servers.process.exit_codes import ExitCode
    from cluster_serving.client.servers.process.log import configure
    from cluster_serving.client.servers.process.redaction import hide, secrets_of_spec
    from cluster_serving.node.models.base import ModelError

    configure(parent.child_name)
    spec_type = getattr(importlib.import_module(f"cluster_serving.node.{kind}.spec"), _SPECS[kind])
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=spec_type)
    hide(*secrets_of_spec(spec))

    def ready(**facts: Any) -> None:
        # Only faults create reference cycles, so the threshold of `make_imports_quick` stays: with Python's own a tenth of the
        # time goes into searching for cycles.
        gc.freeze()
        parent.tell_ready(**facts)

    try:
        importlib.import_module(f"cluster_serving.node.{kind}.{kind}").main(spec, ready)
    except ModelError as error:
        parent.tell_failure(str(error), ExitCode.MODEL)
        sys.exit(ExitCode.MODEL)


if __name__ == "__main__":
    main()
