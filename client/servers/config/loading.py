"""Reads and merges the settings of one server, and says where each came from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, get_args

from pydantic import BaseModel, SecretStr, ValidationError

from cluster_serving.client.servers.config.sentences import sentence
from cluster_serving.client.servers.config.sources import (
    Found,
    Setting,
    known_keys,
    read_environ,
    read_file,
    read_flags,
)
from cluster_serving.client.servers.config.spellings import ConfigError, Spellings
from cluster_serving.client.servers.config.values import is_remote, local_path, mask_address

C = TypeVar("C", bound=BaseModel)


@dataclass(frozen=True)
class Loaded(Generic[C]):
    """A config, and for each key where its value came from; `ignored`: keys without a meaning any more, and why."""

    config: C
    sources: dict[str, str]
    ignored: dict[str, str]
    found: Found


def load(
    model: type[C],
    spellings: Spellings,
    path: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    paths: frozenset[str] = frozenset(),
    settle: Callable[[Found], None] = lambda found: None,
    addresses: frozenset[str] = frozenset(),
) -> Loaded[C]:
    """Read, merge and check every setting by itself.

    Args:
        model: what can be set; every field has an alias.
        spellings: how else it may be spelled.
        path: a config file; None for none.
        environ: `CLUSTER_SERVING_MODEL_PATH` and so on; `CLUSTER_SERVING_REDIS_PASSWORD_FILE` names a file with the value.
        flags: flag to value: `--model-path`, `--parallelism`, `--set jobName`, or a bare key; None: not given.
        paths: keys whose values name files: a relative one starts where it was written down.
        addresses: those of `paths` whose values may also be URLs of what can be fetched.
        settle: called when all is read, before it is checked: settles what one key says about another.

    Raises:
        ConfigError: the first thing that is wrong, in one sentence that starts with the place.
    """
    aliases = {str(field.alias): field for field in model.model_fields.values()}
    secrets = frozenset(alias for alias, field in aliases.items() if SecretStr in get_args(field.annotation))
    found = Found(spellings, known_keys(aliases), secrets)
    if path is not None:
        read_file(path, found)
    read_environ(environ, found)
    read_flags(flags, found)
    settle(found)
    try:
        config = model.model_validate(
            {key: _resolved(setting, paths, addresses) for key, setting in found.settings.items()}
        )
    except ValidationError as error:
        raise ConfigError(sentence(error.errors()[0], found)) from None
    sources = {alias: found.settings[alias].source if alias in found.settings else "default" for alias in aliases}
    return Loaded(config, sources, found.ignored, found)


def _resolved(setting: Setting, paths: frozenset[str], addresses: frozenset[str]) -> object:
    if setting.key not in paths or not isinstance(setting.value, str):
        return setting.value
    if setting.key in addresses and is_remote(setting.value):
        return setting.value
    try:
        return local_path(setting.value, setting.base)
    except ValueError as error:
        raise ConfigError(f"{setting.where}: {setting.key} is {mask_address(setting.value)}, but {error}") from error
