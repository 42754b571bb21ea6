"""Read `servables-conf.yaml` of the original: names and versions of models, each on a job, perhaps on a Redis of its own.

    modelMetaDataList:
      - !<ClusterServingMetaData>           served by the nodes of a job
        modelName: "m1"
        modelVersion: "1.0"
        redisHost: "localhost"
        redisPort: "6381"
        redisInputQueue: "serving_stream2"
        ...
      - !<InferenceModelMetaData>           ran in the original's frontend, needs a node of the job "m2" now
        modelName: "m2"
        modelPath: "/models/m2"
        ...

A property `type` may name the type instead of the tag.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import structlog
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from cluster_serving.client.keys import check_job
from cluster_serving.client.redis_settings import RedisSettings, check_host
from cluster_serving.client.servers.config.sources import not_yaml
from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.frontend.config.tls import trusted_file

log = structlog.get_logger(__name__)

_LIST = "modelMetaDataList"
_HIDDEN = "*******"  # as in the original's replies
_TYPES = ("ClusterServingMetaData", "InferenceModelMetaData")
# Spelling in the example that the original prints when the file cannot be loaded.
_MISSPELLED = "InflerenceModelMetaData"

Text = Annotated[str, Field(coerce_numbers_to_str=True)]
Job = Annotated[Text, AfterValidator(check_job)]


class _Entry(BaseModel):
    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, extra="ignore", allow_inf_nan=False, hide_input_in_errors=True
    )

    model_name: Annotated[Text, Field(min_length=1)]
    model_version: Text = "1.0"
    input_compile_type: Literal["direct", "instance"] = "direct"
    features: tuple[str, ...] | None = ()


class _ClusterServing(_Entry):
    type: Literal["ClusterServingMetaData"]
    redis_host: Annotated[str, AfterValidator(check_host)] | None = None
    redis_port: int | None = Field(default=None, ge=1, le=65_535)
    redis_input_queue: Job = "serving_stream"
    redis_output_queue: str | None = None
    time_window: float = Field(default=0, ge=0, le=60_000)
    count_window: int = Field(default=56, ge=0)
    token_bucket_enabled: bool = False
    tokens_per_second: float = Field(default=100, gt=0)
    redis_secure_enabled: bool = False
    redis_trust_store_path: str | None = None
    redis_trust_store_token: SecretStr | None = None


class _InferenceModel(_Entry):
    type: Literal["InferenceModelMetaData"]
    model_name: Job
    model_path: str = ""
    model_type: str = ""
    weight_path: str | None = ""
    model_con_current_num: int = 1


_ENTRIES: TypeAdapter[list[_ClusterServing | _InferenceModel]] = TypeAdapter(
    list[Annotated[_ClusterServing | _InferenceModel, Field(discriminator="type")]]
)


@dataclass(frozen=True)
class Servable:
    """One version of a model, and the job that serves the model.

    Attributes:
        name: name of the model.
        version: version of the model.
        job: job whose nodes serve the model.
        redis: Redis of the job.
        time_window: milliseconds that a record waits for more records.
        count_window: number of calls that end a time window early.
        token_bucket_enabled: whether a token bucket limits the requests per second.
        tokens_per_second: requests per second, with the token bucket.
        input_compile_type: `direct` or `instance`, both read in the same way now.
        features: names of the inputs in the file.
    """

    name: str
    version: str
    job: str
    redis: RedisSettings
    time_window: float
    count_window: int
    token_bucket_enabled: bool
    tokens_per_second: float
    input_compile_type: str
    features: tuple[str, ...]
    _shown: Mapping[str, Any] = field(repr=False)

    def metadata(self) -> dict[str, Any]:
        """Return the properties shown in the original's replies, without secrets."""
        return dict(self._shown)


def read_servables(path: str, default: RedisSettings) -> list[Servable]:
    """Read every model of the file.

    Args:
        path: path of the file.
        default: Redis of the frontend. Used for a model that names the same host and port, or names neither.

    Raises:
        ConfigError: the file cannot be read, is not valid, or names one version of a model twice.
    """
    servables: dict[tuple[str, str], Servable] = {}
    for entry in _entries(path):
        name, version = entry.model_name, entry.model_version
        if (name, version) in servables:
            raise ConfigError(f"{path}: duplicated model info. Model Name: {name}, Model Version: {version}")
        if isinstance(entry, _InferenceModel):
            entry_of_job = _ClusterServing.model_validate(
                {"type": _TYPES[0], "modelName": name, "redisInputQueue": name}
            )
        else:
            entry_of_job = entry
        servables[name, version] = Servable(
            name=name,
            version=version,
            job=entry_of_job.redis_input_queue,
            redis=_redis(entry_of_job, default, Path(path)),
            time_window=entry_of_job.time_window,
            count_window=entry_of_job.count_window,
            token_bucket_enabled=entry_of_job.token_bucket_enabled,
            tokens_per_second=entry_of_job.tokens_per_second,
            input_compile_type=entry.input_compile_type,
            features=entry.features or (),
            _shown=_shown(entry),
        )
    return list(servables.values())


def warn_of_moved(servables: Iterable[Servable]) -> None:
    """Log the models that ran in the original's frontend and need a node now."""
    for shown in (servable.metadata() for servable in servables):
        if shown["type"] == _TYPES[1]:
            log.warning(
                "a model runs in a node now: start a node of this job",
                jobName=shown["modelName"],
                modelPath=shown["modelPath"],
                modelParallelism=shown["modelConCurrentNum"],
            )


def _redis(entry: _ClusterServing, default: RedisSettings, path: Path) -> RedisSettings:
    host, port = entry.redis_host or default.host, entry.redis_port or default.port
    named = entry.redis_host is not None or entry.redis_port is not None
    here = replace(default, host=host, port=port)
    if not named or (here.is_same(default) and not default.unix_path and not default.sentinels):
        return default
    if not entry.redis_secure_enabled:
        return RedisSettings(host, port, timeout_s=default.timeout_s)
    token = entry.redis_trust_store_token
    store = str(path.absolute().parent / entry.redis_trust_store_path) if entry.redis_trust_store_path else ""
    try:
        ca_file = trusted_file(store, token.get_secret_value() if token else None)
    except ValueError as error:
        raise ConfigError(f"{path}: redisTrustStorePath of {entry.model_name}: {error}") from error
    return RedisSettings(host, port, tls=True, ca_file=ca_file, timeout_s=default.timeout_s)


def _shown(entry: _Entry) -> dict[str, Any]:
    shown = entry.model_dump(mode="json", by_alias=True)
    if isinstance(entry, _ClusterServing):
        shown |= {"redisTrustStorePath": _HIDDEN, "redisTrustStoreToken": _HIDDEN}
        shown["redisPort"] = str(shown["redisPort"]) if shown["redisPort"] else None  # a string in the original
    kind = shown.pop("type")
    return {"type": kind, **shown}


def _entries(path: str) -> list[_ClusterServing | _InferenceModel]:
    try:
        document = _Loader(Path(path).read_bytes()).get_single_data()
    except FileNotFoundError:
        raise ConfigError(f"servable Manager config dir not exist: there is no {path}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise not_yaml(path, error) from error
    if not isinstance(document, dict) or not isinstance(document.get(_LIST), list):
        raise ConfigError(f"{path}: expected {_LIST}: and below it a list of models")
    entries: list[Any] = []
    for entry in document[_LIST]:
        if isinstance(entry, dict):
            # An entry without a type is served by the nodes of a job.
            kind = entry.get("type", _TYPES[0])
            entries.append({**entry, "type": _TYPES[1] if kind == _MISSPELLED else kind})
        else:
            entries.append(entry)
    try:
        return _ENTRIES.validate_python(entries)
    except ValidationError as error:
        detail = error.errors()[0]
        number, *keys = [part for part in detail["loc"] if part not in _TYPES]
        at = int(number)
        name = entries[at].get("modelName") if isinstance(entries[at], dict) else None
        key = f"{'.'.join(map(str, keys))}: " if keys else ""
        where = f"model {at + 1}{f' ({name})' if name else ''}"
        why = detail.get("ctx", {}).get("error", detail["msg"])
        raise ConfigError(f"{path}: {where}: {key}{why}") from None


class _Loader(yaml.SafeLoader):
    """YAML loader of plain data. A mapping with a tag of the original gets the tag as its `type`."""

    def construct_tagged(self, node: yaml.Node) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise yaml.constructor.ConstructorError(None, None, "expected keys and values", node.start_mark)
        return {"type": str(node.tag).removeprefix("!"), **self.construct_mapping(node, deep=True)}


for _tag in (*_TYPES, _MISSPELLED):
    for _mark in ("", "!"):  # `!<Name>` and `!Name`
        _Loader.add_constructor(f"{_mark}{_tag}", _Loader.construct_tagged)
