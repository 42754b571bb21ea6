"""Loading of one server's settings: read, merge and check, with the source of each value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, get_args

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

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
    """Checked settings, and the source of each key's value. `ignored`: obsolete keys, each with the reason."""

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
    """Read and merge all settings, and check every setting by itself.

    Args:
        model: settings of the server. Every field has an alias.
        spellings: other spellings of the settings.
        path: config file, or None.
        environ: `CLUSTER_SERVING_MODEL_PATH` and so on. `CLUSTER_SERVING_REDIS_PASSWORD_FILE` names a file with the value.
        flags: flag to value: `--model-path`, `--parallelism`, `--set jobName`, or a bare key. None: the flag is not given.
        paths: keys whose values name files. A relative path starts at the folder of the config file, or at the current folder.
        addresses: keys of `paths` whose values may also be URLs to fetch from.
        settle: called after all sources are read and before the check. Settles the effects of one key on another key.

    Raises:
        ConfigError: unknown keys, or else values that are not allowed: a line for each, which starts with the place.
    """
    aliases = {str(field.alias): field for field in model.model_fields.values()}
    secrets = frozenset(alias for alias, field in aliases.items() if SecretStr in get_args(field.annotation))
    found = Found(spellings, known_keys(aliases), secrets)
    if path is not None:
        read_file(path, found)
    read_environ(environ, found)
    read_flags(flags, found)
    if found.faults:
        raise ConfigError("\n".join(found.faults))
    settle(found)
    try:
        config = model.model_validate(
            {key: _resolved(setting, paths, addresses) for key, setting in found.settings.items()}
        )
    except ValidationError as error:
        first: dict[object, ErrorDetails] = {}  # of each key, which may have several faults
        for detail in error.errors():
            first.setdefault(detail["loc"][:1], detail)
        raise ConfigError("\n".join(sentence(detail, found) for detail in first.values())) from None
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
