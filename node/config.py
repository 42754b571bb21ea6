"""One frozen model of every setting: flag, then environment, then file, then default.

`load_config` is the only reader. Spellings of older versions are in `config_keys.py`, the reading in `config_sources.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import (
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.alias_generators import to_camel

from cluster_serving.client.keys import DEFAULT_JOB
from cluster_serving.node.config_errors import sentence
from cluster_serving.node.config_keys import PATHS, ConfigError
from cluster_serving.node.config_sources import Found, Setting, known_keys, read_environ, read_file, read_flags
from cluster_serving.node.config_values import (
    check_pem,
    check_port,
    local_path,
    mask_url,
    parse_pair,
    parse_size,
)

if TYPE_CHECKING:
    from cluster_serving.client.connection import RedisSettings

__all__ = ["PLACEHOLDER_PATH", "Config", "ConfigError", "LoadedConfig", "load_config"]

PLACEHOLDER_PATH = "/path/to/model/directory"  # as in the template config.yaml


def _auto(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() in {"auto", ""} else value


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


Size = Annotated[int, BeforeValidator(parse_size)]
Count = Annotated[int, Field(ge=1)]
AutoCount = Annotated[Count | None, BeforeValidator(_auto)]
MAX_WORKERS = 84  # the ring's 255 slots are three a worker and three more
Workers = Annotated[int, Field(ge=1, le=MAX_WORKERS)]
ModelType = Literal["onnx", "openvino", "python"]


class Config(BaseModel):
    """Every setting of a node. Sizes are in bytes; `image_resize` is (height, width) whatever order it was written in."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=AliasGenerator(alias=lambda name: to_camel(name.removesuffix("_s"))),
        populate_by_name=True,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        hide_input_in_errors=True,
    )

    model_path: str = Field(
        default="", description="Directory of the model; a relative path starts at the config file's directory."
    )
    model_type: Annotated[ModelType | None, BeforeValidator(_lower), BeforeValidator(_auto)] = Field(
        default=None,
        description="Kind of the model when its files do not tell: onnx, openvino or python; unset: decided from the files.",
    )
    job_name: str = Field(
        default=DEFAULT_JOB, description="Name of the job and of its Redis stream; unique on one Redis; not empty."
    )
    post_processing: str = Field(
        default="", description="What happens to an output: topN(n), pickTopN(n), or nothing when empty."
    )
    image_resize_order: Annotated[Literal["hw", "wh"], BeforeValidator(_lower)] = Field(
        default="hw",
        description="Order in which imageResize is written: hw (height,width) or wh (as the original read it).",
    )
    image_resize: tuple[int, int] | None = Field(
        default=None,
        description="Size in pixels that every image is resized to, as height,width; unset: images stay as they are.",
    )
    input_already_batched: bool = Field(
        default=False,
        description="Accepted from older files: whether a record has the batch dimension is seen from its rank.",
    )
    model_parallelism: Annotated[Workers | None, BeforeValidator(_auto)] = Field(
        default=None, description=f"Worker processes, each with a copy of the model, 1 to {MAX_WORKERS}; auto."
    )
    thread_per_model: AutoCount = Field(default=None, description="Threads of one worker, 1 or more; auto.")
    core_number_per_machine: int = Field(
        default=-1,
        description="Cores to use: as threads of one worker for OpenVINO, as workers of one thread otherwise; -1: auto.",
    )
    batch_size: AutoCount = Field(default=None, description="Records in one inference, at most, 1 or more; auto.")
    max_batch_delay_ms: float = Field(
        default=0,
        ge=0,
        le=60_000,
        description="Milliseconds that a free worker waits for a batch to fill up, 0 to 60000; 0: none.",
    )
    max_queue_length: int = Field(
        default=100_000, ge=0, description="Records that wait in the stream, at most; 0: no limit."
    )
    result_time_to_live_s: float = Field(
        default=86_400,
        ge=0,
        alias="resultTimeToLive",
        description="Seconds that an unread result is kept; 0: until it is read.",
    )
    slot_bytes: Size = Field(
        default=64 << 20,
        ge=1 << 16,
        le=16 << 30,
        description="Bytes of one batch's inputs, at most, 64k to 16g; k, m, g allowed.",
    )
    precision: Annotated[Literal["f32", "bf16"], BeforeValidator(_lower)] = Field(
        default="f32",
        description="What the model computes in: f32, or bf16 (faster and less exact) where backend and CPU have it.",
    )
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
        description="Bytes that a Redis which start runs itself may use; k, m, g allowed; 0: no limit.",
    )
    redis_username: str | None = Field(default=None, description="ACL user of Redis; unset: the default user.")
    redis_password: SecretStr | None = Field(
        default=None, description="Password of Redis; better in the environment or a file."
    )
    redis_db: int | None = Field(
        default=None, ge=0, description="Number of the Redis database, 0 or more; unset: that of redisUrl, or 0."
    )
    redis_secure_enabled: bool = Field(default=False, description="Whether to connect to Redis with TLS.")
    redis_secure_trust_store_path: str = Field(
        default="",
        description="PEM file of the authority that signed Redis' certificate; empty: the system's authorities.",
    )
    redis_secure_trust_store_password: SecretStr | None = Field(
        default=None, description="Accepted from older files; a PEM trust store has no password."
    )
    redis_cert_file: str | None = Field(
        default=None, description="PEM file of the client's certificate for Redis with TLS."
    )
    redis_key_file: str | None = Field(default=None, description="PEM file of the key of redisCertFile.")
    drain_timeout_s: float = Field(
        default=4,  # with what the processes need to end, SIGTERM is answered in under 5 s
        ge=0,
        le=86_400,
        alias="drainTimeout",
        description="Seconds that a stopping node may use to finish what it has read.",
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = Field(
        default="info", description="What goes to the log at least: debug, info, warning or error."
    )

    @field_validator("job_name")
    @classmethod
    def _named(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be empty")
        return value

    @field_validator("post_processing")
    @classmethod
    def _filter_exists(cls, value: str) -> str:
        if value.strip():
            from cluster_serving.node.processing.topn import parse_filter

            parse_filter(value)
        return value

    @field_validator("image_resize", mode="before")
    @classmethod
    def _height_and_width(cls, value: object, info: ValidationInfo) -> tuple[int, int] | None:
        pair = parse_pair(value)
        # A tuple comes from Python and is (height, width) already.
        if pair and info.data.get("image_resize_order") == "wh" and not isinstance(value, tuple):
            return pair[1], pair[0]
        return pair

    def redis_settings(self, timeout_s: float | None = None) -> "RedisSettings":
        """How to connect to Redis; `timeout_s` replaces `redisTimeout`.

        Raises:
            ValueError: `redisUrl` is not valid; never from a config that was loaded.
        """
        from cluster_serving.client.connection import RedisSettings

        return RedisSettings.parse(
            self.redis_url.strip(),
            username=self.redis_username,
            password=self.redis_password.get_secret_value() if self.redis_password else None,
            db=self.redis_db,
            tls=self.redis_secure_enabled,
            ca_file=self.redis_secure_trust_store_path or None,
            cert_file=self.redis_cert_file,
            key_file=self.redis_key_file,
            timeout_s=self.redis_timeout / 1000 if timeout_s is None else timeout_s,
        )

    def resolved_parallelism(self, backend: str, cores: int) -> tuple[int, int]:
        """How many workers, and how many threads each.

        What is set wins; `coreNumberPerMachine` comes next. What is still open is chosen so that workers x threads leave one of
        `cores` to reader, writer and Redis, with one thread a worker when nothing is set. Never more than `MAX_WORKERS` workers.
        """
        processes, threads, number = self.model_parallelism, self.thread_per_model, self.core_number_per_machine
        if number > 0:
            by_threads = backend == "openvino"
            workers = 1 if by_threads else min(number, MAX_WORKERS)
            return processes or workers, threads or (number if by_threads else 1)
        budget = max(1, cores - 1)
        if processes is None:
            threads = threads or 1
            return min(max(1, budget // threads), MAX_WORKERS), threads
        return processes, threads or max(1, budget // processes)

    def check_model_path(self) -> None:
        """Check that somebody said which model to serve; whether it is one, `models/detect.py` finds out.

        Raises:
            ConfigError: `modelPath` is not set, or still that of the template.
        """
        if self.model_path in {"", PLACEHOLDER_PATH}:
            why = "is not set" if not self.model_path else f"is still {PLACEHOLDER_PATH}"
            raise ConfigError(
                f"modelPath {why}: set it in config.yaml, or with --model-path, to the directory of your model"
            )


@dataclass(frozen=True)
class LoadedConfig:
    """A config, and for each key where its value came from; `ignored`: keys without a meaning any more, and why."""

    config: Config
    sources: dict[str, str]
    ignored: dict[str, str]


def load_config(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> LoadedConfig:
    """Read, merge and check every setting.

    Args:
        path: a config file of any version; None for none.
        environ: `CLUSTER_SERVING_MODEL_PATH` and so on; `CLUSTER_SERVING_REDIS_PASSWORD_FILE` names a file with the value.
        flags: flag to value: `--model-path`, `--parallelism`, `--set jobName`, or a bare key; None: not given.

    Raises:
        ConfigError: the first thing that is wrong, in one sentence that starts with the place.
    """
    aliases = {str(field.alias): field for field in Config.model_fields.values()}
    secrets = frozenset(alias for alias, field in aliases.items() if SecretStr in get_args(field.annotation))
    found = Found(known_keys(aliases), secrets)
    if path is not None:
        read_file(path, found)
    read_environ(environ, found)
    read_flags(flags, found)
    try:
        config = Config.model_validate({key: _resolved(setting) for key, setting in found.settings.items()})
    except ValidationError as error:
        raise ConfigError(sentence(error.errors()[0], found)) from None
    _check_redis(config, found)
    sources = {alias: found.settings[alias].source if alias in found.settings else "default" for alias in aliases}
    return LoadedConfig(config, sources, found.ignored)


def effective(loaded: LoadedConfig) -> dict[str, object]:
    """Key to value as people may see it: secrets are masked."""
    values: dict[str, object] = loaded.config.model_dump(by_alias=True, mode="json")
    if loaded.config.image_resize:
        pair = loaded.config.image_resize
        values["imageResize"] = ",".join(
            str(n) for n in (pair if loaded.config.image_resize_order == "hw" else pair[::-1])
        )
    return values | {"redisUrl": mask_url(loaded.config.redis_url)}


def _check_redis(config: Config, found: Found) -> None:
    places = {key: f"{setting.where}: " for key, setting in found.settings.items()}
    try:
        check_port(config.redis_url.strip())
        config.redis_settings()
    except ValueError as error:
        detail = f"{places.get('redisUrl', '')}redisUrl is {mask_url(config.redis_url)}: {error}"
        raise ConfigError(f"Your redis host and port are not valid, please check. {detail}") from error
    for key, path in (
        ("redisSecureTrustStorePath", config.redis_secure_trust_store_path),
        ("redisCertFile", config.redis_cert_file),
        ("redisKeyFile", config.redis_key_file),
    ):
        if path and config.redis_settings().tls:
            try:
                check_pem(path)
            except ValueError as error:
                raise ConfigError(f"{places[key]}{key} {path} {error}") from error


def _resolved(setting: Setting) -> object:
    if setting.key not in PATHS or not isinstance(setting.value, str):
        return setting.value
    try:
        return local_path(setting.value, setting.base)
    except ValueError as error:
        raise ConfigError(f"{setting.where}: {setting.key} is {setting.value}, but {error}") from error
