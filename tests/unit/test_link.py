"""Commands as bytes, and replies."""

import hiredis
import pytest

from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.resp import Argument, new_reader, pack


@pytest.mark.parametrize("count", [1, 63, 64, 500])
@pytest.mark.parametrize("last", [b"", b"\r\n\x00", b"x" * 4095, b"x" * 4096, b"x" * 100_000, "ü", 12, 1.5])
def test_commands_are_what_hiredis_makes_of_them(count: int, last: Argument) -> None:
    command = [*[b"x" * (number % 20) for number in range(count - 1)], last]

    assert pack(command) == hiredis.pack_command(tuple(command))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["MOVED 2193 10.0.0.1:6379", "CROSSSLOT Keys in request don't hash to the same slot"])
def test_a_refusal_of_a_redis_cluster_says_so(text: str) -> None:
    reader = new_reader()

    reader.feed(f"-{text}\r\n".encode())
    refusal = reader.gets(False)

    assert isinstance(refusal, RedisRefused)
    assert str(refusal) == f"{text} (a Redis Cluster cannot be used: the keys of a job need one server)"
