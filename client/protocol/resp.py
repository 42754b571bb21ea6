"""Redis protocol: packed commands, scripts, and the meaning of error replies."""

import errno
import hashlib
import re
import ssl
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import hiredis
import redis
import redis.exceptions

from cluster_serving.client.errors import ConnectionLost, Unavailable
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.redis_settings import RedisSettings

Argument = bytes | str | int | float
# Text between two arguments of a command: the length of the second argument.
_SHORT = 4096
_LENGTHS = [b"\r\n$%d\r\n" % size for size in range(_SHORT)]
_MANY = 64
_TEXTS = frozenset((bytes, str))


def pack(command: Sequence[Argument]) -> bytes:
    """Return the bytes of one command.

    Many arguments, if all are bytes, are packed here in less than half of the time that hiredis takes.
    """
    if len(command) >= _MANY:
        with suppress(TypeError):
            return b"".join((b"*%d" % len(command), *bulks(cast(Sequence[bytes], command)), b"\r\n"))
    if not _TEXTS.issuperset(map(type, command)):
        # hiredis kills the interpreter if a signal handler raises an exception while hiredis packs a number.
        command = [str(value) if isinstance(value, (int, float)) else value for value in command]
    # hiredis annotates the argument as a tuple of exactly one item.
    packed: bytes = cast(Any, hiredis).pack_command(tuple(command))
    return packed


def bulks(values: Sequence[bytes]) -> list[bytes]:
    """Return values in the form of a command, each after its length. The caller appends the last end of line."""
    parts = [b""] * (2 * len(values))
    parts[::2] = [_LENGTHS[size] if size < _SHORT else b"\r\n$%d\r\n" % size for size in map(len, values)]
    parts[1::2] = values
    return parts


@dataclass(frozen=True, slots=True)
class Packet:
    """Commands that are sent together: their bytes, in parts, and the number of replies."""

    parts: Sequence[bytes]
    replies: int


Command = Sequence[Argument] | Packet


def joined(commands: Iterable[Command]) -> tuple[bytes, int]:
    """Return the bytes of the commands, and the number of the replies to them."""
    parts: list[bytes] = []
    replies = 0
    for command in commands:
        if isinstance(command, Packet):
            parts += command.parts
            replies += command.replies
        else:
            parts.append(pack(command))
            replies += 1
    return b"".join(parts), replies


class Script:
    """Lua script, known to Redis by the SHA-1 of its text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest().encode()

    def command(self, keys: Sequence[Argument], arguments: Sequence[Argument]) -> tuple[Argument, ...]:
        """Return the command that runs the script, for a Redis that already knows the script."""
        return (b"EVALSHA", self.sha, b"%d" % len(keys), *keys, *arguments)


def connection_lost(
    settings: RedisSettings, error: Exception, kind: type[ConnectionLost], *, is_cut: bool = False
) -> ConnectionLost:
    """Return the error of the given type for a connection that broke or could not be made, or for a Redis unable to serve.

    The message contains the cause, so that the error is raised `from None`: the tracebacks of redis-py have sixty lines.

    Args:
        settings: address of Redis.
        error: the cause.
        kind: type of the error. `Unavailable` if the connection could not be made.
        is_cut: True for a connection to a former master.
    """
    why = str(error)
    if is_cut:
        why = "another Redis has become the master"
    elif kind is Unavailable and isinstance(error, (redis.TimeoutError, redis.InvalidResponse)):
        why = f"something that is no Redis{' with TLS' if settings.tls else ''} answers, or nothing does"
    elif isinstance(error, (BlockingIOError, TimeoutError)):
        why = "no reply in time"
    elif wants_password(error):
        why = "it wants a password: give it in the URL, or as `password`"
    elif refuses_writes(why):
        why = "MISCONF: it cannot write its files, and refuses writes until it can; its own log says why"
    elif f"Error {errno.ECONNREFUSED} " in why and not settings.is_local_default:
        why += " The Redis that `serve` and `start` run listens on its own machine alone."
    return kind(f"Redis at {settings.describe()}: {why}", final=_is_final(error))


def abandoned() -> ConnectionLost:
    """Return the error of a call that waits for nothing any more, without a fault of Redis."""
    return ConnectionLost("a `close` of the queue, a fork, or an interrupt ended the call")


def of_parent() -> ConnectionLost:
    """Return the error of a link in the child of a fork: link and connection belong to the parent."""
    return Unavailable("the call began before a fork, in the parent process", final=True)


def of_other_loop() -> ConnectionLost:
    """Return the error of a link whose connection belongs to another event loop."""
    return Unavailable(
        "the queue belongs to another event loop: make one queue in each, and close it there", final=True
    )


def _is_final(error: BaseException | None) -> bool:
    """Return whether the cause of an error is a wrong password or certificate."""
    while error is not None:
        if isinstance(error, (redis.AuthenticationError, ssl.SSLCertVerificationError)) or wants_password(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def cannot_serve(refusal: redis.ResponseError) -> bool:
    """Return whether Redis cannot serve now, or not serve this client: it is loading, is a replica, or requires a password.

    Redis has then not executed the command.
    """
    return _CANNOT_SERVE.search(str(refusal)) is not None


def wants_password(error: BaseException) -> bool:
    """Return whether Redis answered that the client must log in first."""
    # redis-py cuts NOAUTH off the text.
    return str(error).startswith("NOAUTH") or getattr(error, "status_code", None) == "NOAUTH"


def refuses_writes(reply: object) -> bool:
    """Return whether a reply or error says that Redis cannot write its files. It refuses writes then, and PING."""
    return "MISCONF " in str(reply)


def is_out_of_memory(refusal: redis.ResponseError) -> bool:
    """Return whether Redis refused a command for lack of memory."""
    return "OOM " in str(refusal)


def is_unknown_script(refusal: RedisRefused) -> bool:
    """Return whether Redis does not know the script."""
    return str(refusal).startswith("NOSCRIPT")


# Searched in the whole text, because Redis 6 puts the error of a script's command into the middle of the script's error.
_CANNOT_SERVE = re.compile(
    r"\b(LOADING|READONLY|MASTERDOWN|NOREPLICAS|MISCONF|BUSY|UNBLOCKED|CLUSTERDOWN|TRYAGAIN|NOAUTH|max number of clients) "
)
INCOMPLETE = object()
"""Value that a parser returns while a reply is incomplete."""


def new_reader() -> Any:
    """Return a parser of replies. An error reply is a `RedisRefused`, returned and not raised."""
    return hiredis.Reader(protocolError=redis.exceptions.InvalidResponse, replyError=_refusal, notEnoughData=INCOMPLETE)


def _refusal(text: str) -> RedisRefused:
    is_cluster = text.startswith(("MOVED ", "CROSSSLOT "))
    return RedisRefused(
        f"{text} (a Redis Cluster cannot be used: the keys of a job need one server)" if is_cluster else text
    )
