"""Settings of a node, in one frozen model. `loading.py` reads the settings from file, environment and flags."""

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationInfo, field_validator

from cluster_serving.client.keys import DEFAULT_JOB, check_job
from cluster_serving.client.servers.config.values import parse_digits, parse_fills, parse_pair
from cluster_serving.node.config.group import AutoCount, Numbers, Share, Size, Words, auto, lower
from cluster_serving.node.config.redis_and_log import Log, Redis
from cluster_serving.node.models.base import TensorSpec, output_spec
from cluster_serving.node.models.detect import MODEL_TYPES
from cluster_serving.node.processing.options import MAX_PIXELS, LegacyClients

PLACEHOLDER_PATH = "/path/to/model/directory"  # as in the template config.yaml
MAX_WORKERS = 1024  # in lanes of at most 84 (topology/placement.py)
MAX_THREADS = 1024
_MOST_IN_LUA = 10**10  # Lua writes numbers from 10^17 on, here of milliseconds, in a form that Redis does not read
Workers = Annotated[int, Field(ge=1, le=MAX_WORKERS)]
Threads = Annotated[int, Field(ge=1, le=MAX_THREADS)]


def _objective(value: object) -> str:
    from cluster_serving.node.config.objective import Objective

    return str(Objective.parse(value))


def _in_file(value: str, kind: str) -> str:
    file, colon, name = value.rpartition(":")
    if value and not (file and colon and name.isidentifier()):
        raise ValueError(f"must be of the form file.py:{kind}")
    return value


class Settings(Log, Redis):
    """Settings of a node, each checked by itself.

    Sizes are in bytes. `image_resize` is (height, width), also for a text in the order wh.
    """

    model_path: str = Field(
        default="",
        description="Directory of the model, relative to the config file's directory, or a URL: https, http or s3.",
    )
    model_checksum: Annotated[str, BeforeValidator(lower)] = Field(
        default="",
        description="SHA-256 of the archive or file at a URL in modelPath, as sha256:<64 hex digits>. Empty: not checked.",
    )
    model_cache: str = Field(
        default="",
        description="Directory of fetched models, proofs and models in INT8, which nodes may share. Empty: below the jobs' folder.",
    )
    model_max_bytes: Size = Field(
        default=64 << 30,
        ge=1,
        description="Largest fetched model in bytes, as an archive and unpacked. k, m, g allowed.",
    )
    model_type: Annotated[str | None, BeforeValidator(lower), BeforeValidator(auto)] = Field(
        default=None,
        description=f"Kind of the model, if not clear from the files: {', '.join(MODEL_TYPES)}. Unset: decided from the files.",
    )
    model_inputs: Words = Field(
        default=(),
        description="Inputs of a model whose file does not describe any: a list of names, or of name dtype [N,3,224,224]. For a "
        "TensorFlow graph: the tensors to feed.",
    )
    model_outputs: Words = Field(
        default=(),
        description="Outputs to return, in this order: names, or name dtype [2,N,128]. For a TensorFlow graph: any tensors. Unset: "
        "all.",
    )
    output_dtype: Annotated[Literal["model", "float16"], BeforeValidator(lower)] = Field(
        default="model",
        description="Dtype of answers: model, or float16, which takes half of the bytes of float32 and keeps three digits.",
    )
    model_signature: str = Field(
        default="", description="Signature of a TensorFlow SavedModel. Unset: serving_default, or the only signature."
    )
    allow_pickle: bool = Field(
        default=False,
        description="Allow pickled PyTorch modules and Keras Lambda layers. Both run code that the model's author wrote.",
    )
    engine: Annotated[Literal["auto", "native", "openvino"], BeforeValidator(lower)] = Field(
        default="native",
        description="Runtime: native (the model's own), openvino, or auto (the faster runtime within accuracyTolerance).",
    )
    job_name: str = Field(
        default=DEFAULT_JOB, description="Name of the job and of its Redis stream, unique on one Redis, without ':'."
    )
    post_processing: str = Field(
        default="", description="Filter for an output: topN(n) or pickTopN(n). Empty: no filter."
    )
    image_resize_order: Annotated[Literal["hw", "wh"], BeforeValidator(lower)] = Field(
        default="hw",
        description="Order of the numbers in imageResize: hw (height,width) or wh (as the original read the text).",
    )
    image_resize: tuple[int, int] | None = Field(
        default=None,
        description="Size in pixels of every resized image, as height,width. Unset: the model's size, else the image's own.",
    )
    image_channels: Annotated[Literal[1, 3, 4] | None, BeforeValidator(parse_digits), BeforeValidator(auto)] = Field(
        default=None,
        description="Channels of an image, if the model does not tell: 1 (grey), 3 or 4 (with alpha). Unset: 3.",
    )
    image_channel_order: Annotated[Literal["bgr", "rgb"], BeforeValidator(lower)] = Field(
        default="bgr", description="Order of an image's channels: bgr or rgb."
    )
    image_layout: Annotated[Literal["auto", "chw", "hwc"], BeforeValidator(lower)] = Field(
        default="auto", description="Position of an image's channels: chw, hwc, or auto (as in the model's input)."
    )
    image_decoding: Annotated[Literal["full", "reduced"], BeforeValidator(lower)] = Field(
        default="full",
        description="Decoding of a JPEG: full, or reduced to 1/2, 1/4 or 1/8 where no side comes below the size it is resized to.",
    )
    image_mean: Numbers = Field(
        default=(),
        description="Subtracted from an image's values 0..255: one number, or one per channel in imageChannelOrder. Unset: 0.",
    )
    image_scale: Numbers = Field(
        default=(), description="Factor for (value - mean): one number, or one per channel. Unset: 1."
    )
    sparse_layout: Annotated[Literal["ndim-major", "nnz-major"], BeforeValidator(lower)] = Field(
        default="ndim-major",
        description="Layout of square indices in sparse tensors: ndim-major (one row per dimension) or nnz-major (per value).",
    )
    bind_inputs: Annotated[Literal["order", "name"], BeforeValidator(lower)] = Field(
        default="order",
        description="Several inputs of which no name is like any of the model's: order (bound in order, with a warning) or name "
        "(refused).",
    )
    batching: Annotated[Literal["auto", "rows", "none"], BeforeValidator(lower)] = Field(
        default="auto",
        description="rows (records share a batch), none (each record is a call by itself, with tensors as they came), or auto "
        "(rows if every input and output has a batch dimension).",
    )
    input_already_batched: bool = Field(
        default=False,
        description="true: batching: none, where a record may also lack the batch dimension, if the model states its shapes.",
    )
    deterministic: bool = Field(
        default=False,
        description="true: every batch is padded to batchSize rows, so that the last bits of a result do not change with its size.",
    )
    padding: Annotated[dict[str, float], BeforeValidator(parse_fills)] = Field(
        default={},
        description="Fill value by input, as in ids=0,mask=0: rows of different length are padded to the longest of a batch. "
        "Unset: a batch for each length.",
    )
    legacy_filter_text: bool = Field(
        default=False,
        description="Send the original's filter text, [[1,0.5][2,0.25]], in the original dialect. false: valid JSON.",
    )
    legacy_streams: Annotated[LegacyClients, BeforeValidator(lower)] = Field(
        default="off",
        description="Clients before 0.9, as they are: 0.7 or 0.8 (records from image_stream, results at result:<uri>), or nightly "
        "(the same of jobName and tensor_stream). One job of a Redis can have it.",
    )
    labels: str = Field(
        default="", description="File with one class name per line: topN then gives [index, value, name]. Unset: none."
    )
    processing: str = Field(
        default="", description="The user's own preprocess and postprocess, as file.py:Class. Unset: none."
    )
    model_encrypted: bool = Field(
        default=False,
        description="The model's files are encrypted. Secret and salt come from modelSecret and modelSalt, or from Redis.",
    )
    model_secret: SecretStr | None = Field(default=None, description="Secret of an encrypted model. Unset: from Redis.")
    model_salt: SecretStr | None = Field(default=None, description="Salt of an encrypted model. Unset: from Redis.")
    record_encrypted: bool = Field(
        default=False, description="The images of records are encrypted, with recordSecret and recordSalt."
    )
    record_secret: SecretStr | None = Field(default=None, description="Secret of encrypted records.")
    record_salt: SecretStr | None = Field(default=None, description="Salt of encrypted records.")
    model_parallelism: Annotated[Workers | None, BeforeValidator(auto)] = Field(
        default=None, description=f"Worker processes, each with a copy of the model: 1 to {MAX_WORKERS}, or auto."
    )
    thread_per_model: Annotated[Threads | None, BeforeValidator(auto)] = Field(
        default=None, description=f"Threads of one worker: 1 to {MAX_THREADS}, or auto."
    )
    core_number_per_machine: int = Field(
        default=-1,
        description="Cores to use: for OpenVINO as threads of one worker, otherwise as workers with one thread each. -1: auto.",
    )
    pinning: bool = Field(
        default=True,
        description="Give workers that fill the machine cores of their own, and each NUMA domain a lane of its own.",
    )
    batch_size: AutoCount = Field(
        default=None, description="Largest number of records in one inference: 1 or more, or auto."
    )
    tuning: Annotated[Literal["cached", "start", "off"], BeforeValidator(lower)] = Field(
        default="cached",
        description="Measured choices for auto: cached (use a choice that fits), start (measure first if none fits), off.",
    )
    objective: Annotated[str, BeforeValidator(_objective)] = Field(
        default="throughput",
        description="Goal of tuning, and of a start that was not measured: throughput, or latency: and the ms that 99 of 100 "
        "answers may take.",
    )
    max_batch_delay_ms: float = Field(
        default=0,
        ge=0,
        le=60_000,
        description="Milliseconds that a free worker waits for a batch to fill up, 0 to 60000. 0: no wait.",
    )
    run_timeout_s: float = Field(
        default=60,
        ge=0.1,
        le=86_400,
        alias="runTimeout",
        description="Seconds that one run of the model may take, or the user's own code for one record. A worker that takes longer "
        "hangs, and is replaced.",
    )
    max_worker_memory: Size = Field(
        default=0,
        ge=0,
        description="Limit of a worker's own memory in bytes. A larger worker is replaced. k, m, g allowed. 0: no limit.",
    )
    max_queue_length: int = Field(
        default=100_000, ge=0, description="Largest number of records that wait in the stream. 0: no limit."
    )
    max_redis_memory_use: float = Field(
        default=0.8, gt=0, le=1, description="Share of Redis' maxmemory beyond which no record is admitted, up to 1."
    )
    allow_eviction: bool = Field(
        default=False,
        description="Serve with a Redis that throws accepted records away when its memory is full (maxmemory-policy allkeys-*).",
    )
    lease_s: float = Field(
        default=10,
        ge=2,
        le=3600,
        alias="lease",
        description="Lease in seconds, 2 to 3600: without a sign of work for so long, a node loses its records to other nodes.",
    )
    max_deliveries: int = Field(
        default=5,
        ge=1,
        description="Tries of a record whose node dies each time, before the record becomes a dead letter.",
    )
    max_dead_letters: int = Field(
        default=1000, ge=0, le=_MOST_IN_LUA, description="Dead letters that are kept, the newest. 0: none."
    )
    max_dead_letter_bytes: Size = Field(
        default=64 << 20,
        ge=1 << 20,
        description="Redis' memory for dead letters in bytes, 1m or more. Above a sixteenth, a record's first bytes are kept.",
    )
    result_time_to_live_s: float = Field(
        default=86_400,
        ge=0,
        le=_MOST_IN_LUA,
        alias="resultTimeToLive",
        description="Seconds that an unread result is kept. 0: until a client reads the result.",
    )
    slot_bytes: Size = Field(
        default=64 << 20,
        ge=1 << 16,
        le=16 << 30,
        description="Largest inputs of one batch in bytes, 64k to 16g. k, m, g allowed.",
    )
    precision: Annotated[Literal["auto", "f32", "bf16", "int8"], BeforeValidator(lower)] = Field(
        default="f32",
        description="Precision of the model: f32, bf16 (faster and less exact), int8 (OpenVINO, proven on calibrationData), or "
        "auto (the fastest that is exact enough).",
    )
    accuracy_tolerance: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Largest deviation of an output under auto from the model's own runtime in f32, as a share of the output's "
        "largest value.",
    )
    accuracy_agreement: float = Field(
        default=0.99,
        gt=0,
        lt=1,
        description="Share of records on which int8 must agree with f32, proven on half of calibrationData with 95 % confidence.",
    )
    accuracy_metric: str = Field(
        default="",
        description="The user's own score of a record, as file.py:function. int8 agrees where the score does not fall. Empty: the "
        "arg max.",
    )
    shadow: Share = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of the records that are run in the model's native float32 too, where processor time is left over, to "
        "count the answers that agree. As 0.01 or 1%. 0: none.",
    )
    calibration_data: str = Field(
        default="",
        description="Inputs to try auto and int8 on: an .npz with an array for each input, an .npy, or a folder of images. Empty: "
        "random, and no int8.",
    )
    drain_timeout_s: float = Field(
        default=4,  # together with the end of the processes, SIGTERM is answered in under 5 s
        ge=0,
        le=86_400,
        alias="drainTimeout",
        description="Seconds that a stopping node may use to finish the records it has read. The next node takes the rest.",
    )

    @field_validator("job_name")
    @classmethod
    def _named(cls, value: str) -> str:
        return check_job(value)

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

    @field_validator("model_outputs")
    @classmethod
    def _outputs_parse(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            output_spec(text)
        return value

    @field_validator("processing")
    @classmethod
    def _names_a_class(cls, value: str) -> str:
        return _in_file(value, "Class")

    @field_validator("accuracy_agreement", mode="before")
    @classmethod
    def _can_be_proven(cls, value: object) -> object:
        if str(value).strip() in ("1", "1.0"):
            raise ValueError("must be less than 1: no number of records proves that all agree; 0.99 takes 598 records")
        return value

    @field_validator("accuracy_metric")
    @classmethod
    def _names_a_function(cls, value: str) -> str:
        return _in_file(value, "function")

    @field_validator("image_resize", mode="before")
    @classmethod
    def _height_and_width(cls, value: object, info: ValidationInfo) -> tuple[int, int] | None:
        pair = parse_pair(value)
        if pair and pair[0] * pair[1] > MAX_PIXELS:
            raise ValueError(f"must have {MAX_PIXELS} pixels at most, as an image may have")
        # A tuple comes from Python and is (height, width) already.
        if pair and info.data.get("image_resize_order") == "wh" and not isinstance(value, tuple):
            return pair[1], pair[0]
        return pair
