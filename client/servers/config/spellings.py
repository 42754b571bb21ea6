"""How settings are spelled: what a server accepts beside the names of its own keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault


class ConfigError(Fault):
    """The configuration is wrong; the message names the place, the key, and what is expected."""

    exit_code = ExitCode.CONFIG


@dataclass(frozen=True)
class Spellings:
    """Every other spelling of a server's keys, and what became of the keys that are gone. `folded`: see `fold`.

    Attributes:
        sections: keys of a file that hold nested keys.
        nested: nested key, `section.key` or `section.*`, to flat key.
        aliases: folded flat spelling to flat key.
        flags: folded flag to flat key, where they differ.
        ignored: nested or folded flat key that means nothing any more, and why.
        switches: nested or folded flat key to values, in small letters, that now are another key's: that key and its value. Where
            that key is set too, that counts. With other values the key is `ignored`.
        refused: folded flat key to the values that ask for nothing, and what else it asks for.
        own: the section of a file that is this server's alone; its keys win over those outside. Empty: the whole file is.
        shared: with a section of its own, the flat keys that may stand outside of it too; others there are other servers'.
    """

    sections: frozenset[str] = frozenset()
    nested: Mapping[str, str] = field(default_factory=dict[str, str])
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    flags: Mapping[str, str] = field(default_factory=dict[str, str])
    ignored: Mapping[str, str] = field(default_factory=dict[str, str])
    switches: Mapping[str, Mapping[str, tuple[str, str]]] = field(
        default_factory=dict[str, Mapping[str, tuple[str, str]]]
    )
    refused: Mapping[str, tuple[frozenset[str], str]] = field(default_factory=dict[str, tuple[frozenset[str], str]])
    own: str = ""
    shared: frozenset[str] = frozenset()


def fold(key: str) -> str:
    """A flat key without what does not distinguish it: `Redis-Max_Memory` is `redismaxmemory`."""
    return key.replace("_", "").replace("-", "").lower()


def snake(alias: str) -> str:
    """`modelPath` is `MODEL_PATH` in the environment."""
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in alias).upper()
