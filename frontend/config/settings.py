"""Keys of a frontend's settings: one field a key, one class a group of keys. `loading.py` reads the values.

The command line, its help, the environment and the file all take the keys from here.
"""

import base64
import re
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic.alias_generators import to_camel

from cluster_serving.client.keys import DEFAULT_JOB, check_job
from cluster_serving.client.redis_settings import RedisSettings, check_host
from cluster_serving.client.servers.config.values import parse_digits, parse_size, parse_words
from cluster_serving.frontend.config.tls import trusted_file

Size = Annotated[int, BeforeValidator(parse_size)]
Words = Annotated[tuple[str, ...], BeforeValidator(parse_words)]
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\sA-Z]+/?")
Port = Annotated[int, Field(ge=0, le=65_535)]


def signing_key(secret: str) -> bytes:
    """Return the key in a secret of Standard Webhooks: `whsec_`, which may be missing, and base64.

    Raises:
        ValueError: the secret has another form.
    """
    try:
        key = base64.b64decode(secret.strip().removeprefix("whsec_"), validate=True)
    except ValueError:  # binascii.Error is one
        key = b""
    if not 24 <= len(key) <= 64:
        raise ValueError("must be whsec_ and base64 of 24 to 64 random bytes: echo whsec_$(openssl rand -base64 32)")
    return key


def _check_signing_key(secret: SecretStr | None) -> SecretStr | None:
    if secret is not None:
        signing_key(secret.get_secret_value())
    return secret


def _check_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    if any("/" in host for host in hosts):
        raise ValueError("must have hosts, or host:port, without https:// and path")
    return hosts


def _check_origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    if not all(map(_ORIGIN.fullmatch, origins)):
        raise ValueError("must have origins as a browser sends them, such as https://app.example, without a path, or *")
    return origins


class _Group(BaseModel):
    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )


class Listening(_Group):
    """Listening."""

    interface: str = Field(default="0.0.0.0", description="Address to listen on.")  # noqa: S104 - the original's default
    port: Port = Field(default=10020, description="Port of HTTP. 0: any free port.")
    secure_port: Port = Field(default=10023, description="Port of HTTPS. 0: any free port.")
    workers: int = Field(default=1, ge=1, le=256, description="Processes that answer requests.")
    drain_timeout_s: float = Field(
        default=15,
        ge=0,
        le=86_400,
        alias="drainTimeout",
        description="Seconds that a stopping frontend may take to answer its open requests.",
    )


class Https(_Group):
    """HTTPS."""

    https_enabled: bool = Field(default=False, description="Listen on securePort too. HTTP stays open.")
    https_key_store_path: str = Field(default="", description="File of certificate and key: PKCS12 or PEM.")
    https_key_store_token: SecretStr | None = Field(default=None, description="Password of the key store.")
    https_key_path: str = Field(default="", description="PEM file of the key, if the key store has no key.")


class Serving(_Group):
    """Serving."""

    job_name: Annotated[str, AfterValidator(check_job)] = Field(
        default=DEFAULT_JOB, description="Job that serves /predict. Also: --redisInputQueue."
    )
    request_timeout_s: float = Field(
        default=100, gt=0, le=86_400, alias="requestTimeout", description="Seconds that a request may take, at most."
    )
    time_window: float = Field(
        default=0,
        ge=0,
        le=60_000,
        description="Milliseconds that a record waits to be sent with later records. 0: none.",
    )
    count_window: int = Field(default=56, ge=0, description="Number of calls that end a time window early. 0: at once.")
    compress: Annotated[Literal["none", "lz4", "zstd"], BeforeValidator(str.lower)] = Field(
        default="none",
        description="Send tensors in fewer bytes, where that takes less time: as the model takes them, and by this codec.",
    )
    servable_manager_conf_path: str = Field(
        default="",
        description="File of the original: names and versions for jobs. Unset: servables-conf.yaml, if the file exists.",
    )
    model_secure_enabled: bool = Field(default=True, description="Answer POST /model-secure.")
    dashboard: bool = Field(default=True, description="Answer /dashboard, and keep its last hour in Redis.")


class Later(_Group):
    """Answers later."""

    later_timeout_s: float = Field(
        default=3600,
        gt=0,
        le=2_592_000,
        alias="laterTimeout",
        description="Seconds within which a node must begin a call that is answered later, at most.",
    )
    later_ttl_s: float = Field(
        default=3600,
        gt=0,
        le=2_592_000,
        alias="laterTtl",
        description="Seconds for which a result that is fetched later is kept, counted from the end of laterTimeout.",
    )
    later_per_key: int = Field(
        default=100_000,
        ge=0,
        description="Calls that are answered later, of one API key or of all callers without one. 0: none.",
    )
    later_durability: Literal["none", "majority"] = Field(
        default="none",
        description="majority: 202 is sent once most Redis servers have the records. Needs Sentinels.",
    )
    callback_secret: Annotated[SecretStr | None, AfterValidator(_check_signing_key)] = Field(
        default=None,
        description="Signs results that are posted to callbacks: whsec_ and base64 of 24 to 64 bytes. Unset: no callbacks.",
    )
    callback_timeout_s: float = Field(
        default=10,
        gt=0,
        le=600,
        alias="callbackTimeout",
        description="Seconds within which a callback must take a result, or the result is posted again.",
    )
    callback_hosts: Annotated[Words, AfterValidator(_check_hosts)] = Field(
        default=(),
        description="Hosts, or host:port, that may be called back at private addresses and without TLS. Empty: none.",
    )


class Limits(_Group):
    """Limits and access."""

    max_body_size: Size = Field(
        default=100 << 20, ge=1, description="Bytes of a request's body, at most. k, m, g allowed."
    )
    max_instances: int = Field(default=1024, ge=1, description="Records in one request, at most.")
    token_bucket_enabled: bool = Field(default=False, description="Limit the requests per second.")
    tokens_per_second: float = Field(default=100, gt=0, description="Requests per second, with the token bucket.")
    token_acquire_timeout: float = Field(
        default=100, ge=0, description="Milliseconds that a request waits for its token, at most."
    )
    rate_limit_status: Annotated[Literal[429, 500], BeforeValidator(parse_digits)] = Field(
        default=429, description="HTTP status of a request without a token. The original's was 500."
    )
    api_keys_file: str = Field(default="", description="File of API keys, one a line. Empty: everybody may call.")
    cors_origins: Annotated[Words, AfterValidator(_check_origins)] = Field(
        default=(), description="Origins whose pages may call, separated by commas. Empty: none."
    )


class Redis(_Group):
    """Redis."""

    redis_url: str = Field(
        default="localhost:6379",
        description="host:port, redis[s]://[user:password@]host:port/db, unix:///path or redis+sentinel://.",
    )
    redis_host: Annotated[str, AfterValidator(check_host)] | None = Field(
        default=None, min_length=1, description="Host, instead of the host of redisUrl."
    )
    redis_port: int | None = Field(default=None, ge=1, le=65_535, description="Port, instead of the port of redisUrl.")
    redis_timeout: int = Field(default=5000, ge=1, le=3_600_000, description="Milliseconds to connect to Redis.")
    redis_username: str | None = Field(default=None, description="ACL user. Unset: the default user.")
    redis_password: SecretStr | None = Field(default=None, description="Password.")
    sentinel_username: str | None = Field(
        default=None, description="ACL user of the Sentinels. Unset: the default user."
    )
    sentinel_password: SecretStr | None = Field(default=None, description="Password of the Sentinels.")
    redis_db: int | None = Field(default=None, ge=0, description="Number of the database.")
    redis_secure_enabled: bool = Field(default=False, description="Connect with TLS.")
    redis_secure_trust_store_path: str = Field(
        default="",
        description="PEM or PKCS12 file of the authority that signed Redis' certificate. Also: --redissTrustStorePath.",
    )
    redis_secure_trust_store_password: SecretStr | None = Field(
        default=None, description="Password of a PKCS12 trust store. Also: --redissTrustStoreToken."
    )
    redis_cert_file: str | None = Field(default=None, description="PEM file of the client's certificate.")
    redis_key_file: str | None = Field(default=None, description="PEM file of the key of redisCertFile.")


class Log(_Group):
    """Log."""

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of the lines in the log."
    )
    access_log: bool = Field(default=False, description="Log every request.")


# The last base's fields come first.
class FrontendConfig(Log, Redis, Limits, Later, Serving, Https, Listening):
    """Settings of one frontend, the same in all its processes."""

    def redis_settings(self) -> RedisSettings:
        """Return the settings of the connection to Redis.

        Raises:
            ValueError: `redisUrl` is not valid, or the trust store cannot be read. Never raised for a loaded config.
        """
        settings = RedisSettings.parse(
            self.redis_url.strip(),
            username=self.redis_username,
            password=self.redis_password.get_secret_value() if self.redis_password else None,
            db=self.redis_db,
            tls=self.redis_secure_enabled,
            cert_file=self.redis_cert_file,
            key_file=self.redis_key_file,
            sentinel_username=self.sentinel_username,
            sentinel_password=self.sentinel_password.get_secret_value() if self.sentinel_password else None,
            timeout_s=self.redis_timeout / 1000,
        )
        if settings.tls:
            secret = self.redis_secure_trust_store_password
            store = trusted_file(self.redis_secure_trust_store_path, secret.get_secret_value() if secret else None)
            settings = replace(settings, ca_file=store)
        if settings.sentinels and settings.sentinels.tls:
            settings = replace(settings, sentinels=replace(settings.sentinels, ca_file=settings.ca_file))
        if self.redis_host is None and self.redis_port is None:
            return settings
        host, port = self.redis_host or settings.host, self.redis_port or settings.port
        return replace(settings, host=host, port=port, unix_path=None, sentinels=None)


GROUPS: tuple[type[BaseModel], ...] = (Listening, Https, Serving, Later, Limits, Redis, Log)
"""Groups in the order of the help. The docstring of a class is the title of its group."""
