"""Records that wait in the old stream: tried, and left to the servers that they are for."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from click.testing import CliRunner

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.client.wire.original.encode import encode_record
from cluster_serving.node.commands.migrate import migrate
from support.private_redis import PrivateRedis, free_port

JOB = "old-stream"
GOOD: dict[Any, Any] = {"data": encode_record({"t": np.zeros((2, 3))})}


@pytest.fixture
def client(redis_server: PrivateRedis) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        yield client
        client.delete(JOB, "image_stream")


@pytest.fixture
def old(tmp_path: Path) -> str:
    file = tmp_path / "old.yaml"
    file.write_text(f"model: {{path: /m, name: {JOB}}}\ndata: {{src: elsewhere:6379}}\n")
    return str(file)


def test_the_first_faults_are_told_by_reason(client: redis.Redis, redis_server: PrivateRedis, old: str) -> None:
    client.xgroup_create(JOB, "serving", mkstream=True)
    for number in range(300):
        client.xadd(JOB, {"uri": f"r{number}", **GOOD} if number % 100 else {"uri": f"r{number}", "data": "//"})
    client.xadd(JOB, {"uri": "json", "serde": "stream", "data": '{"instances": [{"t": [1.5]}]}'})
    client.xadd("image_stream", {"uri": "old", "image": base64.b64encode(b"\xff\xd8\xff")})
    before = client.xinfo_stream(JOB), client.xinfo_groups(JOB)

    done = CliRunner().invoke(migrate, [old, "--dry-run", "--redis-url", redis_server.url])

    assert done.exit_code == ExitCode.FAILED
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{JOB} at ")
    assert lines[0].endswith(": 301 records, 298 can be read, 3 cannot.")
    assert lines[1].startswith("  3 x ")
    assert lines[2].startswith("      first: r0, entry ")
    assert lines[3].startswith("image_stream at ")
    assert lines[3].endswith(": 1 records, all can be read.")
    assert (client.xinfo_stream(JOB), client.xinfo_groups(JOB)) == before


def test_of_a_long_stream_the_oldest_records_are_tried(
    client: redis.Redis, redis_server: PrivateRedis, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster_serving.node.commands.migration_trial._MOST", 1)
    for number in range(300):
        client.xadd(JOB, {"uri": f"r{number}", **GOOD})

    done = CliRunner().invoke(migrate, [old, "--dry-run", "--redis-url", redis_server.url])

    assert done.exit_code == ExitCode.OK
    assert ": the oldest 256 of 300 records, all can be read." in done.stdout


def test_an_empty_stream_and_a_redis_that_is_not_there(redis_server: PrivateRedis, old: str) -> None:
    empty = CliRunner().invoke(migrate, [old, "--dry-run", "--redis-url", redis_server.url])
    absent = CliRunner().invoke(migrate, [old, "--dry-run", "--redis-url", f"localhost:{free_port()}"])

    assert (empty.exit_code, absent.exit_code) == (ExitCode.OK, ExitCode.REDIS)
    assert "holds no record: none waits, or the name or the address is another." in empty.stdout
    assert "check --redis-url" in absent.stderr
