"""Base class of all queues: the job, and its Redis."""

import inspect
import secrets
import uuid
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TypedDict

import redis

from cluster_serving.client import keys
from cluster_serving.client.forks import begin_anew_in_child
from cluster_serving.client.redis_settings import DEFAULT_PORT, RedisSettings


class ConnectionSettings(TypedDict, total=False):
    """Settings of every queue: job, and address of Redis. `Api` describes each of them."""

    host: str | None
    port: int | str | None
    name: str
    url: str | None
    username: str | None
    password: str | None
    db: int
    ssl: bool
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_ca_certs: str | None
    sentinel_username: str | None
    sentinel_password: str | None
    timeout_s: float
    sync: bool


class Api:
    """A job on a Redis server. The first call that needs Redis makes the connection.

    A queue may be used in the child of a fork, too. Calls under way at the fork belong to the parent.

    Args:
        host: host of Redis. Default: `localhost`.
        port: port of Redis. Default: 6379.
        name: name of the job.
        url: any URL of `RedisSettings.parse`, instead of host and port.
        username: ACL user.
        password: password of the user, or of the server.
        db: number of the database.
        ssl: connect with TLS.
        ssl_certfile: PEM file of this client's certificate.
        ssl_keyfile: PEM file of the client's key.
        ssl_ca_certs: PEM file of the authority that signed the server's certificate.
        sentinel_username: ACL user at the Sentinels.
        sentinel_password: password at the Sentinels.
        timeout_s: seconds for connecting, and for the reply to a command.
        sync: accepted for programs of the original, without effect: `predict` always waits, `enqueue` never does.

    Raises:
        TypeError: a setting has another name than these and those of the queue.
        ValueError: the name is not the name of a job, the host is more than a host, a file is missing, or the URL has another form.
    """

    def __init__(
        self,
        host: str | None = None,
        port: int | str | None = None,
        name: str = keys.DEFAULT_JOB,
        *,
        url: str | None = None,
        username: str | None = None,
        password: str | None = None,
        db: int = 0,
        ssl: bool = False,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
        ssl_ca_certs: str | None = None,
        sentinel_username: str | None = None,
        sentinel_password: str | None = None,
        timeout_s: float = 5.0,
        sync: bool = True,
        **unknown: object,
    ) -> None:
        if unknown:
            raise TypeError(self._has_no(*unknown))
        try:
            self.name = keys.check_job(name)
        except ValueError as error:
            raise ValueError(f"name is {name!r}, but {error}") from None
        files = {"ssl_certfile": ssl_certfile, "ssl_keyfile": ssl_keyfile, "ssl_ca_certs": ssl_ca_certs}
        for setting, path in files.items():
            if path and not Path(path).is_file():
                raise ValueError(f"{setting} is {path!r}, but there is no such file")
        self.host = host or "localhost"
        self.port = str(port or DEFAULT_PORT)
        self.settings = RedisSettings.parse(
            url or self._address(),
            username=username,
            password=password,
            db=db,
            tls=ssl,
            ca_file=ssl_ca_certs,
            cert_file=ssl_certfile,
            key_file=ssl_keyfile,
            sentinel_username=sentinel_username,
            sentinel_password=sentinel_password,
            timeout_s=timeout_s,
        )
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
        if "/" in self.host or self.host.count(":") == 1:  # not shown: a URL may have a password
            raise ValueError(
                "host is the name or the address of a machine alone; say port= beside it, or url= for a URL"
            )
        is_bare_ipv6 = ":" in self.host and not self.host.startswith("[")
        return f"[{self.host}]:{self.port}" if is_bare_ipv6 else f"{self.host}:{self.port}"

    def _has_no(self, *unknown: str) -> str:
        """Return a sentence about unknown settings, each with the name of the nearest one that there is."""
        own = inspect.signature(type(self)).parameters
        known = [*(name for name in own if name != "settings"), *ConnectionSettings.__annotations__]
        near = {setting: get_close_matches(setting, known, 1) for setting in unknown}
        told = [f"{setting} (did you mean {nearest[0]}?)" if nearest else setting for setting, nearest in near.items()]
        rest = "" if all(near.values()) else f"; it has {', '.join(known)}"
        return f"{type(self).__name__} has no setting {', '.join(told)}{rest}"
