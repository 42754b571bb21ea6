"""Kinds of values that the settings of a node have, and the model that its groups of settings share."""

from typing import Annotated

from pydantic import AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from cluster_serving.client.servers.config.values import parse_numbers, parse_share, parse_size, parse_words


def auto(value: object) -> object:
    """Return None for auto, and for an empty text."""
    return None if isinstance(value, str) and value.strip().lower() in {"auto", ""} else value


def lower(value: object) -> object:
    """Return a text without spaces around it, in small letters."""
    return value.strip().lower() if isinstance(value, str) else value


Size = Annotated[int, BeforeValidator(parse_size)]
Count = Annotated[int, Field(ge=1)]
AutoCount = Annotated[Count | None, BeforeValidator(auto)]
Share = Annotated[float, BeforeValidator(parse_share)]
Words = Annotated[tuple[str, ...], BeforeValidator(parse_words)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(parse_numbers)]


class Group(BaseModel):
    """Settings that belong together, each checked by itself."""

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
