"""Redis Sentinels, asked for the master on behalf of all connections of this process.

    connection ──master()──► one Sentinel after the other, beginning with the Sentinel that answered last
        ▲
        └──cut()── watch: a thread that asks at each failover and once a second, and cuts the connections to a former master

The watch runs while a connection is open. A planned failover closes no connection: for ten seconds, the former master goes on
taking records, which are lost. The event of a failover reaches all processes in the same instant, so that few records are sent
to a Redis that no node reads any more.
"""

import os
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import Any, Protocol, cast
from weakref import WeakSet

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from cluster_serving.client.sentinels.settings import Address, SentinelSettings

_ANSWER_S = 0.5  # for each step: a Sentinel that hangs costs a process half a second once, and is asked last afterwards
_INTERVAL_S = 1.0
_EVENTS = ("+failover-state-reconf-slaves", "+switch-master")
"""Events with a new master: of the Sentinel that leads the failover, and of the others."""


class Connection(Protocol):
    """Connection to a master."""

    host: str
    port: int
    is_cut: bool

    @property
    def is_connected(self) -> bool:
        """True while the connection is open."""
        ...

    def cut(self) -> None:
        """End the connection, so that its owner connects again. Called by the thread of the watch."""


class Sentinels:
    """Sentinels of one master, as this process knows them.

    Attributes:
        replicas: number of the master's replicas, the last time that a Sentinel was asked.
    """

    def __init__(self, settings: SentinelSettings) -> None:
        self._settings = settings
        self.replicas = 0
        options: dict[str, Any] = {
            "username": settings.username,
            "password": settings.password,
            "socket_timeout": _ANSWER_S,
            "socket_connect_timeout": _ANSWER_S,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "decode_responses": True,
        }
        if settings.tls:
            options |= tls_options(settings.ca_file, settings.cert_file, settings.key_file) | {"ssl": True}
        self._clients: list[tuple[Address, Any]] = [
            (address, redis.Redis(*address, **options)) for address in settings.addresses
        ]
        self._asking = threading.Lock()
        self._watched: WeakSet[Connection] = WeakSet()
        self._watching = False
        self._any_new = False
        self._changing = threading.Lock()  # for the three attributes above

    @classmethod
    def of(cls, settings: SentinelSettings) -> "Sentinels":
        """Return the only object of these settings in this process."""
        return _known.get(settings) or _known.setdefault(settings, cls(settings))

    def master(self) -> Address:
        """Ask the Sentinels for the master.

        Raises:
            redis.ConnectionError: no Sentinel knows a master that works. The message says why, the cause is a refused login or
                certificate if there is one.
        """
        problems: list[str] = []
        cause: Exception | None = None
        with self._asking:
            for place, (address, client) in enumerate(self._clients):
                try:
                    master = self._ask(client)
                except (redis.RedisError, OSError) as error:
                    problems.append(f"{address[0]}:{address[1]} {self._reason(error)}")
                    certificate = isinstance(error.__context__, ssl.SSLCertVerificationError)
                    if cause is None or certificate or isinstance(error, redis.AuthenticationError):
                        cause = error
                else:
                    self._clients.insert(0, self._clients.pop(place))
                    return master
        service = self._settings.service
        raise redis.ConnectionError(
            f"no Sentinel answered with a master named {service} ({'; '.join(problems)})"
        ) from cause

    def watch(self, connection: Connection) -> None:
        """Cut the connection once another Redis has become the master."""
        with self._changing:
            self._watched.add(connection)
            self._any_new = True
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, name="sentinel-watch", daemon=True).start()

    def _ask(self, client: Any) -> Address:
        service = self._settings.service
        # Before the failover has ended, the state still is of the former master, and the address already of the new master.
        with client.pipeline(transaction=False) as pipeline:
            pipeline.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", service)
            pipeline.execute_command("SENTINEL MASTER", service)
            answers = pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        address: Address
        address, state = answers
        if address == (state["ip"], state["port"]) and (state["is_sdown"] or state["is_odown"]):
            raise redis.ConnectionError("says that the master is down")
        self.replicas = int(state["num-slaves"])
        return address

    def _reason(self, error: Exception) -> str:
        text = str(error)
        if isinstance(error, redis.TimeoutError):
            with_tls = " with TLS; redis+sentinel:// asks without" if self._settings.tls else ""
            return f"did not answer in {_ANSWER_S:g} s{with_tls}"
        if isinstance(error, redis.AuthenticationError):
            told = "refused the login" if self._settings.password else "wants a password"
            return f"{told}: sentinelPassword, or sentinel_password in a program ({text})"
        if "No such master" in text:
            return "knows no master of that name"
        if not self._settings.tls and text.endswith(("closed by server.", "reset by peer')")):
            return f"closed the connection; rediss+sentinel:// asks with TLS ({text})"
        return text

    def _watch(self) -> None:
        news: Any = None
        while True:
            news = self._await_news(news)
            with self._changing:
                connections = [connection for connection in self._watched if connection.is_connected]
                self._watching = bool(connections) or self._any_new
                self._any_new = False
                if not self._watching:
                    break
            with suppress(redis.RedisError, OSError):
                master = self.master()
                former = [each for each in connections if (each.host, each.port) != master]
                for connection in former:
                    connection.is_cut = (
                        True  # of all, before the first cut wakes a caller, who may send over another one
                    )
                for connection in former:
                    connection.cut()
                former.clear()
            connections.clear()  # a closed connection is kept by nobody while the thread sleeps
        if news is not None:
            news.close()
        with self._asking:
            for _, client in self._clients:
                client.close()

    def _await_news(self, news: Any) -> Any:
        """Wait for an event at the Sentinel that answered last, for a second at most. Return the subscription to the events."""
        with self._asking:
            client = self._clients[0][1]
        try:
            if news is None or news.connection_pool is not client.connection_pool:
                if news is not None:
                    news.close()
                news = client.pubsub()
                news.subscribe(*_EVENTS)
            news.get_message(timeout=_INTERVAL_S)
        except Exception:  # redis-py raises more than its own errors for a Sentinel that is away, and the watch goes on
            if news is not None:
                news.close()
            time.sleep(_INTERVAL_S)
            return None
        return news


_known: dict[SentinelSettings, Sentinels] = {}
os.register_at_fork(after_in_child=_known.clear)  # a child has none of the threads, and needs connections of its own


def tls_options(ca_file: str | None, cert_file: str | None, key_file: str | None) -> dict[str, Any]:
    """Return the TLS options of redis-py connections."""
    return {"ssl_ca_certs": ca_file, "ssl_certfile": cert_file, "ssl_keyfile": key_file}


class MasterConnection(redis.Connection):
    """redis-py connection to the master that the Sentinels name.

    Attributes:
        is_cut: True once the connection was cut because another Redis has become the master.
    """

    def __init__(self, sentinels: SentinelSettings, **options: Any) -> None:
        cast(Any, super()).__init__(**options)  # without types, as `_connect`
        self._settings = sentinels
        self.is_cut = False

    def cut(self) -> None:
        """Shut the socket down, which wakes a thread that reads. See `Connection`."""
        self.is_cut = True
        connected: Any = self._sock
        if connected is not None:
            with suppress(OSError):
                # Not `SSLSocket.shutdown`, after which another thread might send without TLS.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def _connect(self) -> Any:
        sentinels = Sentinels.of(self._settings)
        self.host, self.port = sentinels.master()
        self.is_cut = False
        connected = cast(Any, super())._connect()
        sentinels.watch(self)
        return connected


class MasterTlsConnection(MasterConnection, redis.SSLConnection):
    """`MasterConnection` with TLS."""
