"""Ten thousand records, one in a hundred of them bad: each bad one gets its own error, every other one its right answer."""

import base64
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np
import pytest
import redis

from cluster_serving.client import ErrorCode, InputQueue, OutputQueue, keys
from cluster_serving.client.wire.result import Result
from cluster_serving.client.wire.tensors import encode_tensor
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.ring.ring import State
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.slots import slot_states
from support.wait import wait_until

JOB = "bad_records"
RECORDS, BAD, ODD_URIS, CLIENTS = 10_000, 100, 40, 4

Raw = dict[bytes, bytes]


def row(*values: float) -> bytes:
    return encode_tensor(np.array(values, np.float32))


def native(**data: Any) -> Raw:
    """Return the fields that the client writes for these inputs, without the uri."""
    _, _, *fields = encode_record("-", data)
    return dict(zip(fields[::2], fields[1::2], strict=True))


def half_a_jpeg() -> bytes:
    jpeg = cv2.imencode(".jpg", np.zeros((64, 64, 3), np.uint8))[1].tobytes()
    return jpeg[: len(jpeg) // 2]


GOOD = row(1, 2, 3, 4)

# What is wrong: the fields that say so, and what the answer must say.
KINDS: dict[str, tuple[Raw, str]] = {
    "wrong shape": (native(x=np.zeros(3, np.float32)), "input 'x' takes float32 [4] a record, not float32 [3]"),
    "no rows": (native(x=np.zeros((0, 4), np.float32)), "input 'x' takes float32 [4] a record, not float32 [0, 4]"),
    "an integer that float32 has not": (
        native(x=np.array([0, 2**53 + 1, 0, 0])),
        "input 'x' takes float32, and 9007199254740993 of int64 would be lost in it",
    ),
    "a float that becomes infinite": (native(x=np.full(4, 1e300)), "1e+300 of float64 would be lost in it"),
    "text dtype": (native(x=np.array(["1", "2", "3", "4"])), "input 'x' takes float32 [N,4], not text"),
    "text in a tensor field": ({b"tensor:x": b"[1, 2, 3, 4]"}, "not a tensor message"),
    "a field that is empty": ({b"tensor:x": b""}, "not a tensor message"),
    "text that is not JSON": ({b"string:x": b"\xff{"}, "input 'x' takes float32 [N,4], not text"),
    "one input too many": (native(x=np.zeros(4), z=1.0), "inputs are 'x', 'z'; the model takes x float32 [N,4]"),
    "a kind of field that does not exist": ({b"picture:x": GOOD}, "inputs are none; the model takes x float32 [N,4]"),
    "a tensor without its end": ({b"tensor:x": GOOD[:-5]}, "the tensor is truncated: 11 bytes of data where"),
    "a tensor without its header": ({b"tensor:x": GOOD[:24]}, "a truncated one"),
    "half a JPEG": (native(x=half_a_jpeg()), "the input x float32 [N,4] takes no image"),
    "nothing but a uri": ({}, "inputs are none; the model takes x float32 [N,4]"),
    "an index outside": (native(x=[np.array([[7]]), np.ones(1), np.array([4])]), "sparse index [7] lies outside shape"),
    "half of a sparse tensor": ({b"sparse.values:x": GOOD}, "the record has only sparse.values:x"),
    "a shape of a terabyte": (
        native(x=[np.zeros((1, 0), int), np.zeros(0), np.array([1 << 37])]),
        "shape [137438953472] has 1099511627776 bytes",
    ),
    "a foreign reply stream": ({b"tensor:x": GOOD, b"reply": b"somebody"}, "the reply stream must begin with"),
    "a deadline that is no number": (
        {b"tensor:x": GOOD, b"deadline": b"soon"},
        "the record's deadline is b'soon', not a",
    ),
    "a long unknown name": (
        {b"tensor:" + "\u00fc\U0001d11e".encode() * 2000: b""} | native(x=1.0),
        "inputs are '\u00fc\U0001d11e",
    ),
    "original: not base64": ({b"data": b"*** no base64 ***"}, "base64"),
    "original: not Arrow": ({b"data": base64.b64encode(bytes(100))}, "Arrow"),
    "original: not JSON": ({b"data": b"{", b"serde": b"stream"}, "the record is not JSON"),
    "original: wrong shape": (
        {b"data": json.dumps({"instances": [{"x": [1.0, 2.0]}]}).encode(), b"serde": b"stream"},
        "input 'x' takes float32 [4] a record, not float32 [2]",
    ),
}
# What is wrong with the uri: the answer lies under the entry's id.
URIS: dict[str, tuple[Raw, str]] = {
    "no uri": ({b"tensor:x": GOOD}, "the record's uri has 0 bytes, it must have 1 to 4096"),
    "an empty uri": ({b"uri": b"", b"tensor:x": GOOD}, "the record's uri has 0 bytes, it must have 1 to 4096"),
    "a uri too long": ({b"uri": b"u" * 5000, b"tensor:x": GOOD}, "the record's uri has 5000 bytes"),
    "a uri that is not UTF-8": ({b"uri": b"\xff\xfe", b"tensor:x": GOOD}, "the record's uri is not UTF-8"),
    "nothing at all": ({b"nothing": b""}, "the record's uri has 0 bytes"),
}
ODD: dict[str, Callable[[int], str]] = {
    "512 bytes": lambda n: f"{n:-<512}",
    "4096 bytes": lambda n: f"{n:-<4096}",
    "a colon": lambda n: f"{n}:a:b",
    "spaces": lambda n: f" {n} and more ",
    "Unicode": lambda n: f"{n} \u00fc\u20ac\U0001f600\u0645",
    "a pattern": lambda n: f"{n}*?[a-z]\\",
    "lines": lambda n: f"{n}\r\n\0\t",
}


class Records:
    """Numbered records: record `n` is good and holds `n`, unless chance has made it bad."""

    def __init__(self, chance: random.Random) -> None:
        drawn = chance.sample(range(RECORDS), BAD + ODD_URIS)
        bad = [*KINDS, *URIS]
        self.bad = {n: bad[at % len(bad)] for at, n in enumerate(drawn[:BAD])}
        odd = list(ODD.values())
        self._odd = {n: odd[at % len(odd)](n) for at, n in enumerate(drawn[BAD:])}
        self.expected = {self.uri(n): n for n in range(RECORDS) if n not in self.bad}
        self.messages = {self.uri(n): KINDS[kind] for n, kind in self.bad.items() if kind in KINDS}

    def uri(self, n: int) -> str:
        """Of one record."""
        return self._odd.get(n, f"r{n}")

    def send(self, port: int, numbers: Sequence[int]) -> Mapping[str, tuple[Raw, str]]:
        """Send some, in order, as one client; the bad ones as no client of ours would, one by one.

        Returns:
            For those without a usable uri the ids of their entries, and what is wrong with them.
        """
        ids: dict[str, tuple[Raw, str]] = {}
        good: list[int] = []
        with InputQueue(port=port, name=JOB) as queue, redis.Redis(port=port) as client:

            def send_good() -> None:
                queue.enqueue_many((self.uri(n), {"x": np.array([n, 1, 0, 0], np.float32)}) for n in good)
                good.clear()

            for n in numbers:
                kind = self.bad.get(n)
                if kind is None:
                    good.append(n)
                    continue
                send_good()
                if kind in KINDS:
                    add(client, {b"uri": self.uri(n).encode(), **KINDS[kind][0]})
                else:
                    ids[add(client, URIS[kind][0])] = URIS[kind]
            send_good()
        return ids


def add(client: redis.Redis, fields: Raw) -> str:
    """Write an entry as it is; its id."""
    entry_id = client.xadd(JOB, cast(dict[Any, Any], fields))
    return entry_id.decode() if isinstance(entry_id, bytes) else entry_id


@pytest.fixture
def node(own_redis: PrivateRedis, tmp_path: Path) -> Iterator[RunningNode]:
    settings = {"modelPath": str(MODELS / "affine.py"), "jobName": JOB, "batchSize": 16, "modelParallelism": 2}
    with running_node(tmp_path / "node", own_redis, **settings) as node:
        yield node


def taken(server: PrivateRedis) -> dict[str, Result]:
    """Every result by uri, taken off as it comes; none comes twice."""
    answers: dict[str, Result] = {}
    with OutputQueue(port=server.port, name=JOB) as output:
        for result in output.results(timeout=120):
            assert result.uri not in answers, f"{result.uri!r} was answered twice"
            answers[result.uri] = result
            if len(answers) == RECORDS:
                break
    return answers


def settled(node: RunningNode, server: PrivateRedis) -> None:
    """Nothing is left: no entry, none pending, no result, every slot of the ring free; and no child has died on the way."""
    with server.client() as client:
        wait_until(lambda: client.xlen(JOB) == 0, "the stream is empty")
        assert client.xpending(JOB, keys.GROUP)["pending"] == 0
        left = {key for key in client.keys("*") if b"node_" not in key}
        left.discard(keys.slow_key(JOB).encode())  # of a record that took long
        assert left == {JOB.encode(), keys.limits_key(JOB).encode(), keys.NODES.encode()}
    wait_until(lambda: slot_states(node.process.pid) == {State.FREE}, "every slot is free")
    beat = wait_until(lambda: beat if is_counted(beat := node.heartbeat()) else {}, "all have been counted")
    assert (beat["read"], beat["answered"], beat["failed"]) == (RECORDS, RECORDS - BAD, BAD)
    assert (beat["restarts"], beat["redelivered"], beat["repeated"]) == (0, 0, 0)
    assert "Traceback" not in node.log


def is_counted(beat: dict[str, Any]) -> bool:
    """Return whether a heartbeat counts every answer: the reader counts a record before, and the heartbeat may lie between."""
    return bool(beat) and beat["answered"] + beat["failed"] >= RECORDS


def test_one_bad_record_in_a_hundred_spoils_no_other(node: RunningNode, own_redis: PrivateRedis) -> None:
    seed = int(os.environ.get("TEST_SEED") or time.time_ns() % 2**32)
    print(f"TEST_SEED={seed}")
    records = Records(random.Random(seed))
    shares = [range(first, RECORDS, CLIENTS) for first in range(CLIENTS)]

    with ThreadPoolExecutor(CLIENTS + 1) as threads:
        reading = threads.submit(taken, own_redis)
        sending = [threads.submit(records.send, own_redis.port, share) for share in shares]
        ids = {entry_id: wrong for sent in sending for entry_id, wrong in sent.result().items()}
        answers = reading.result()

    wrong = records.messages | ids
    assert len(wrong) == BAD
    assert answers.keys() == records.expected.keys() | wrong.keys()
    for uri, (_, message) in wrong.items():
        assert answers[uri].error is not None, (uri, message)
        code, reason = answers[uri].error or ("", "")
        assert code == ErrorCode.INVALID_INPUT
        assert message in reason
    for uri, n in records.expected.items():
        assert answers[uri].error is None, (uri, answers[uri].error)
        np.testing.assert_array_equal(answers[uri].outputs["y"], [2 * n + 1, 3, 1, 1])
        assert answers[uri].outputs["total"] == n + 1
    settled(node, own_redis)
    assert node.stop() == 0


def test_records_larger_than_a_slot_are_read_one_at_a_time(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """They would fill the reader, and Redis' output buffer: a reply has as many as are asked for, whatever they weigh."""
    large_mb, records = 16, 16
    with own_redis.client() as client:
        for n in range(records):
            client.xadd(JOB, {"uri": f"large-{n}", "tensor:x": bytes(large_mb << 20)})
    settings = {"modelPath": str(MODELS / "affine.py"), "jobName": JOB, "batchSize": records, "slotBytes": 1 << 20}
    with running_node(tmp_path / "node", own_redis, **settings) as node:
        answers: dict[str, Any] = {}
        with OutputQueue(port=own_redis.port, name=JOB) as output:
            wait_until(lambda: answers.update(output.dequeue()) or len(answers) == records, "every answer")
        (reader,) = node.children("reader")
        status = Path(f"/proc/{reader.pid}/status").read_text()
        peak_mb = int(status.partition("VmHWM:")[2].split()[0]) >> 10

    assert peak_mb < 100 + records * large_mb // 2
    assert {answer.code for answer in answers.values()} == {ErrorCode.INVALID_INPUT}


def test_long_messages_of_wide_characters_fit_into_the_ring(node: RunningNode, own_redis: PrivateRedis) -> None:
    """A message is cut by its bytes: a reader that counts characters dies of these, and its successor of the same."""
    name = "\U0001d11e".encode() * 2000
    with own_redis.client() as client, OutputQueue(port=own_redis.port, name=JOB) as output:
        pipe = client.pipeline(transaction=False)
        for n in range(200):
            pipe.xadd(JOB, {"uri": f"w{n}", b"tensor:" + name: b"", b"tensor:x": GOOD})
        pipe.execute()
        answers: dict[str, Any] = {}

        def all_there() -> bool:
            answers.update(output.dequeue())
            return len(answers) == 200

        wait_until(all_there, "every answer")

    assert all(answer.reason.startswith("the record's inputs are '\U0001d11e") for answer in answers.values())
    assert node.heartbeat()["restarts"] == 0
