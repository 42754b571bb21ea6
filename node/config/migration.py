"""From a config file of the original to a file of this version: each line with its new form, and the reason of a change.

The version of the original is known by its keys:

    0.7        params.top_n
    0.8        data.image_shape or Spark, and none of the keys below
    nightly    Spark, and keys of 0.9: a development version between 0.8 and 0.9
    0.9        other nested keys
    0.10       flat keys: 0.10 to 0.12
    2.x        flat keys of BigDL, with queueUsed or kafkaUrl
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

import yaml
from pydantic import SecretStr

from cluster_serving.client.servers.config.loading import load
from cluster_serving.client.servers.config.sources import Found, Line, known_keys, read_file
from cluster_serving.client.servers.config.spellings import fold
from cluster_serving.client.servers.config.values import mask_address, mask_url
from cluster_serving.node.config.config import Config
from cluster_serving.node.config.spellings import ADDRESSES, PATHS, SPELLINGS

_OF_0_9: Final = {"model.name", "data.type", "data.shape", "params.core_number", "params.model_number", "redis.timeout"}
_OF_0_8: Final = {"data.image_shape", "params.batch_size"}
_OF_2: Final = {"queueused", "kafkaurl"}
_BEFORE_0_9: Final = {"0.7", "0.8", "nightly"}
_UNKNOWN: Final = "no version knows the key: the original ignored it, and `start` would refuse it"
_REASONS: Final = {
    "batchSize": "records share a batch while they wait; without the setting the node chooses the size",
    "coreNumberPerMachine": "without the setting the node uses every core, and `tune` finds the best workers and threads",
    "imageResize": "the node resizes every image, whatever size a client sends",
    "modelParallelism": "worker processes with cores of their own, in place of Flink's slots",
    "redisMaxMemory": "for the Redis that start runs; the original's 0.10 and later ignored it",
    "threadPerModel": "threads of a worker; for OpenVINO it was the size of a batch too, which is batchSize now",
    "tuning": "measures the best workers, threads and batch before the first start",
}
_KEY_STORE: Final = (
    "a Java key store is not read: export its certificate by keytool -exportcert -rfc, and name the PEM file here"
)


@dataclass(frozen=True)
class Change:
    """One line of the old file, or a setting that is added.

    Attributes:
        line: number of the line. 0: added.
        before: key and value of the old file, without secrets; of an unknown key no value. Empty: added.
        now: key and value of the new file, without secrets. Empty: gone.
        why: one sentence without its period. Empty: the line stays as it is, or has a new name.
        must_act: the new file does not start a job before somebody has done something.
    """

    line: int
    before: str
    now: str
    why: str
    must_act: bool = False


@dataclass(frozen=True)
class Migration:
    """Settings of the new file as texts by key, the version of the old file, and all changes in the order of its lines."""

    version: str
    settings: dict[str, str]
    changes: list[Change]

    def text(self, source: str) -> str:
        """Return the new file, made from the file named `source`."""
        head = f"# Settings of Cluster Serving, made by `cluster-serving migrate` from {source}.\n"
        return head + "".join(f"{key}: {_scalar(value)}\n" for key, value in self.settings.items())


def migrate(path: Path) -> Migration:
    """Return the settings of a file of the original in the form of this version.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or holds a value that is not allowed. The message names file and line.
    """
    aliases = {str(field.alias): field for field in Config.model_fields.values()}
    found = Found(SPELLINGS, known_keys(aliases), frozenset())
    read_file(path, found, missing="there is no such file; give the path of the original's config.yaml")
    lines = sorted(found.lines, key=lambda line: line.number)
    unknown = {fold(line.written) for line in lines if _is_unknown(line)}
    # Only values are checked: files that settings name may lie on another machine.
    known = replace(SPELLINGS, ignored={**SPELLINGS.ignored, **dict.fromkeys(unknown, _UNKNOWN)})
    load(Config, known, path, {}, {}, PATHS, addresses=ADDRESSES)
    secrets = {key for key, field in aliases.items() if SecretStr in getattr(field.annotation, "__args__", ())}
    return _Migrator(path.name, found, lines, secrets).result()


class _Migrator:
    def __init__(self, file: str, found: Found, lines: list[Line], secrets: set[str]) -> None:
        self._file = file
        self._found = found
        self._lines = lines
        self._secrets = secrets
        self._settings: dict[str, str] = {}

    def result(self) -> Migration:
        version = _version({line.written.lower() for line in self._lines})
        changes = [self._change(line) for line in self._lines]
        changes += list(self._added(version))
        if not self._settings.get("modelPath"):
            why = "set the directory of the model: start needs it"
            changes.append(Change(0, "", "modelPath", why, must_act=True))
        return Migration(version, self._settings, changes)

    def _change(self, line: Line) -> Change:
        # A misspelt key may hold a secret.
        before = line.written if _is_unknown(line) else self._shown(line.written, line.key, line.value)
        if line.value in (None, ""):
            return Change(line.number, before, "", "no value: the default holds")
        if line.key is None:
            return self._obsolete(line, before)
        setting = self._found.settings.get(line.key)
        if setting is None or setting.where != f"{self._file}, line {line.number}":
            return Change(
                line.number, before, "", f"{setting.where if setting else 'a later line'} says the same, and wins"
            )
        if line.key == "redisSecureTrustStorePassword":
            return Change(line.number, before, "", "a PEM file has no password")
        if line.key == "redisSecureTrustStorePath" and not self._is_true("redisSecureEnabled"):
            return Change(line.number, before, "", "Redis is reached without TLS")
        value = _text(setting.value)
        if not value:
            return Change(line.number, before, "", "no filter is the default")
        self._settings[line.key] = value
        now = self._shown(line.key, line.key, value)
        if line.key == "redisSecureTrustStorePath" and not value.lower().endswith((".pem", ".crt")):
            return Change(line.number, before, now, _KEY_STORE, must_act=True)
        return Change(line.number, before, now, "" if now == before else _REASONS.get(line.key, ""))

    def _obsolete(self, line: Line, before: str) -> Change:
        where = f"{self._file}, line {line.number}"
        for setting in self._found.settings.values():
            if setting.where == where:
                self._settings[setting.key] = value = _text(setting.value)
                return Change(
                    line.number, before, f"{setting.key}: {value}", _REASONS.get(setting.key, "it means the same")
                )
        return Change(line.number, before, "", self._found.ignored.get(line.written, _UNKNOWN))

    def _added(self, version: str) -> Iterator[Change]:
        is_flat = version in {"0.10", "2.x"}
        if version in _BEFORE_0_9:
            if "postProcessing" not in self._found.settings:
                yield self._add("postProcessing", "topN(1)", f"the filter of {version} where the file has none")
            why = f"for clients of {version}, which read result:<uri>; take it away when the last one has gone"
            yield self._add("legacyStreams", version, why)
        size = self._settings.get("imageResize", "").replace(" ", "").split(",")
        if is_flat and len(set(size)) > 1 and "imageResizeOrder" not in self._settings:
            yield self._add("imageResizeOrder", "wh", "the original read width,height; height,width is the order here")
        if self._is_true("recordEncrypted"):
            for key, word in (("recordSecret", "secret"), ("recordSalt", "salt")):
                if key not in self._settings:
                    yield self._add(
                        key, word, f"the original always encrypted with the word {word}; better choose your own"
                    )

    def _add(self, key: str, value: str, why: str) -> Change:
        self._settings[key] = value
        return Change(0, "", f"{key}: {value}", why)

    def _is_true(self, key: str) -> bool:
        setting = self._found.settings.get(key)
        return setting is not None and str(setting.value).strip().lower() in {"true", "yes", "on", "1"}

    def _shown(self, written: str, key: str | None, value: object) -> str:
        text = _text(value)
        if key in self._secrets and text:
            text = "***"
        elif key == "redisUrl":
            text = mask_url(text)
        elif key == "modelPath":
            text = mask_address(text)
        return f"{written}: {text}" if text else written


def _is_unknown(line: Line) -> bool:
    written = line.written.lower()
    section = written.partition(".")[0] + ".*"
    meant = SPELLINGS.nested.get(written) or SPELLINGS.nested.get(section) if "." in written else None
    folded = fold(meant) if meant else written if "." in written else fold(written)
    return line.key is None and not any(
        folded in keys for keys in (SPELLINGS.ignored, SPELLINGS.refused, SPELLINGS.switches)
    )


def _version(written: Iterable[str]) -> str:
    keys = set(written)
    if not any("." in key for key in keys):
        return "2.x" if _OF_2 & set(map(fold, keys)) else "0.10"
    if "params.top_n" in keys:
        return "0.7"
    has_spark = any(key.startswith("spark.") for key in keys)
    if _OF_0_9 & keys:
        return "nightly" if has_spark else "0.9"
    return "0.8" if has_spark or _OF_0_8 & keys else "0.9"


def _text(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}: {inner}" for key, inner in cast("dict[str, object]", value).items())
    return "" if value is None else str(value)


def _scalar(value: str) -> str:
    """Return a text as YAML: plain where YAML reads the same text, else quoted."""
    try:
        node = yaml.compose(f"key: {value}", Loader=yaml.SafeLoader)
        read = node.value[0][1] if isinstance(node, yaml.MappingNode) else None
        plain = read is not None and read.value == value and read.tag != "tag:yaml.org,2002:null"
    except yaml.YAMLError:
        plain = False
    return value if plain else yaml.safe_dump(value, default_style='"', width=float("inf")).rstrip("\n")
