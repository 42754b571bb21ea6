"""One connection to Redis for raw commands and scripts.

redis-py connects (password, TLS, Unix socket, Sentinel). hiredis packs the commands and parses the replies. No command is
repeated behind the caller's back, because redis-py's own retries would send an XADD twice.
"""

import select
import socket
import ssl
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

import redis
import redis.exceptions

from cluster_serving.client.errors import ConnectionLost, RedisRefused, Unavailable
from cluster_serving.client.protocol.resp import (
    INCOMPLETE,
    Argument,
    Command,
    Script,
    cannot_serve,
    connection_lost,
    count_replies,
    is_unknown_script,
    joined,
    new_reader,
)
from cluster_serving.client.redis_settings import READ_BYTES, RedisSettings


class Link:
    """One connection to Redis for raw commands, pipelined if wanted. Not for use by two threads at once.

    redis-py connects and logs in. From then on the link reads and writes the socket itself, with one system call per packet. With
    redis-py's own reading (poll, receive, set the timeout and set it back) the floor of bench/queue.py was a tenth lower.
    The link connects at the first command, and again at the first command after `ConnectionLost`.

    Args:
        settings: address of Redis, and login.
        patience_s: seconds that a reply may take, longer than any command blocks. Default: the settings' timeout.

    Attributes:
        connections: number of connections made.
        received_bytes: number of bytes received as replies.

    Raises:
        ConnectionLost: from every method that talks to Redis. Commands and replies under way are lost.
        RedisRefused: Redis refused the command.
    """

    def __init__(self, settings: RedisSettings, patience_s: float | None = None) -> None:
        self._settings = settings
        self._patience_s = settings.timeout_s if patience_s is None else patience_s
        self._connection: Any = None
        self._socket: Any = None
        self._news = select.poll()
        self._reader = new_reader()
        self._buffer = bytearray(READ_BYTES)
        self.connections = self.received_bytes = 0

    @property
    def timeout_s(self) -> float:
        """Seconds that a reply may take, according to the settings."""
        return self._settings.timeout_s

    @property
    def connected(self) -> bool:
        """True while there is a connection."""
        return self._connection is not None

    def fileno(self) -> int:
        """Return the file descriptor of the socket, for `select`. Connect first if there is no connection."""
        self.connect()
        return int(self._socket.fileno())

    def send(self, *commands: Command) -> None:
        """Send commands in one write. Each command has one reply to `read`, a packet has `Packet.replies` replies."""
        if self._connection is None:
            self.connect()
        try:
            self._socket.sendall(joined(commands))
        except OSError as error:
            raise self._lost(error) from None
        except BaseException:
            self.close()
            raise

    def read(self) -> Any:
        """Return the next reply. Bytes stay bytes."""
        reply = self._next()
        if isinstance(reply, RedisRefused):
            self.raise_for(reply)
        return reply

    def read_all(self, count: int) -> list[Any]:
        """Return the next `count` replies. An error reply stands in the list as `RedisRefused`."""
        try:
            return [self._next() for _ in range(count)]
        except BaseException:
            self.close()  # interrupted between two replies: the remaining replies are still to come
            raise

    def raise_for(self, refusal: RedisRefused) -> NoReturn:
        """Raise an error reply.

        Raises:
            ConnectionLost: Redis cannot serve now. The connection is closed, because the next one may reach a Redis that can.
            RedisRefused: the error reply, in all other cases.
        """
        if cannot_serve(refusal):
            raise self._lost(refusal, Unavailable) from None
        raise refusal

    def call(self, *command: Argument) -> Any:
        """Send one command and read its reply."""
        self.send(command)
        return self.read()

    def exchange(self, *commands: Command) -> list[Any]:
        """Send commands and return their replies. An error reply stands in the list as `RedisRefused`."""
        self.send(*commands)
        return self.read_all(count_replies(commands))

    @property
    def has_news(self) -> bool:
        """True if there is unread input: a reply, or the end of the connection."""
        return self._connection is not None and bool(self._news.poll(0))

    def drop_if_stale(self) -> None:
        """Close the connection if Redis has already closed it. Only while no reply is under way.

        The next command then goes over a new connection. In the closed connection, the fate of the command would be unknown.
        """
        if self.has_news:
            self.close()

    def run(self, script: Script, keys: Sequence[Argument], arguments: Sequence[Argument]) -> Any:
        """Run a script. Load the script first if Redis does not know it."""
        try:
            return self.call(*script.command(keys, arguments))
        except RedisRefused as error:
            if not is_unknown_script(error):
                raise
            return self.call("EVAL", script.text, len(keys), *keys, *arguments)

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._news.unregister(self._socket)
            self._socket = None
            connection.disconnect()

    def connect(self, within_s: float | None = None) -> None:
        """Connect, unless there is a connection.

        Args:
            within_s: seconds for each step: the connection itself, TLS, login. Default and most: the settings' timeout.
        """
        if self._connection is not None:
            return
        settings = self._settings
        if within_s is not None and within_s < settings.timeout_s:
            settings = replace(settings, timeout_s=within_s)
        connection = settings.connection()
        try:
            connection.connect()
            # PING shows whether Redis serves, before any command is sent whose fate could be unknown. From a client that
            # has not logged in, Redis reads no long command, but closes the connection.
            connection.send_command("PING")
            with suppress(redis.exceptions.NoPermissionError):
                connection.read_response()
        except (redis.RedisError, OSError) as error:
            connection.disconnect()
            raise connection_lost(settings, error, Unavailable, is_cut=_is_cut(connection)) from None
        except BaseException:
            connection.disconnect()
            raise
        self._connection = connection
        self.connections += 1
        self._socket = self._connection._sock  # redis-py has no public way to the socket
        self._news.register(self._socket, select.POLLIN)
        self._reader = new_reader()
        self._apply_patience()

    def set_patience(self, seconds: float) -> None:
        """Set the seconds that a reply may take from now on."""
        if seconds != self._patience_s:
            self._patience_s = seconds
            if self._socket is not None:
                self._apply_patience()

    def _apply_patience(self) -> None:
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.settimeout(self._patience_s)
            return
        # The timeouts are the kernel's, because Python's timeouts poll before each read and write.
        timeout = struct.pack("ll", int(self._patience_s), int(self._patience_s % 1 * 1e6))
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)

    def _next(self) -> Any:
        if self._connection is None:
            self.connect()
        reader, buffer = self._reader, self._buffer
        try:
            while (reply := reader.gets(False)) is INCOMPLETE:
                size = self._socket.recv_into(buffer)
                if not size:
                    raise ConnectionError("closed by Redis")
                reader.feed(buffer, 0, size)
                self.received_bytes += size
        except (OSError, redis.exceptions.InvalidResponse) as error:
            raise self._lost(error) from None
        except BaseException:
            # Interrupted: the reply is still to come, and the next command would take the reply for its own.
            self.close()
            raise
        return reply

    def _lost(self, error: Exception, kind: type[ConnectionLost] = ConnectionLost) -> ConnectionLost:
        is_cut = _is_cut(self._connection)
        self.close()
        return connection_lost(self._settings, error, kind, is_cut=is_cut)


def _is_cut(connection: Any) -> bool:
    """Return whether a connection was cut because another Redis has become the master."""
    return getattr(connection, "is_cut", False)
