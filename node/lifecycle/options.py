"""Options of `start`, kept for `restart` to give the same options again."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cluster_serving.client.servers.config.file_here import DEFAULT_CONFIG
from cluster_serving.client.servers.config.spellings import fold, snake
from cluster_serving.client.servers.config.values import has_host, local_path, mask_address, split_password
from cluster_serving.client.servers.process.command import SETTINGS
from cluster_serving.node.config.spellings import PATHS, SPELLINGS

if TYPE_CHECKING:
    from cluster_serving.node.config.loading import LoadedConfig
    from cluster_serving.node.job.directory import NodeRecord

# Keys that may hold a secret. `_SECRETS`: folded key -> key.
_SECRET_KEYS = (
    "redisUrl",
    "redisPassword",
    "sentinelPassword",
    "redisSecureTrustStorePassword",
    "modelSecret",
    "modelSalt",
    "recordSecret",
    "recordSalt",
)
_SECRETS = {fold(key): key for key in _SECRET_KEYS}

TIMEOUT_S = 600.0
"""Seconds that a started node has to get ready."""


@dataclass(frozen=True)
class StartOptions:
    """Options of a command line. None: not given. Paths are absolute, because `restart` may be called in another folder."""

    config_path: str | None = None
    parallelism: int | None = None
    omp: int | None = None
    model_path: str | None = None
    job_name: str | None = None
    redis_url: str | None = None
    settings: tuple[str, ...] = ()  # KEY=VALUE

    @classmethod
    def of(cls, values: dict[str, Any]) -> "StartOptions":
        """Take the options from the parameters of a click command, and ignore every further parameter."""
        given = {field.name: values[field.name] for field in fields(cls)}
        for name in ("config_path", "model_path"):
            if given[name] and "://" not in given[name]:
                given[name] = local_path(given[name], Path.cwd())
        given["settings"] = tuple(_with_absolute_path(setting) for setting in given["settings"])
        options = cls(**given)
        # A secret in the model's URL is refused: every user could read the secret in `ps`, and `restart` would lose a hidden
        # secret.
        addresses = [setting.partition("=")[2] for setting in options.settings if _key(setting) == fold("modelPath")]
        for address in (options.model_path or "", *addresses):
            if has_host(address) and mask_address(address) != address:
                raise click.UsageError(
                    f"{mask_address(address)}: a user, password or query does not belong on a command line, where all can see "
                    "it; set modelPath in config.yaml or CLUSTER_SERVING_MODEL_PATH."
                )
        return options

    def flags(self) -> dict[str, object]:
        """Return the options as the flags of `load_config`."""
        flags: dict[str, object] = {f"--{name.replace('_', '-')}": getattr(self, name) for name in _VALUES}
        for setting in self.settings:
            key, _, value = setting.partition("=")
            flags[f"--set {key.strip()}"] = value
        return flags

    def argv(self) -> list[str]:
        """Return the options as arguments of a command line, without the config path."""
        given = [(f"--{name.replace('_', '-')}", getattr(self, name)) for name in _VALUES]
        texts = [f"{flag}={value}" for flag, value in given if value is not None]
        return texts + [f"--set={setting}" for setting in self.settings]

    def without_secrets(self) -> "tuple[StartOptions, dict[str, str]]":
        """Return the options without secrets, and the removed secrets as environment variables.

        A URL stays, without its password, because a restart must not go to a different Redis.
        """
        from cluster_serving.client.servers.config.sources import ENVIRON_PREFIX

        redis_url, password_of_url = split_password(self.redis_url) if self.redis_url else (self.redis_url, None)
        settings: list[str] = []
        secrets: dict[str, str] = {}
        for setting in self.settings:
            key, value = _SECRETS.get(_key(setting)), setting.partition("=")[2]
            if key == "redisUrl":
                url, password_of_url = split_password(value)
                settings.append(f"{key}={url}")
            elif key is not None and value:
                secrets[key] = value
            else:
                settings.append(setting)
        if password_of_url is not None:
            secrets["redisPassword"] = password_of_url  # the password in the URL wins
        public = replace(self, redis_url=redis_url, settings=tuple(settings))
        return public, {f"{ENVIRON_PREFIX}{snake(key)}": value for key, value in secrets.items()}

    def over(self, earlier: "StartOptions") -> "StartOptions":
        """Return these options, with earlier options in place of options that were not given.

        An earlier `--set` gives way to an option of the same key too.
        """
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: value for name, value in values.items() if value is not None}
        replaced = {_key(name) for name in (*given, *self.settings)}
        kept = [setting for setting in earlier.settings if _key(setting) not in replaced]
        return replace(earlier, **given | {"settings": (*kept, *self.settings)})

    def load(self, environ: Mapping[str, str] = os.environ) -> "tuple[LoadedConfig, Path | None]":
        """Load the config, and return the config with the path of the file. None: no file was read.

        Raises:
            ConfigError: the config is wrong, or there is neither a file nor a model's path.
        """
        from cluster_serving.node.config.loading import load_config

        path = Path(self.config_path or DEFAULT_CONFIG).absolute()
        if self.config_path is None and not path.exists():
            loaded = load_config(None, environ, self.flags())
            if loaded.config.model_path:
                return loaded, None
        return load_config(path, environ, self.flags()), path


def _key(written: str) -> str:
    """Return the folded key of an option or of a setting `KEY=VALUE`: `omp` and `thread_per_model=2` are `threadpermodel`."""
    folded = fold(written.partition("=")[0].strip())
    return fold(SPELLINGS.flags.get(folded) or SPELLINGS.aliases.get(folded, folded))


def _with_absolute_path(setting: str) -> str:
    written, _, value = setting.partition("=")
    if _key(written) not in _PATHS or "://" in value:
        return setting
    return f"{written}={local_path(value, Path.cwd())}"


_PATHS = {fold(key) for key in PATHS}
_VALUES = [field.name for field in fields(StartOptions) if field.name not in {"config_path", "settings"}]


def _pairs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    del context, parameter
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value} is not KEY=VALUE")
    return values


def _keys(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the config keys that begin so, for the shell to offer."""
    from cluster_serving.node.config.settings import Settings

    del context, parameter
    keys = (str(field.alias) for field in Settings.model_fields.values())
    return [f"{key}=" for key in keys if fold(key).startswith(fold(incomplete))]


_MODEL_PATH = click.option("--model-path", metavar="PATH", help="Directory of the model (modelPath).")
_OPTIONS = [
    click.option("-c", "--config-path", metavar="PATH", help="Config file; default: config.yaml."),
    click.option(
        *("-p", "--parallelism", "--workers", "parallelism"),
        type=int,
        metavar="N",
        help="Worker processes (modelParallelism).",
    ),
    click.option("-t", "-o", "--omp", type=int, metavar="N", help="Threads of one worker (threadPerModel)."),
    _MODEL_PATH,
    click.option("--job-name", help="Name of the job (jobName)."),
    click.option("--redis-url", help="host:port or URL of Redis (redisUrl)."),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_pairs,
        shell_complete=_keys,
        help="Any config key; repeatable.",
    ),
]


def start_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `start`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def serve_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `start`, with the model as an argument instead."""
    for option in reversed([each for each in _OPTIONS if each is not _MODEL_PATH]):
        function = option(function)
    return click.argument("model_path", metavar="MODEL")(function)


@click.command(context_settings=SETTINGS)
@start_options
def _recorded(**_values: Any) -> None:
    """Parse the options of a recorded command line."""


def recorded_options(record: "NodeRecord") -> StartOptions:
    """Return the options of a node's last start."""
    return options_of(record.config_path, record.flags)


def options_of(config_path: str | None, flags: Sequence[str]) -> StartOptions:
    """Return the options on a command line of `start`."""
    given = StartOptions.of(_recorded.make_context("start", list(flags)).params)
    return StartOptions(config_path=config_path).over(given)
