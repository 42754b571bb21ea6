"""Commands as bytes, scripts, and what error replies mean."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import hiredis
import redis
import redis.exceptions
from redis.sentinel import MasterNotFoundError

from cluster_serving.client.errors import ConnectionLost, RedisRefused
from cluster_serving.client.redis_settings import RedisSettings

Argument = bytes | str | int | float
# What stands between two arguments of a command: how long the second is.
_SHORT = 4096
_LENGTHS = [b"\r\n$%d\r\n" % size for size in range(_SHORT)]
_MANY = 64


def pack(command: Sequence[Argument]) -> bytes:
    """The bytes of one command; of many arguments, if all are bytes, in less than half of the time that hiredis takes."""
    if len(command) >= _MANY:
        with suppress(TypeError):
            return _pack_bytes(cast(Sequence[bytes], command))
    packed: bytes = cast(Any, hiredis).pack_command(tuple(command))  # annotated as taking a tuple of exactly one
    return packed


def _pack_bytes(command: Sequence[bytes]) -> bytes:
    return b"".join((b"*%d" % len(command), *bulks(command), b"\r\n"))


def bulks(values: Sequence[bytes]) -> list[bytes]:
    """Values as they stand in a command, each behind its length; the end of the line is still to come."""
    parts = [b""] * (2 * len(values))
    parts[::2] = [_LENGTHS[size] if size < _SHORT else b"\r\n$%d\r\n" % size for size in map(len, values)]
    parts[1::2] = values
    return parts


@dataclass(frozen=True, slots=True)
class Packet:
    """Commands that go out together: their bytes, in parts, and how many replies they have."""

    parts: Sequence[bytes]
    replies: int


Command = Sequence[Argument] | Packet


def executed(replies: Sequence[Any]) -> list[Any]:
    """What EXEC gives, of the replies to a transaction.

    Raises:
        RedisRefused: Redis refused a command, and so discarded all of them.
    """
    for reply in replies:
        if isinstance(reply, RedisRefused):
            raise reply
    return cast(list[Any], replies[-1])


def joined(commands: Iterable[Command]) -> bytes:
    """The bytes of these commands."""
    parts: list[bytes] = []
    for command in commands:
        if isinstance(command, Packet):
            parts += command.parts
        else:
            parts.append(pack(command))
    return b"".join(parts)


class Script:
    """A Lua script, known to Redis by the SHA-1 of its text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest().encode()

    def command(self, keys: Sequence[Argument], arguments: Sequence[Argument]) -> tuple[Argument, ...]:
        """The command that runs it, where Redis knows it already."""
        return (b"EVALSHA", self.sha, b"%d" % len(keys), *keys, *arguments)


def connection_lost(settings: RedisSettings, error: Exception, *, unsent: bool) -> ConnectionLost:
    """The error for a connection that broke, or could not be made, or to a Redis that cannot serve."""
    why = str(error)
    if isinstance(error, (BlockingIOError, TimeoutError)):
        why = "no reply in time"
    elif isinstance(error, MasterNotFoundError):
        why = f"no Sentinel answers that knows a master named {settings.service}"
    elif wants_password(error):
        why = "it wants a password: give it in the URL, or as `password`"
    lost = ConnectionLost(f"Redis at {settings.describe()}: {why}", unsent=unsent)
    lost.__cause__ = error
    return lost


def cannot_serve(refusal: RedisRefused) -> bool:
    """Whether this Redis serves nobody now, or not this client: it loads, is a replica, wants a password. It has done nothing."""
    return _CANNOT_SERVE.search(str(refusal)) is not None


def wants_password(error: BaseException) -> bool:
    """Whether Redis answered that the client has to log in first."""
    return str(error).startswith("NOAUTH") or getattr(error, "status_code", None) == "NOAUTH"  # redis-py cuts it off


def is_out_of_memory(refusal: redis.ResponseError) -> bool:
    """Whether Redis refused a command for want of memory."""
    return "OOM " in str(refusal)


def is_unknown_script(refusal: RedisRefused) -> bool:
    """Whether Redis does not know the script yet, or any more."""
    return str(refusal).startswith("NOSCRIPT")


# Not only at the beginning: Redis 6 puts the errors of a script's commands in the middle of its own.
_CANNOT_SERVE = re.compile(
    r"\b(LOADING|READONLY|MASTERDOWN|NOREPLICAS|MISCONF|BUSY|CLUSTERDOWN|TRYAGAIN|NOAUTH|max number of clients) "
)
INCOMPLETE = object()
"""What a reader gives while a reply has not come whole."""


def new_reader() -> Any:
    """A parser of replies; an error reply is a `RedisRefused`, given and not raised."""
    return hiredis.Reader(
        protocolError=redis.exceptions.InvalidResponse, replyError=RedisRefused, notEnoughData=INCOMPLETE
    )
