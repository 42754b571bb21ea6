"""Decision on when to try again, by pure arithmetic."""

import ssl

import pytest
import redis

from cluster_serving.client.errors import ConnectionLost, QueueFull, Unavailable
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.resp import cannot_serve, connection_lost
from cluster_serving.client.protocol.retrying import Attempts, may_pass
from cluster_serving.client.redis_settings import RedisSettings

FULL = QueueFull("full")


def lost(why: Exception, kind: type[ConnectionLost] = Unavailable) -> ConnectionLost:
    return connection_lost(RedisSettings(), why, kind)


def test_pauses_grow_and_end_with_the_patience() -> None:
    attempts, now_s, pauses_s = Attempts(), 0.0, list[float]()

    for _ in range(10):
        pauses_s.append(attempts.pause_s(FULL, now_s, 3.0))
        now_s += pauses_s[-1]

    assert pauses_s == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5, 0.5]
    with pytest.raises(QueueFull) as raised:
        attempts.pause_s(FULL, now_s, 3.0)
    assert raised.value is FULL


def test_without_patience_there_is_one_attempt() -> None:
    with pytest.raises(QueueFull):
        Attempts().pause_s(FULL, 5.0, 5.0)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FULL, True),
        (lost(ConnectionRefusedError("refused")), True),
        (lost(RedisRefused("LOADING Redis is loading the dataset in memory")), True),
        (lost(ConnectionResetError("reset"), ConnectionLost), False),
        (lost(redis.AuthenticationError("WRONGPASS invalid username-password pair")), False),
        (lost(RedisRefused("NOAUTH Authentication required.")), False),
        (lost(ssl.SSLCertVerificationError("self-signed certificate")), False),
    ],
)
def test_what_may_pass(error: QueueFull | ConnectionLost, expected: bool) -> None:
    assert may_pass(error) is expected


def test_what_redis_py_wraps_is_looked_into() -> None:
    wrapped = redis.ConnectionError("Error 1 connecting to localhost:6379")
    wrapped.__context__ = ssl.SSLCertVerificationError("self-signed certificate")

    assert not may_pass(lost(wrapped))


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("READONLY You can't write against a read only replica. script: x, on @user_script:16.", True),
        ("ERR Error running script (call to f_x): @user_script:16: -READONLY You can't write", True),
        ("NOREPLICAS Not enough good replicas to write.", True),
        ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", True),
        ("BUSY Redis is busy running a script.", True),
        ("ERR max number of clients reached", True),
        ("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)", True),
        ("BUSYGROUP Consumer Group name already exists", False),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", False),
        ("OOM command not allowed when used memory > 'maxmemory'.", False),
        ("NOPERM this user has no permissions to run the 'evalsha' command", False),
    ],
)
def test_who_cannot_serve_now(reply: str, expected: bool) -> None:
    assert cannot_serve(RedisRefused(reply)) is expected
