"""Scalars of a node for TensorBoard: event files in `tensorboardDir`, a run for each start of a node.

| tag | value |
|---|---|
| `Serving Throughput` | records answered a second, of the last 10 s |
| `Total Records Number` | records answered since the start of the node |
| `Latency/p50 ms`, `Latency/p99 ms` | time from the enqueueing of a record to its result, of the last minute |

The first two tags are those of Analytics Zoo 0.7 and 0.8. The step of a point is the number of seconds since the start of the node.
"""

import os
import socket
import time
from importlib import import_module
from io import FileIO
from pathlib import Path

import structlog

from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.client.servers.process.installed import require
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.client.wire.load import Load

log = structlog.get_logger(__name__)


def check_tensorboard(directory: str) -> None:
    """Check that scalars can be written, and change nothing. An empty text asks for none.

    Raises:
        ConfigError: the directory cannot be made or written to.
        NotInstalled: the extra is missing.
    """
    if not directory:
        return
    require(["tensorboard"], "tensorboard", "tensorboardDir is set, and TensorBoard is")
    path = Path(directory)
    existing = next(each for each in (path, *path.absolute().parents) if os.path.exists(each))  # noqa: PTH110 - no PermissionError
    if not existing.is_dir():
        raise ConfigError(f"tensorboardDir is {path}, and {existing} is no directory")
    if not os.access(existing, os.W_OK | os.X_OK, effective_ids=True):
        raise ConfigError(f"tensorboardDir is {path}, and this user may not write to {existing}")


class Scalars:
    """Event file of one node.

    Args:
        directory: `tensorboardDir`. Empty: nothing is written.
        run: name of the run, behind the time of the start.
    """

    def __init__(self, directory: str, run: str) -> None:
        self._run = run
        self._directory = ""
        self._file: FileIO | None = None
        self.follow(directory)

    def follow(self, directory: str) -> None:
        """Write into a directory from now on. The same directory as before goes on with its run."""
        if directory == self._directory:
            return
        self.close()
        self._directory = directory
        if directory:
            run = Path(directory) / f"{time.strftime('%Y-%m-%dT%H.%M.%S')}-{self._run}"
            file = run / f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
            try:
                run.mkdir(parents=True, exist_ok=True)
                self._file = file.open("ab", buffering=0)
            except OSError as error:
                log.warning("no scalars for TensorBoard", reason=str(error))
            else:
                self._write(self._file, file_version="brain.Event:2")

    def add(self, beat: Heartbeat, load: Load) -> None:
        """Write a point of each scalar."""
        if self._file is None:
            return
        summary = import_module("tensorboard.compat.proto.summary_pb2").Summary
        scalars = {
            "Serving Throughput": load.records_s,
            "Total Records Number": beat.figures["answered"] + beat.figures["failed"],
            "Latency/p50 ms": load.p50_s * 1000,
            "Latency/p99 ms": load.p99_s * 1000,
        }
        points = [summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._write(self._file, step=round(time.time() - beat.started_ms / 1000), summary=summary(value=points))

    def close(self) -> None:
        """End the run."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, file: FileIO, **fields: object) -> None:
        """Write an event. A disk that takes none ends the run, and never the node."""
        # TensorBoard's `EventFileWriter` around the same two classes imports TensorFlow where there is one: 5 s, and 400 MB.
        event = import_module("tensorboard.compat.proto.event_pb2").Event(wall_time=time.time(), **fields)
        writer = import_module("tensorboard.summary.writer.record_writer").RecordWriter(file)
        try:
            writer.write(event.SerializeToString())
        except OSError as error:
            log.warning("no more scalars for TensorBoard", reason=str(error))
            self.close()
