"""Every setting of a node, in one frozen model. `config.py` reads it from file, environment and flags."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import (
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic.alias_generators import to_camel

from cluster_serving.client.keys import DEFAULT_JOB
from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.client.servers.config.values import is_remote, parse_numbers, parse_pair, parse_size, parse_words
from cluster_serving.node.models.base import LoadOptions, TensorSpec
from cluster_serving.node.models.detect import MODEL_TYPES

if TYPE_CHECKING:
    from cluster_serving.client.redis_settings import RedisSettings
    from cluster_serving.node.models.runtime import Runtime
    from cluster_serving.node.models.secrets import Secrets
    from cluster_serving.node.processing.options import ImageOptions

PLACEHOLDER_PATH = "/path/to/model/directory"  # as in the template config.yaml


def _auto(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() in {"auto", ""} else value


def _number(value: object) -> object:
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else value


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _objective(value: object) -> str:
    from cluster_serving.node.config.objective import Objective

    return str(Objective.parse(value))


Size = Annotated[int, BeforeValidator(parse_size)]
Count = Annotated[int, Field(ge=1)]
AutoCount = Annotated[Count | None, BeforeValidator(_auto)]
MAX_WORKERS = 1024  # in lanes of at most 84 (topology/placement.py)
Workers = Annotated[int, Field(ge=1, le=MAX_WORKERS)]
Words = Annotated[tuple[str, ...], BeforeValidator(parse_words)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(parse_numbers)]


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
        default="",
        description="Directory of the model, from the config file's on when relative; or a URL of it: https, http or s3.",
    )
    model_checksum: Annotated[str, BeforeValidator(_lower)] = Field(
        default="",
        description="SHA-256 of the archive or file that a URL in modelPath holds, as sha256:<64 hex digits>; empty: not checked.",
    )
    model_cache: str = Field(
        default="",
        description="Directory for models that are fetched, may be shared by nodes; empty: models, in the job's own directory.",
    )
    model_max_bytes: Size = Field(
        default=64 << 30,
        ge=1,
        description="Bytes that a fetched model may have, as an archive and unpacked; k, m, g allowed.",
    )
    model_type: Annotated[str | None, BeforeValidator(_lower), BeforeValidator(_auto)] = Field(
        default=None,
        description=f"Kind of the model when its files do not tell: {', '.join(MODEL_TYPES)}; unset: decided from the files.",
    )
    model_inputs: Words = Field(
        default=(),
        description="Inputs of a model whose file does not describe them: a list of names, or of name dtype [N,3,224,224]; of a "
        "TensorFlow graph, the tensors to take.",
    )
    model_outputs: Words = Field(
        default=(),
        description="Names of the outputs to give, in this order; of a TensorFlow graph any tensors; unset: all.",
    )
    model_signature: str = Field(
        default="", description="Signature of a TensorFlow SavedModel; unset: serving_default, or the only one."
    )
    allow_pickle: bool = Field(
        default=False,
        description="Whether pickled PyTorch modules and Keras Lambda layers may be loaded: they run code that their author wrote.",
    )
    engine: Annotated[Literal["auto", "native", "openvino"], BeforeValidator(_lower)] = Field(
        default="native",
        description="Runtime: native (the model's own), openvino, or auto: the faster one that is within accuracyTolerance.",
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
        description="Size in pixels that every image is resized to, as height,width; unset: what the model takes, else its own.",
    )
    image_channels: Annotated[Literal[1, 3, 4] | None, BeforeValidator(_number), BeforeValidator(_auto)] = Field(
        default=None,
        description="Channels of an image where the model does not tell: 1 (grey), 3 or 4 (with alpha); unset: 3.",
    )
    image_channel_order: Annotated[Literal["bgr", "rgb"], BeforeValidator(_lower)] = Field(
        default="bgr", description="Order of an image's channels: bgr or rgb."
    )
    image_layout: Annotated[Literal["auto", "chw", "hwc"], BeforeValidator(_lower)] = Field(
        default="auto", description="Where an image's channels stand: chw, hwc, or auto: as the model's input has them."
    )
    image_mean: Numbers = Field(
        default=(),
        description="Subtracted from an image's values 0..255: one number, or one a channel in imageChannelOrder; unset: nothing.",
    )
    image_scale: Numbers = Field(
        default=(), description="What (value - mean) is multiplied with: one number, or one a channel; unset: 1."
    )
    sparse_layout: Annotated[Literal["ndim-major", "nnz-major"], BeforeValidator(_lower)] = Field(
        default="ndim-major",
        description="How square indices of a sparse tensor are read: ndim-major (a row a dimension) or nnz-major (a row a value).",
    )
    input_already_batched: bool = Field(
        default=False,
        description="Whether every record is a batch, run by itself; false: seen from its rank, where the model tells its own.",
    )
    legacy_filter_text: bool = Field(
        default=False,
        description="Whether answers in the original dialect have the original's filter text, [[1,0.5][2,0.25]], or valid JSON.",
    )
    labels: str = Field(
        default="", description="File of class names, one a line: topN then gives [index, value, name]; unset: none."
    )
    processing: str = Field(
        default="", description="The user's own preprocess and postprocess, as file.py:Class; unset: none."
    )
    model_encrypted: bool = Field(
        default=False,
        description="Whether the model's files are encrypted; secret and salt come from modelSecret and modelSalt, or Redis.",
    )
    model_secret: SecretStr | None = Field(default=None, description="Secret of an encrypted model; unset: from Redis.")
    model_salt: SecretStr | None = Field(default=None, description="Salt of an encrypted model; unset: from Redis.")
    record_encrypted: bool = Field(
        default=False, description="Whether the images of records are encrypted, with recordSecret and recordSalt."
    )
    record_secret: SecretStr | None = Field(default=None, description="Secret of encrypted records.")
    record_salt: SecretStr | None = Field(default=None, description="Salt of encrypted records.")
    model_parallelism: Annotated[Workers | None, BeforeValidator(_auto)] = Field(
        default=None, description=f"Worker processes, each with a copy of the model, 1 to {MAX_WORKERS}; auto."
    )
    thread_per_model: AutoCount = Field(default=None, description="Threads of one worker, 1 or more; auto.")
    core_number_per_machine: int = Field(
        default=-1,
        description="Cores to use: as threads of one worker for OpenVINO, as workers of one thread otherwise; -1: auto.",
    )
    pinning: bool = Field(
        default=True,
        description="Whether workers that fill the machine have cores of their own, and each NUMA domain a lane of its own.",
    )
    batch_size: AutoCount = Field(default=None, description="Records in one inference, at most, 1 or more; auto.")
    tuning: Annotated[Literal["cached", "start", "off"], BeforeValidator(_lower)] = Field(
        default="cached",
        description="Measured choices of what is auto: cached (use one that fits), start (measure first if none does), off.",
    )
    objective: Annotated[str, BeforeValidator(_objective)] = Field(
        default="throughput",
        description="What tuning looks for: throughput, or latency: and the ms that 99 of 100 answers may take.",
    )
    max_batch_delay_ms: float = Field(
        default=0,
        ge=0,
        le=60_000,
        description="Milliseconds that a free worker waits for a batch to fill up, 0 to 60000; 0: none.",
    )
    run_timeout_s: float = Field(
        default=60,
        ge=0.1,
        le=86_400,
        alias="runTimeout",
        description="Seconds that one run of the model may take; a worker that takes longer hangs, and is replaced.",
    )
    max_worker_memory: Size = Field(
        default=0,
        ge=0,
        description="Bytes of a worker's own memory; one that has more is replaced; k, m, g; 0: no limit.",
    )
    max_queue_length: int = Field(
        default=100_000, ge=0, description="Records that wait in the stream, at most; 0: no limit."
    )
    max_redis_memory_use: float = Field(
        default=0.8, gt=0, le=1, description="Share of Redis' maxmemory beyond which no record is admitted, up to 1."
    )
    lease_s: float = Field(
        default=10,
        ge=2,
        le=3600,
        alias="lease",
        description="Seconds, 2 to 3600, after which other nodes take what a node has read and shows no sign of working on.",
    )
    max_deliveries: int = Field(
        default=5,
        ge=1,
        description="How often a record is tried whose node died with it, before it becomes a dead letter.",
    )
    max_dead_letters: int = Field(
        default=1000, ge=0, description="Dead letters that are kept, the newest ones; 0: none."
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
    precision: Annotated[Literal["auto", "f32", "bf16"], BeforeValidator(_lower)] = Field(
        default="f32",
        description="What the model computes in: f32, bf16 (faster and less exact), or auto: bf16 where that is exact enough.",
    )
    accuracy_tolerance: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="How far auto may move an output from that of the model's own runtime in f32, as a share of its largest value.",
    )
    calibration_data: str = Field(
        default="",
        description="What auto is tried on: an .npz with an array for each input, an .npy, or a folder of images; empty: random.",
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
        description="Seconds that a stopping node may use to finish what it has read; the next node takes the rest.",
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

    @field_validator("model_checksum")
    @classmethod
    def _is_checksum(cls, value: str) -> str:
        if value and not re.fullmatch("sha256:[0-9a-f]{64}", value):
            raise ValueError("must be sha256: and 64 hexadecimal digits, as sha256sum prints them")
        return value

    @field_validator("post_processing")
    @classmethod
    def _filter_exists(cls, value: str) -> str:
        if value.strip():
            from cluster_serving.node.processing.topn import parse_filter

            parse_filter(value)
        return value

    @field_validator("model_type")
    @classmethod
    def _served(cls, value: str | None) -> str | None:
        if value is not None and value not in MODEL_TYPES:
            raise ValueError(f"must be one of {', '.join(MODEL_TYPES)}")
        return value

    @field_validator("model_inputs")
    @classmethod
    def _inputs_parse(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            TensorSpec.parse(text)
        return value

    @field_validator("processing")
    @classmethod
    def _names_a_class(cls, value: str) -> str:
        file, colon, name = value.rpartition(":")
        if value and not (file and colon and name.isidentifier()):
            raise ValueError("must be of the form file.py:Class")
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
        from cluster_serving.client.redis_settings import RedisSettings

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

    @property
    def runtime(self) -> "Runtime":
        """What is to run the model, as far as it is set."""
        from cluster_serving.node.models.runtime import Runtime

        return Runtime(self.engine, self.precision)

    def load_options(self, threads: int) -> LoadOptions:
        """How a worker of so many threads loads the model."""
        return LoadOptions(
            threads, "f32", self.model_inputs, self.model_outputs, self.model_signature, self.allow_pickle
        )

    def image_options(self) -> "ImageOptions":
        """How images become rows."""
        from cluster_serving.node.processing.options import ImageOptions

        return ImageOptions(
            resize=self.image_resize,
            channels=self.image_channels or 0,
            order=self.image_channel_order,
            layout=self.image_layout,
            mean=self.image_mean,
            scale=self.image_scale,
        )

    def model_secrets(self) -> "Secrets | None":
        """What opens the model; `None` when it is not encrypted."""
        return _secrets(self.model_secret, self.model_salt) if self.model_encrypted else None

    def record_secrets(self) -> "Secrets | None":
        """What opens the images of records; `None` when they are not encrypted."""
        return _secrets(self.record_secret, self.record_salt) if self.record_encrypted else None

    @property
    def model_is_remote(self) -> bool:
        """Whether `modelPath` is a URL, and the model has to be fetched."""
        return is_remote(self.model_path)

    @property
    def beside_model(self) -> tuple[Path, ...]:
        """Files that may lie in the model's directory and are no models."""
        return tuple(Path(text) for text in (self.processing.rpartition(":")[0], self.labels) if text)

    def resolved_parallelism(self, backend: str, budget: int) -> tuple[int, int]:
        """How many workers, and how many threads each.

        What is set wins; `coreNumberPerMachine` comes next. What is still open is chosen so that workers x threads are at most
        `budget`, with one thread a worker when nothing is set. Never more than `MAX_WORKERS` workers.
        """
        processes, threads, number = self.model_parallelism, self.thread_per_model, self.core_number_per_machine
        if number > 0:
            by_threads = backend == "openvino"
            workers = 1 if by_threads else min(number, MAX_WORKERS)
            return processes or workers, threads or (number if by_threads else 1)
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


def _secrets(secret: SecretStr | None, salt: SecretStr | None) -> "Secrets":
    from cluster_serving.node.models.secrets import Secrets

    return Secrets(secret.get_secret_value() if secret else "", salt.get_secret_value() if salt else "")
