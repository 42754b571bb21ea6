"""Base class of all queues: the job, and its Redis."""

import inspect
import secrets
import uuid
from difflib import get_close_matches
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import ClassVar, Never, TypedDict, Unpack, cast

import redis

from cluster_serving.client import keys
from cluster_serving.client.calls_by_name import call_for, without_names
from cluster_serving.client.forks import begin_anew_in_child
from cluster_serving.client.redis_settings import DEFAULT_PORT, RedisSettings

_LEAST_TIMEOUT_S, _LONGEST_TIMEOUT_S = 0.001, 1_000_000_000


class ConnectionSettings(TypedDict, total=False):
    """Settings of every queue: job, address of Redis, and login."""

    host: str | None
    """Host of Redis. Default: `localhost`."""
    port: int | str | None
    """Port of Redis. Default: 6379."""
    name: str
    """Name of the job. Default: `serving_stream`."""
    url: str | None
    """URL of Redis, instead of host and port: `redis[s]://…`, `unix:///path` or `redis[s]+sentinel://host,host/service`."""
    username: str | None
    """ACL user."""
    password: str | None
    """Password of the user, or of the server."""
    db: int
    """Number of the database. Default: 0."""
    ssl: bool
    """True to connect with TLS."""
    ssl_certfile: str | None
    """PEM file of this client's certificate."""
    ssl_keyfile: str | None
    """PEM file of the client's key."""
    ssl_ca_certs: str | None
    """PEM file of the authority that signed the server's certificate. Default: the system's authorities."""
    sentinel_username: str | None
    """ACL user at the Sentinels."""
    sentinel_password: str | None
    """Password at the Sentinels."""
    timeout_s: float
    """Seconds for connecting, and for the reply to a command. Default: 5."""
    sync: bool
    """Accepted for programs of the original, without effect: `predict` always waits, `enqueue` never does."""


class Api:
    """A job on a Redis server. The first call that needs Redis makes the connection.

    A queue may be used in the child of a fork, too. Calls under way at the fork belong to the parent.

    Args:
        settings: host, port, name, ...: see `ConnectionSettings`.

    Raises:
        TypeError: a setting has no name, or another name than the settings of the queue.
        ValueError: the name is not the name of a job, host or URL is no text, the host is more than a host, port or database is no
            number that there is, the timeout is no number that a socket takes, a file is missing, or the URL has another form.
    """

    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls) -> None:
        """Write the settings out in the signature, for `help` and notebooks."""
        own = [
            each for each in inspect.signature(cls.__init__).parameters.values() if each.kind is not each.VAR_KEYWORD
        ]
        known = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=kind)
            for name, kind in ConnectionSettings.__annotations__.items()
            if name not in {each.name for each in own}
        ]
        cls.__signature__ = inspect.Signature(own[1:] + known)

    def __init__(self, *address: Never, **settings: Unpack[ConnectionSettings]) -> None:
        if address:
            raise without_names(type(self).__name__, *address)
        if unknown := [setting for setting in settings if setting not in ConnectionSettings.__annotations__]:
            raise TypeError(self._has_no(*unknown))
        name = settings.get("name", keys.DEFAULT_JOB)
        try:
            self.name = keys.check_job(name)
        except ValueError as error:
            raise ValueError(f"name is {name!r}, but {error}") from None
        texts: dict[str, object] = {"host": settings.get("host"), "url": settings.get("url")}
        for setting, value in texts.items():
            if not isinstance(value, str | None):  # not shown, because it may be a URL with a password, as bytes
                raise ValueError(f"{setting} must be a text, not {type(value).__name__}")
        files = {
            "ssl_certfile": settings.get("ssl_certfile"),
            "ssl_keyfile": settings.get("ssl_keyfile"),
            "ssl_ca_certs": settings.get("ssl_ca_certs"),
        }
        for setting, path in files.items():
            try:
                missing = path and not Path(path).is_file()
            except TypeError:
                raise ValueError(f"{setting} must be a path, not {type(path).__name__}") from None
            if missing:
                raise ValueError(f"{setting} is {path!r}, but there is no such file")
        db = settings.get("db", 0)
        if not str(db or 0).isdecimal():
            raise ValueError(f"db is {db!r}, but a database is a whole number from 0")
        self.host = settings.get("host") or "localhost"
        port = settings.get("port")
        self.port = str(DEFAULT_PORT if port in (None, "") else port)
        self.settings = RedisSettings.parse(
            settings.get("url") or self._address(),
            username=settings.get("username"),
            password=settings.get("password"),
            db=db,
            tls=settings.get("ssl", False),
            cert_file=files["ssl_certfile"],
            key_file=files["ssl_keyfile"],
            ca_file=files["ssl_ca_certs"],
            sentinel_username=settings.get("sentinel_username"),
            sentinel_password=settings.get("sentinel_password"),
            timeout_s=_timeout(seconds("timeout_s", settings.get("timeout_s", 5.0))),
        )
        self._begin()
        begin_anew_in_child(self)

    def after_fork(self) -> None:
        """Begin anew in the child of a fork: own connections, reply stream, uris and locks."""
        self._begin()

    def _begin(self) -> None:
        """Make all that belongs to one process."""
        self._client_id = uuid.uuid4().hex[:12]
        # No key has this secret in its name, which SCAN would show: who cannot read the stream does not guess the uris under way.
        self._uris = secrets.token_hex(8)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(job={self.name!r}, redis={self.settings.describe()!r})"

    @cached_property
    def db(self) -> redis.Redis:
        """redis-py client of the same Redis, for programs of the original."""
        return self.settings.client()

    def _address(self) -> str:
        if "/" in self.host or self.host.count(":") == 1:
            # The text is not shown, because a URL may have a password.
            raise ValueError(
                f"host is the name or the address of a machine alone; write {call_for(type(self).__name__, self.host)}"
            )
        if not (self.port.isdecimal() and 0 < int(self.port) < 1 << 16):
            raise ValueError(f"port is {self.port!r}, but a port is a number from 1 to 65535")
        is_bare_ipv6 = ":" in self.host and not self.host.startswith("[")
        return f"[{self.host}]:{self.port}" if is_bare_ipv6 else f"{self.host}:{self.port}"

    def _has_no(self, *unknown: str) -> str:
        """Return a sentence about unknown settings, each with the name of the nearest one that there is."""
        parameters = inspect.signature(type(self)).parameters.values()
        known = [each.name for each in parameters if each.kind is not each.VAR_POSITIONAL]
        near = {setting: get_close_matches(setting, known, 1) for setting in unknown}
        told = [f"{setting} (did you mean {nearest[0]}?)" if nearest else setting for setting, nearest in near.items()]
        rest = "" if all(near.values()) else f"; it has {', '.join(known)}"
        return f"{type(self).__name__} has no setting {', '.join(told)}{rest}"


def _timeout(timeout_s: float) -> float:
    if not _LEAST_TIMEOUT_S <= timeout_s <= _LONGEST_TIMEOUT_S:
        raise ValueError(
            f"timeout_s is {timeout_s!r}, but Redis has from {_LEAST_TIMEOUT_S} to {_LONGEST_TIMEOUT_S} s for a reply"
        )
    return timeout_s


def seconds(setting: str, value: object) -> float:
    """Return the value of a setting in seconds.

    Raises:
        ValueError: the value is no number, or NaN.
    """
    return cast("float", _number(setting, value, "a time is a number of seconds"))


def window_of(value: object) -> int:
    """Return the value of `window`.

    Raises:
        ValueError: the value is no number, or NaN.
    """
    return cast("int", _number("window", value, "a window is a number of records"))


def _number(setting: str, value: object, meaning: str) -> object:
    if isinstance(value, bool) or not isinstance(value, Real) or value != value:  # as NaN
        raise ValueError(f"{setting} is {value!r}, but {meaning}")
    return value
