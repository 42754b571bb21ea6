"""Base class of all queues: the job, and its Redis."""

import secrets
import uuid
from functools import cached_property

import redis

from cluster_serving.client import keys
from cluster_serving.client.redis_settings import DEFAULT_PORT, RedisSettings


class Api:
    """A job on a Redis server. The first call that needs Redis makes the connection.

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
        timeout_s: seconds for connecting, and for the reply to a command.
        sync: accepted for programs of the original, without effect: `predict` always waits, `enqueue` never does.

    Raises:
        ValueError: the name is not the name of a job, or the URL has another form.
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
        timeout_s: float = 5.0,
        sync: bool = True,
    ) -> None:
        try:
            self.name = keys.check_job(name)
        except ValueError as error:
            raise ValueError(f"name is {name!r}, but {error}") from None
        self.host = host or "localhost"
        self.port = str(port or DEFAULT_PORT)
        self.settings = RedisSettings.parse(
            url or f"{self.host}:{self.port}",
            username=username,
            password=password,
            db=db,
            tls=ssl,
            ca_file=ssl_ca_certs,
            cert_file=ssl_certfile,
            key_file=ssl_keyfile,
            timeout_s=timeout_s,
        )
        self._client_id = uuid.uuid4().hex[:12]
        # No key has this secret in its name, which SCAN would show: who cannot read the stream does not guess the uris under way.
        self._uris = secrets.token_hex(8)

    @cached_property
    def db(self) -> redis.Redis:
        """redis-py client of the same Redis, for programs of the original."""
        return self.settings.client()
