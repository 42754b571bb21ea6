"""Settings of a node's connection to Redis, and of what it tells: log, scalars, spans."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr

from cluster_serving.node.config.group import Group, Size, lower


class Redis(Group):
    """Redis: place, user, password, TLS."""

    redis_url: str = Field(
        default="localhost:6379",
        description="host:port, redis[s]://[user:password@]host:port/db, unix:///path or redis+sentinel://.",
    )
    redis_timeout: int = Field(
        default=5000, ge=1, le=3_600_000, description="Milliseconds to connect to Redis or to wait for a reply."
    )
    redis_max_memory: Size = Field(
        default=4 << 30,
        ge=0,
        description="Memory limit in bytes of a Redis that start runs itself. k, m, g allowed. 0: no limit.",
    )
    redis_username: str | None = Field(default=None, description="ACL user of Redis. Unset: the default user.")
    redis_password: SecretStr | None = Field(
        default=None, description="Password of Redis. Better in the environment or a file."
    )
    sentinel_username: str | None = Field(
        default=None, description="ACL user of the Sentinels. Unset: the default user."
    )
    sentinel_password: SecretStr | None = Field(
        default=None, description="Password of the Sentinels. Better in the environment or a file."
    )
    redis_db: int | None = Field(
        default=None, ge=0, description="Number of the Redis database, 0 or more. Unset: the number in redisUrl, or 0."
    )
    redis_secure_enabled: bool = Field(default=False, description="Connect to Redis with TLS.")
    redis_secure_trust_store_path: str = Field(
        default="",
        description="PEM file of the authority that signed Redis' certificate. Empty: the system's authorities.",
    )
    redis_secure_trust_store_password: SecretStr | None = Field(
        default=None, description="Accepted from older files. A PEM trust store has no password."
    )
    redis_cert_file: str | None = Field(
        default=None, description="PEM file of the client's certificate for Redis with TLS."
    )
    redis_key_file: str | None = Field(default=None, description="PEM file of the key of redisCertFile.")


class Log(Group):
    """The node's log, its scalars for TensorBoard, and its spans for OpenTelemetry."""

    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lower)] = Field(
        default="info", description="Lowest level that goes to the log: debug, info, warning or error."
    )
    log_bytes: Size = Field(
        default=64 << 20,
        ge=0,
        description="Size of node.log in bytes from which the log is rotated. k, m, g allowed. 0: never.",
    )
    log_files: int = Field(
        default=4, ge=0, le=1000, description="Older logs that are kept beside node.log, as node.log.1 and so on."
    )
    log_interval_s: float = Field(
        default=10,
        ge=0,
        le=86_400,
        alias="logInterval",
        description="Seconds between two lines of the log with rate, latency and backlog, while there is load. 0: none.",
    )
    tensorboard_dir: str = Field(
        default="",
        description="Directory for scalars of TensorBoard, a point every logInterval: throughput, total, latency. Empty: none.",
    )
    open_telemetry: bool = Field(
        default=False,
        description="Send the stages of traced records to OpenTelemetry by OTLP, as the variables OTEL_* say.",
    )
