"""One connection to Redis for raw commands and scripts.

redis-py connects (password, TLS, Unix socket, Sentinel). From then on the link writes and reads the socket itself. No command is
repeated behind the caller's back, because redis-py's own retries would send an XADD twice.

A signal handler may raise an exception (Ctrl-C, an alarm) between any two instructions, in `except` and `finally` too. So each
connection counts the replies that are due, and the number is unknown while bytes are written or read:

    0 ──send──► UNKNOWN ──► n due ──read_all──► UNKNOWN ──► 0

An interrupt leaves a number behind that no call expects. The next call then closes the connection, and no reply is taken for the
reply to another command.
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

from cluster_serving.client.errors import ConnectionLost, Unavailable
from cluster_serving.client.forks import begin_anew_in_child, let_go
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.resp import (
    INCOMPLETE,
    Argument,
    Command,
    Script,
    cannot_serve,
    connection_lost,
    is_unknown_script,
    joined,
    new_reader,
    of_parent,
)
from cluster_serving.client.redis_settings import READ_BYTES, RedisSettings

_UNKNOWN = -1
_CLOSED = ConnectionError("closed by this program")


class _Open:
    """One open connection.

    Attributes:
        due: number of replies to come, or `_UNKNOWN`.
        closed: True once this program has closed the connection.
    """

    __slots__ = ("buffer", "closed", "connection", "due", "news", "reader", "socket")

    def __init__(self, connection: Any, patience_s: float) -> None:
        self.connection = connection
        self.socket = connection._sock  # redis-py has no public way to the socket
        self.news = select.poll()
        self.news.register(self.socket, select.POLLIN)
        self.reader = new_reader()
        self.buffer = bytearray(READ_BYTES)
        self.due = 0
        self.closed = False
        self.set_patience(patience_s)

    def set_patience(self, seconds: float) -> None:
        """Set the seconds that a reply may take from now on."""
        if isinstance(self.socket, ssl.SSLSocket):
            self.socket.settimeout(seconds)
            return
        # The timeouts are the kernel's, because Python's timeouts poll before each read and write.
        timeout = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)


class Link:
    """One connection to Redis for raw commands, pipelined if wanted. Only `shut_down` is for other threads.

    The link uses one system call per packet. With redis-py's own reading (poll, receive, set the timeout and set it back) the floor
    of bench/queue.py was a tenth lower. The link connects at the first command, and again at the first command after
    `ConnectionLost`. A link belongs to one process: in the child of a fork it does not connect any more.

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
        self._open: _Open | None = None
        self._is_of_parent = False
        self.connections = self.received_bytes = 0
        begin_anew_in_child(self)

    @property
    def timeout_s(self) -> float:
        """Seconds that a reply may take, according to the settings."""
        return self._settings.timeout_s

    @property
    def connected(self) -> bool:
        """True while there is a connection."""
        return self._open is not None and not self._open.closed

    @property
    def due(self) -> int:
        """Number of replies to come. Negative if the connection cannot be used any more: an interrupt, or `shut_down`."""
        now = self._open
        if now is None:
            return 0
        return _UNKNOWN if now.closed else now.due

    def fileno(self) -> int:
        """Return the file descriptor of the socket, for `select`. Connect first if there is no connection."""
        return int((self._open or self._connect()).socket.fileno())

    def send(self, *commands: Command) -> int:
        """Send commands in one write, and return the number of their replies to `read`."""
        packet, replies = joined(commands)
        now = self._open
        if now is None or now.closed or now.due == _UNKNOWN:
            now = self._connect()
        due, now.due = now.due, _UNKNOWN
        try:
            now.socket.sendall(packet)
        except OSError as error:
            raise self._lost(_CLOSED if now.closed else error) from None
        now.due = due + replies
        if now.closed:
            now.connection.disconnect()
        return replies

    def read(self) -> Any:
        """Return the next reply. Bytes stay bytes."""
        (reply,) = self.read_all(1)
        if isinstance(reply, RedisRefused):
            self.raise_for(reply)
        return reply

    def read_all(self, count: int) -> list[Any]:
        """Return the next `count` replies. An error reply stands in the list as `RedisRefused`."""
        now = self._open
        if now is None or now.due < count:
            raise self._lost(_CLOSED)
        due, now.due = now.due, _UNKNOWN
        reader, buffer = now.reader, now.buffer
        replies: list[Any] = []
        try:
            while len(replies) < count:
                reply = reader.gets(False)
                if reply is not INCOMPLETE:
                    replies.append(reply)
                    continue
                size = now.socket.recv_into(buffer)
                if not size:
                    raise ConnectionError("closed by Redis")
                reader.feed(buffer, 0, size)
                self.received_bytes += size
        except (OSError, redis.exceptions.InvalidResponse) as error:
            raise self._lost(_CLOSED if now.closed else error) from None
        now.due = due - count
        if now.closed:
            now.connection.disconnect()
        return replies

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
        """Send one command and return its reply."""
        (reply,) = self.exchange(command)
        if isinstance(reply, RedisRefused):
            self.raise_for(reply)
        return reply

    def exchange(self, *commands: Command) -> list[Any]:
        """Send commands and return their replies. An error reply stands in the list as `RedisRefused`."""
        if self.due:
            self.close()
        return self.read_all(self.send(*commands))

    @property
    def has_news(self) -> bool:
        """True if there is unread input: a reply, or the end of the connection."""
        return self._open is not None and bool(self._open.news.poll(0))

    def drop_if_stale(self) -> None:
        """Close the connection if its Redis has closed it or is the master no more, or if a call was interrupted.

        Only while no reply is under way. The next command then goes over a new connection. In the closed connection, the fate of
        the command would be unknown.
        """
        now = self._open
        if now is not None and (now.due or now.closed or _is_cut(now.connection) or now.news.poll(0)):
            self.close()

    def run(self, script: Script, keys: Sequence[Argument], arguments: Sequence[Argument]) -> Any:
        """Run a script. Load the script first if Redis does not know it."""
        try:
            return self.call(*script.command(keys, arguments))
        except RedisRefused as error:
            if not is_unknown_script(error):
                raise
            return self.call("EVAL", script.text, len(keys), *keys, *arguments)

    def set_patience(self, seconds: float) -> None:
        """Set the seconds that a reply may take from now on."""
        if seconds != self._patience_s:
            self._patience_s = seconds
            if self._open is not None:
                with suppress(OSError):  # closed by another thread, as the next command finds out
                    self._open.set_patience(seconds)

    def shut_down(self) -> None:
        """Close the connection, if there is one. A call that sends or reads meanwhile raises `ConnectionLost`, and closes."""
        now = self._open
        if now is None:
            return
        now.closed = True
        if now.due == _UNKNOWN:
            # The call under way is woken, and disconnects: it looks at `closed` after its last change of `due`.
            with suppress(OSError):
                # Not `SSLSocket.shutdown`, after which the other thread might send without TLS.
                socket.socket.shutdown(now.socket, socket.SHUT_RDWR)
        else:
            now.connection.disconnect()

    def close(self) -> None:
        """Close the connection, if there is one."""
        last, self._open = self._open, None
        if last is not None:
            last.closed = True
            last.connection.disconnect()

    def after_fork(self) -> None:
        """Leave the connection to the parent."""
        self._is_of_parent = True
        last, self._open = self._open, None
        if last is not None and not last.closed:
            let_go(last.socket.fileno())

    def connect(self, within_s: float | None = None) -> None:
        """Connect, unless there is a connection.

        Args:
            within_s: seconds for each step: the connection itself, TLS, login. Default and most: the settings' timeout.
        """
        if self._open is None:
            self._connect(within_s)

    def _connect(self, within_s: float | None = None) -> _Open:
        self.close()
        if self._is_of_parent:
            raise of_parent()
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
            now = _Open(connection, self._patience_s)
        except (redis.RedisError, OSError) as error:
            connection.disconnect()
            raise connection_lost(settings, error, Unavailable, is_cut=_is_cut(connection)) from None
        except BaseException:
            connection.disconnect()
            raise
        self.connections += 1
        self._open = now
        return now

    def _lost(self, error: Exception, kind: type[ConnectionLost] = ConnectionLost) -> ConnectionLost:
        is_cut = self._open is not None and _is_cut(self._open.connection)
        self.close()
        return connection_lost(self._settings, error, kind, is_cut=is_cut)


def _is_cut(connection: Any) -> bool:
    """Return whether a connection was cut because another Redis has become the master."""
    return getattr(connection, "is_cut", False)
