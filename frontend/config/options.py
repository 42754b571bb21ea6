"""Settings as options of a command line, as help, and as a list of the values in effect."""

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import click
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
    options = [_option(key, field) for key, field in _fields()]
    gone = [click.Option([f"--{name}"], metavar="TEXT", hidden=True) for name in GONE]
    return options + gone


def write_groups(formatter: click.HelpFormatter) -> None:
    """Write the help of all keys, by group."""
    for group in GROUPS:
        with formatter.section((group.__doc__ or "").rstrip(".")):
            fields = [(str(field.alias), field) for field in group.model_fields.values()]
            formatter.write_dl([(f"--{_kebab(key)} {_metavar(field)}".rstrip(), _help(field)) for key, field in fields])
    with formatter.section("Without effect, for command lines of the original"):
        formatter.write_dl([(f"--{name} TEXT", f"{why[0].upper()}{why[1:]}.") for name, why in GONE.items()])


def describe(loaded: LoadedFrontendConfig) -> Iterator[str]:
    """Yield a line for each setting: key, value and source. Secrets are masked."""
    rows = [(key, _text(value), loaded.sources[key]) for key, value in effective(loaded.config).items()]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for key, value, source in rows:
        yield f"{key:<{widths[0]}}  {value:<{widths[1]}}  {source}"
    for key, why in loaded.ignored.items():
        yield f"{key} is ignored: {why}"


def _fields() -> list[tuple[str, FieldInfo]]:
    return [(str(field.alias), field) for field in FrontendConfig.model_fields.values()]


def _option(key: str, field: FieldInfo) -> click.Option:
    names = [f"--{_kebab(key)}"]
    names += [f"--{_kebab(alias)}" for alias in _ALIASES if SPELLINGS.aliases[alias.lower()] == key]
    names.append(_kebab(key).replace("-", "_"))
    # `--x` alone means true.
    return click.Option(names, is_flag=False, flag_value="true") if field.annotation is bool else click.Option(names)


def _metavar(field: FieldInfo) -> str:
    kinds = _kinds(field.annotation)
    if bool in kinds:
        return "true|false"
    if Literal in kinds:
        return "|".join(map(str, get_args(field.annotation)))
    return "N" if kinds & {int, float} else "TEXT"


def _kinds(annotation: Any) -> set[Any]:
    if isinstance(annotation, UnionType):
        return set(get_args(annotation))
    return {get_origin(annotation) or annotation}


def _help(field: FieldInfo) -> str:
    default = field.default
    if default in (None, "", ()) or SecretStr in _kinds(field.annotation):
        return str(field.description)
    return f"{field.description} [{_default_text(default)}]"


def _default_text(default: object) -> str:
    if isinstance(default, int) and default >= 1 << 20:
        return f"{default >> 20}m"
    return _text(default)


def _text(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kebab(key: str) -> str:
    return snake(key).lower().replace("_", "-")
