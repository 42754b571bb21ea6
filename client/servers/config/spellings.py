"""Spellings of settings that a server accepts beside the names of its own keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault


class ConfigError(Fault):
    """The configuration is wrong. The message names the place, the key, and the expected value."""

    exit_code = ExitCode.CONFIG


@dataclass(frozen=True)
class Spellings:
    """Alternative spellings of a server's keys, and the meaning of removed keys. `folded`: see `fold`.

    Attributes:
        sections: keys of a file that hold nested keys.
        nested: nested key, `section.key` or `section.*`, to flat key.
        aliases: folded flat spelling to flat key.
        flags: folded flag to flat key, if the two differ.
        ignored: nested or folded flat key without a meaning any more, to the reason.
        switches: nested or folded flat key to its old values, in small letters, and each old value to a new key with a value. If
            the new key is set too, the new key wins. With any other value the old key is `ignored`, or means what stands at `*`,
            where the value `*` is the old value itself.
        refused: folded flat key to the harmless values, which ask for nothing, and to the error text for all other values.
        own: section of a file for the server alone. Its keys win over keys outside. Empty: the whole file is for the server.
        shared: flat keys that may stand outside the own section too. All other keys outside are for other servers.
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
    """Return a flat key in small letters, without `_` and `-`: `Redis-Max_Memory` is `redismaxmemory`."""
    return key.replace("_", "").replace("-", "").lower()


def snake(alias: str) -> str:
    """Return the spelling of a key in the environment: `modelPath` is `MODEL_PATH`."""
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in alias).upper()
