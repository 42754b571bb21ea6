"""Settings as options of a command line, as help, and as a config file with the values in effect."""

import math
from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import click
import yaml
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from cluster_serving.client.servers.config.spellings import snake
from cluster_serving.frontend.config.loading import LoadedFrontendConfig, effective
from cluster_serving.frontend.config.settings import GROUPS, FrontendConfig
from cluster_serving.frontend.config.spellings import GONE, SPELLINGS

_ALIASES = ("redisInputQueue", "redissTrustStorePath", "redissTrustStoreToken")
"""Options of the original whose names differ from the keys. All other aliases are for files."""


@cache
def settings_options() -> list[click.Option]:
    """Return an option for each key, and for each option of the original without effect. All values are texts."""
    options: list[click.Option] = []
    for field in FrontendConfig.model_fields.values():
        key = str(field.alias)
        names = [f"--{_kebab(key)}"]
        names += [f"--{_kebab(alias)}" for alias in _ALIASES if SPELLINGS.aliases[alias.lower()] == key]
        names.append(_kebab(key).replace("-", "_"))
        if field.annotation is bool:
            options.append(click.Option(names, is_flag=False, flag_value="true"))  # `--x` alone means true
        else:
            options.append(click.Option(names))
    gone = [click.Option([f"--{name}"], metavar="TEXT", hidden=True) for name in GONE]
    return options + gone


def write_groups(formatter: click.HelpFormatter) -> None:
    """Write the help of all keys, by group."""
    for group in GROUPS:
        with formatter.section((group.__doc__ or "").rstrip(".")):
            formatter.write_dl([_help(field) for field in group.model_fields.values()])
    with formatter.section("Without effect, for command lines of the original"):
        formatter.write_dl([(f"--{name} TEXT", f"{why[0].upper()}{why[1:]}.") for name, why in GONE.items()])


def describe(loaded: LoadedFrontendConfig) -> Iterator[str]:
    """Yield the lines of a config file with every setting, and a comment with the source of its value.

    A masked secret is a comment too, so that the file can be used.
    """
    yield "frontend:"
    lines = {
        key: f"{'# ' if '***' in str(value) else ''}{key}: {_yaml(value)}".rstrip()
        for key, value in effective(loaded.config).items()
    }
    width = max(map(len, lines.values()))
    for key, line in lines.items():
        yield f"  {line:<{width}}  # {loaded.sources[key]}"
    for key, why in loaded.ignored.items():
        yield f"# {key} is ignored: {why}"


def _help(field: FieldInfo) -> tuple[str, str]:
    """Return an option with the form of its value, and its description with the default."""
    annotation: Any = field.annotation
    is_union = isinstance(annotation, UnionType)
    kinds: set[Any] = set(get_args(annotation)) if is_union else {get_origin(annotation) or annotation}
    if bool in kinds:
        form = "true|false"
    elif Literal in kinds:
        form = "|".join(map(str, get_args(annotation)))
    else:
        form = "N" if kinds & {int, float} else "TEXT"
    description, default = str(field.description), field.default
    if default not in (None, "", ()) and SecretStr not in kinds:
        is_size = isinstance(default, int) and default >= 1 << 20
        description += f" [{f'{default >> 20}m' if is_size else _text(default)}]"
    return f"--{_kebab(str(field.alias))} {form}".rstrip(), description


def _text(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _yaml(value: object) -> str:
    """Return a value as one line of YAML. Nothing: unset."""
    if value is None:
        return ""
    return yaml.safe_dump(value, width=math.inf).partition("\n")[0] if isinstance(value, str) else _text(value)


def _kebab(key: str) -> str:
    return snake(key).lower().replace("_", "-")
