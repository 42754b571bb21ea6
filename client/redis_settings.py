"""Address of Redis, and login.

redis-py is imported with the first connection: it takes a tenth of a second, and workers have settings without a connection.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlparse

from cluster_serving.client.sentinels.settings import SentinelSettings

if TYPE_CHECKING:
    import redis

DEFAULT_PORT = 6379
READ_BYTES = 1 << 18  # one recv reads 64 rows of 128 floats. With the default of 32 KiB, seven are needed
_CONNECT_S = 2.0  # enough for a lost packet. The address of a removed container never answers

# The message does not show the text, because the text may be the end of a password.
_NO_NUMBER = "port or db of the Redis URL is not a number, or the port is beyond 65535; in a password, write / as %2F and @ as %40"
_TOO_MUCH = (
    "a Redis URL ends with the database, as /0 or ?db=0: all else is a setting of its own; in a password, write / as %2F, ? as %3F "
    "and # as %23"
)
_NO_NAME = "the name of a host has 1 to 63 letters from one dot to the next"


@dataclass(frozen=True)
class RedisSettings:
    """Address of Redis, and login. With `sentinels`, the Sentinels tell host and port."""

    host: str = "localhost"
    port: int = DEFAULT_PORT
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    unix_path: str | None = None
    sentinels: SentinelSettings | None = None
    timeout_s: float = 5.0

    @classmethod
    def parse(
        cls,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        db: int | None = None,
        tls: bool = False,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
        sentinel_username: str | None = None,
        sentinel_password: str | None = None,
        timeout_s: float = 5.0,
    ) -> "RedisSettings":
        """Return the settings from `host:port` or a URL. Values in the URL win over the keyword arguments.

        Args:
            url: `host:port`, `redis[s]://[user[:password]@]host[:port][/db]`, `unix:///path[?db=0]`, or
                `redis[s]+sentinel://[user[:password]@]host[:port][,host[:port]...]/service[/db]`. In each of them `?db=0` is
                the database too, and the only parameter. User and password are those of Redis. `rediss+sentinel` means TLS to the
                Sentinels and to Redis.
            username: ACL user.
            password: password of the user, or of the server.
            db: number of the database.
            tls: connect to Redis with TLS.
            ca_file: PEM file of the authority that signed the server's certificate. Default: the system's authorities.
            cert_file: PEM file of the client's certificate.
            key_file: PEM file of the client's key.
            sentinel_username: ACL user at the Sentinels.
            sentinel_password: password at the Sentinels.
            timeout_s: seconds for connecting, and for the reply to a command.

        Raises:
            ValueError: `url` has another form.
        """
        if "://" not in url:
            url = f"redis://{url}"
        parts = urlparse(url)
        scheme, _, kind = parts.scheme.partition("+")
        if scheme not in {"redis", "rediss", "unix"} or kind not in {"", "sentinel"}:
            raise ValueError(
                f"unknown scheme {parts.scheme}://, expected redis://, rediss://, unix:// or redis+sentinel://"
            )
        common: dict[str, Any] = {
            "username": unquote(parts.username) if parts.username else username,
            "password": unquote(parts.password) if parts.password else password,
            "tls": tls or scheme == "rediss",
            "ca_file": ca_file,
            "cert_file": cert_file,
            "key_file": key_file,
            "timeout_s": timeout_s,
        }
        path = [unquote(part) for part in parts.path.split("/") if part]
        parameters = parse_qs(parts.query, keep_blank_values=True)
        asked = parameters.pop("db", [])  # as redis-py reads it: it wins over the path
        if parameters or parts.fragment or (scheme != "unix" and len(path) > (2 if kind else 1)):
            raise ValueError(_TOO_MUCH)
        if scheme == "unix":
            number = next(iter(asked), db or 0)
            return cls(unix_path=parts.path, db=_number(number), **common)
        if kind == "sentinel":
            if not path:
                raise ValueError("a sentinel URL ends in /service, the master's name")
            hosts = [host.partition(":") for host in parts.netloc.rpartition("@")[2].split(",") if host]
            if not hosts:
                raise ValueError("a sentinel URL names at least one host")
            sentinels = SentinelSettings(
                tuple((check_host(host), _number(port or 26379)) for host, _, port in hosts),
                path[0],
                username=sentinel_username,
                password=sentinel_password,
                tls=scheme == "rediss",
                ca_file=ca_file,
                cert_file=cert_file,
                key_file=key_file,
            )
            number = next(iter([*asked, *path[1:]]), db or 0)
            return cls(sentinels=sentinels, db=_number(number), **common)
        number = next(iter([*asked, *path]), db or 0)
        try:
            port = parts.port or DEFAULT_PORT
        except ValueError:
            raise ValueError(_NO_NUMBER) from None
        return cls(host=check_host(parts.hostname or "localhost"), port=port, db=_number(number), **common)

    @property
    def is_local_default(self) -> bool:
        """True for a plain server on this machine, so that `start` may run the server itself."""
        plain = not (self.tls or self.unix_path or self.sentinels)
        return plain and self.host in {"localhost", "127.0.0.1"}

    def is_same(self, other: "RedisSettings") -> bool:
        """Return whether two settings lead to the same database, whatever login they have."""
        here, there = (
            replace(each, host="localhost").describe() if each.is_local_default else each.describe()
            for each in (self, other)
        )
        return here == there

    def describe(self) -> str:
        """Return a URL for people and logs, without secrets."""
        if self.unix_path:
            return f"unix://{self.unix_path}?db={self.db}"
        if self.sentinels:
            scheme = "rediss" if self.sentinels.tls else "redis"
            return f"{scheme}+sentinel://{self.sentinels.describe()}/{self.db}"
        scheme = "rediss" if self.tls else "redis"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}/{self.db}"

    def client(self) -> "redis.Redis":
        """Return a redis-py client for occasional commands. A command is sent once, and times out after `timeout_s`."""
        import redis

        return redis.Redis.from_pool(redis.ConnectionPool(self._connection_class, **self.options()))

    def connection(self) -> Any:
        """Return a redis-py connection that is not connected yet."""
        return self._connection_class(**self.options())

    @property
    def _connection_class(self) -> type[Any]:
        import redis

        from cluster_serving.client.sentinels.master import MasterConnection, MasterTlsConnection

        if self.unix_path:
            return redis.UnixDomainSocketConnection
        if self.sentinels:
            return MasterTlsConnection if self.tls else MasterConnection
        return redis.SSLConnection if self.tls else redis.Connection

    def options(self) -> dict[str, Any]:
        """Return the options for any redis-py connection, sync or asyncio."""
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        from cluster_serving.client.sentinels.master import tls_options

        options: dict[str, Any] = {
            # As text, because hiredis kills the interpreter if a signal handler raises an exception while a number is packed.
            "db": str(self.db) if self.db else 0,
            "username": self.username,
            "password": self.password,
            "protocol": 2,
            "socket_timeout": self.timeout_s,
            "socket_connect_timeout": min(self.timeout_s, _CONNECT_S),
            "retry": Retry(NoBackoff(), 0),
            "socket_read_size": READ_BYTES,
        }
        if self.unix_path:
            return options | {"path": self.unix_path}
        options |= {"sentinels": self.sentinels} if self.sentinels else {"host": self.host, "port": self.port}
        return options | (tls_options(self.ca_file, self.cert_file, self.key_file) if self.tls else {})


def check_host(name: str) -> str:
    """Return the name or the address of a host. A socket would raise `UnicodeError` for a name that DNS cannot have.

    Raises:
        ValueError: a part between two dots is empty or too long.
    """
    try:
        name.encode("idna")
    except UnicodeError:
        raise ValueError(_NO_NAME) from None
    return name


def _number(text: str | int) -> int:
    if not str(text).isdecimal():
        raise ValueError(_NO_NUMBER)
    return int(text)
