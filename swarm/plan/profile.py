"""Profile of a model: what a record costs each process, as measured on one machine. A plan is made from a profile alone."""

from pathlib import Path

import msgspec

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.client.servers.process.whole_file import whole_file

CALLS = 4
"""Calls of Redis on the way of a batch: enqueue, read, finish, reply."""
PARTS = ("redis", "reader", "worker", "writer", "caller")
"""Processes on the way of a record over the queue, each with its costs."""
_US = 1e-6


class Cost(msgspec.Struct, frozen=True):
    """CPU time of a process in microseconds.

    Attributes:
        wake_us: of a call that finds the process without work, in addition.
        call_us: of a call or batch.
        record_us: of each record in the call.
    """

    wake_us: float
    call_us: float
    record_us: float

    @property
    def wake_s(self) -> float:
        """Seconds that a call takes longer if the process had no work."""
        return _US * self.wake_us

    def seconds(self, records: float, calls: float = 1) -> float:
        """Return the CPU time of some calls with a total of `records` records, for a process that always has work."""
        return _US * (self.call_us * calls + self.record_us * records)

    @classmethod
    def fitted(cls, alone_us: float, together_us: float, records: float) -> "Cost":
        """Return the costs, from the measured CPU time of a record. No part is negative, whatever noise was measured.

        Args:
            alone_us: of a record that comes alone.
            together_us: of a record among others in a call.
            records: records in such a call, more than 1.
        """
        return cls.of_call(alone_us, max(0.0, alone_us - together_us) / (1 - 1 / records), alone_us)

    def times(self, factor: float) -> "Cost":
        """Return costs that are a factor higher."""
        return Cost(*(round(factor * us, 2) for us in msgspec.structs.astuple(self)))

    @classmethod
    def of_call(cls, single_us: float, call_us: float, alone_us: float) -> "Cost":
        """Return the costs, from the CPU time of a record in a call of its own, of the call alone, and after a wait."""
        call_us = min(single_us, call_us)
        return cls(round(max(0.0, alone_us - single_us), 2), round(call_us, 2), round(single_us - call_us, 2))


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Costs of a model's records.

    Attributes:
        model: path or address of the model.
        machine: processor and cores of the machine of the measurement, for people.
        made: date of the measurement, ISO 8601.
        batch: most rows of a batch.
        threads: threads of one worker. The CPU time of a worker is that of all its threads.
        payload_bytes: size of a record on its way to Redis.
        result_bytes: size of a result on its way back.
        memory_bytes: memory of Redis that a waiting record takes.
        worker_bytes: memory of one worker.
        redis: costs of Redis for the whole way of a record: enqueueing, reading, finishing, and the reply.
        reader: costs of a reader.
        worker: costs of a worker. A call is a run of the model.
        writer: costs of a writer.
        caller: costs of the client of the measurement.
        frontend: costs of a frontend for an HTTP request. None: not measured.
        handing_us: time on the clock, beside all CPU time, from one process to the next.
    """

    model: str
    machine: str
    made: str
    batch: int
    threads: int
    payload_bytes: int
    result_bytes: int
    memory_bytes: int
    worker_bytes: int
    redis: Cost
    reader: Cost
    worker: Cost
    writer: Cost
    caller: Cost
    frontend: Cost | None = None
    handing_us: float

    @property
    def handing_s(self) -> float:
        """The same as `handing_us`, in seconds."""
        return _US * self.handing_us

    def write(self, path: Path) -> None:
        """Write a JSON file.

        Raises:
            OSError: the file cannot be written.
        """
        with whole_file(path) as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(self)) + b"\n")

    @classmethod
    def read(cls, path: Path) -> "Profile":
        """Return the profile in a JSON file.

        Raises:
            Fault: the file cannot be read, or holds no profile.
        """
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError) as error:
            raise Fault(f"{path} is no profile: {error}. Measure one with `cluster-serving swarm profile`") from error
