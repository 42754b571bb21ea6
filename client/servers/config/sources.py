"""Config keys from a file, the environment and flags. Each server defines the meaning of its keys.

Every value keeps the written text (`jobName: 007` is not 7, `redisPassword: on` is not true), the name of the source for
`cluster-serving config`, and the place for error messages.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from cluster_serving.client.servers.config.spellings import ConfigError, Spellings, fold, snake

ENVIRON_PREFIX = "CLUSTER_SERVING_"
_TYPO = 0.94  # likeness of a name with one wrong letter. CLUSTER_SERVING_MODELS of stack files is 0.92 like MODEL_SALT


@dataclass(frozen=True)
class Setting:
    """One setting: the flat key, the value as written, the source as shown to people, the place for error messages."""

    key: str
    value: object
    source: str
    where: str
    base: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True)
class Line:
    """One key of a file, as written, with its value and the flat key that it sets. None: it sets none."""

    number: int
    written: str
    value: object
    key: str | None


@dataclass
class Found:
    """Settings found so far. A later source replaces the setting of an earlier source for the same key."""

    spellings: Spellings
    known: Mapping[str, str]  # folded key -> flat key
    secrets: frozenset[str]
    settings: dict[str, Setting] = field(default_factory=dict[str, Setting])
    ignored: dict[str, str] = field(default_factory=dict[str, str])
    faults: list[str] = field(default_factory=list[str])
    """Sentences on unknown and misplaced keys."""
    lines: list[Line] = field(default_factory=list[Line])
    """Keys of the file, sections first."""

    def take(self, setting: Setting) -> None:
        """Add a setting, unless its value is None."""
        if setting.value is not None:
            self.settings[setting.key] = setting

    def resolve(self, written: str) -> str | None:
        """Return the flat key for a flat spelling, or None."""
        folded = fold(written)
        return self.known.get(folded) or self.spellings.aliases.get(folded)

    def obsolete(self, written: str, folded: str, value: object, where: str) -> bool:
        """Return whether a key is obsolete.

        Raises:
            ConfigError: the key asks for a feature that no longer exists.
        """
        if folded in self.spellings.refused:
            harmless, why = self.spellings.refused[folded]
            if value is not None and str(value).strip().lower() not in harmless:
                raise ConfigError(f"{where}: {written} is {value}, but {why}")
            self.ignored[written] = f"{value} is the only choice" if value is not None else "it has no value"
            return True
        switches = self.spellings.switches.get(folded, {})
        switched = switches.get(str(value).strip().lower()) or (switches.get("*") if value is not None else None)
        if switched is not None:
            key, meant = switched
            self.settings.setdefault(key, Setting(key, value if meant == "*" else meant, where, where))
            return True
        why_ignored = self.spellings.ignored.get(folded)
        if why_ignored and value not in (None, ""):
            self.ignored[written] = why_ignored
        return why_ignored is not None

    def add_unknown(self, written: str, where: str, candidates: Iterable[str]) -> None:
        """Add the fault of an unknown key, with the most similar candidate."""
        folded = {fold(name): name for name in candidates}
        close = difflib.get_close_matches(fold(written), folded, 1, 0.6)
        suggestion = f"; did you mean {folded[close[0]]}?" if close else ""
        self.faults.append(f"{where}: unknown key {written}{suggestion}")


class _TwoValues(Exception):
    """A key stands twice in one mapping, with two values."""


_MISSING = "there is no such file; create one with cluster-serving init, or give --config-path"


def read_file(path: Path, found: Found, missing: str = _MISSING) -> None:
    """Read a YAML file of any version into `found`.

    Flat keys win over nested keys. Keys of the server's own section win over both.

    Args:
        path: the file.
        found: takes the settings.
        missing: message for a file that is not there, with the remedy.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or holds a value that cannot be meant.
    """
    try:
        root: yaml.Node | None = yaml.compose(path.read_bytes(), Loader=yaml.SafeLoader)
        for _, node in root.value if isinstance(root, yaml.MappingNode) else ():
            _value(node)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: {missing}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the file: {_reason(error)}") from error
    except yaml.YAMLError as error:
        raise not_yaml(path.name, error) from error
    except _TwoValues as error:
        raise ConfigError(f"{path.name}, {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path.name}: a value is nested too deeply, or holds itself by an alias") from error
    if root is None or (isinstance(root, yaml.ScalarNode) and _value(root) is None):
        return
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path.name}, line {_line(root)}: expected lines of the form key: value")
    flat: list[tuple[yaml.Node, yaml.Node]] = []
    own: list[tuple[yaml.Node, yaml.Node]] = []
    for key_node, node in root.value:
        section = str(key_node.value).lower()
        if section and section == found.spellings.own:
            if isinstance(node, yaml.MappingNode):
                own += node.value
            elif _value(node) is not None:
                where = f"{path.name}, line {_line(node)}"
                raise ConfigError(f"{where}: expected lines of the form key: value below {section}")
        elif section in found.spellings.sections and isinstance(node, yaml.MappingNode):
            _read_section(section, node, path, found)
        elif section not in found.spellings.sections or _value(node) is not None:
            flat.append((key_node, node))
    if found.spellings.own:
        flat = [pair for pair in flat if _is_shared(*pair, path, found)]
    _read_flat(flat, path, found)
    _read_flat(own, path, found)


def _is_shared(key_node: yaml.Node, _node: yaml.Node, path: Path, found: Found) -> bool:
    """Return whether a key outside the server's own section is for the server.

    A key for the server alone belongs into the server's own section, and is a fault.
    """
    written = str(key_node.value)
    key = found.resolve(written)
    if key is not None and key not in found.spellings.shared:
        own = found.spellings.own
        found.faults.append(f"{path.name}, line {_line(key_node)}: {written} belongs below {own}: write it there")
    return key is not None


def _read_flat(pairs: Iterable[tuple[yaml.Node, yaml.Node]], path: Path, found: Found) -> None:
    seen: dict[str, tuple[object, int]] = {}
    for key_node, node in pairs:
        written, value, line = str(key_node.value), _value(node), _line(key_node)
        where = f"{path.name}, line {line}"
        key = found.resolve(written)
        found.lines.append(Line(line, written, value, key))
        if key is None:
            if not found.obsolete(written, fold(written), value, where):
                found.add_unknown(written, where, found.known.values())
            continue
        if value is None:
            continue
        earlier = seen.setdefault(key, (value, line))
        if earlier[0] != value:
            raise ConfigError(f"{where}: {key} was given another value in line {earlier[1]}")
        found.take(Setting(key, value, path.name, where, path.absolute().parent))


def _read_section(section: str, node: yaml.MappingNode, path: Path, found: Found) -> None:
    for key_node, value_node in node.value:
        written, value = f"{section}.{key_node.value}", _value(value_node)
        where = f"{path.name}, line {_line(key_node)}"
        folded = written.lower()
        for line in found.lines:
            if line.written.lower() == folded and None not in (line.value, value) and line.value != value:
                raise ConfigError(f"{where}: {written} was given another value in line {line.number}")
        meant = found.spellings.nested.get(folded) or found.spellings.nested.get(f"{section}.*")
        key = meant if meant in found.known.values() else None
        found.lines.append(Line(_line(key_node), written, value, key))
        if key is not None:
            if value is not None and folded == "params.top_n":
                value = f"topN({value})"
                if "postProcessing" in found.settings:
                    continue
            if folded == "data.filter" and value == "None":
                value = ""
            if folded == "data.image_shape" and value is not None:
                value = _height_and_width(value, where)
            found.take(Setting(key, value, path.name, where, path.absolute().parent))
        elif not found.obsolete(written, fold(meant) if meant else folded, value, where):
            names = [
                name for name in (*found.spellings.nested, *found.spellings.ignored) if name.startswith(f"{section}.")
            ]
            found.add_unknown(written, where, names)


def _height_and_width(shape: object, where: str) -> tuple[int, int]:
    """Return height and width of `C,H,W`, read as by the original's clients: C is the first dimension of 1 to 4."""
    parts = shape if isinstance(shape, list) else str(shape).strip("[]").split(",")
    try:
        dims = [int(str(part)) for part in parts]
        dims.remove(next(dim for dim in dims if 1 <= dim <= 4))
        height, width = dims
    except (ValueError, StopIteration) as error:
        raise ConfigError(f"{where}: data.image_shape is {shape}, but must be channels, height, width") from error
    return height, width


def read_environ(environ: Mapping[str, str], found: Found) -> None:
    """Read `CLUSTER_SERVING_<KEY>`, and `CLUSTER_SERVING_<KEY>_FILE` for secrets. An empty variable counts as unset.

    Raises:
        ConfigError: the file of a secret cannot be read, or a secret is given in both ways.
    """
    names = {ENVIRON_PREFIX + snake(key): key for key in found.known.values()}
    files = {f"{name}_FILE": name for name, key in names.items() if key in found.secrets}
    for name, value in environ.items():
        if not name.startswith(ENVIRON_PREFIX) or not value:
            continue
        if name in names:
            found.take(Setting(names[name], value, name, name))
        elif name in files:
            if environ.get(files[name]):
                raise ConfigError(f"{name}: {files[name]} is set too; set one of them")
            path = Path(value)
            try:
                secret = path.read_text(encoding="utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"{name}: cannot read {path}: {_reason(error)}") from error
            found.take(Setting(names[files[name]], secret, name, name))
        else:
            # Not an error, because container platforms set variables of their own under a service's name.
            close = difflib.get_close_matches(name, [*names, *files], 1, _TYPO)
            if close:
                found.ignored[name] = f"no such variable; did you mean {close[0]}?"


def read_flags(flags: Mapping[str, object], found: Found) -> None:
    """Read flags: `--model-path`, `--set modelPath`, or a bare key, each with its value."""
    for flag, value in flags.items():
        written = flag.removeprefix("--set ")
        key = found.resolve(written) or found.spellings.flags.get(fold(written))
        if key is not None:
            found.take(Setting(key, value, flag, flag))
        elif not found.obsolete(written, fold(written), value, flag):
            found.add_unknown(written, flag, found.known.values())


def not_yaml(file: str, error: yaml.YAMLError) -> ConfigError:
    """Return the error for a file that is not YAML, with the line if known."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return ConfigError(f"{file}: not valid YAML: {str(error).splitlines()[0]}")
    line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
    return ConfigError(f"{file}{line}: not valid YAML: {error.problem}")


def _value(node: yaml.Node) -> object:
    """Return the text of a scalar as written, None for null, a list of texts for a list.

    Raises:
        _TwoValues: a key of a mapping has two values.
    """
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag == "tag:yaml.org,2002:null" else str(node.value)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    values: dict[str, object] = {}
    lines: dict[str, int] = {}
    for key_node, item in node.value:
        key, value = str(key_node.value), _value(item)
        if value is not None and values.get(key) not in (None, value):
            raise _TwoValues(f"line {_line(key_node)}: {key} was given another value in line {lines[key]}")
        if value is not None or key not in values:
            values[key], lines[key] = value, _line(key_node)
    return values


def _line(node: yaml.Node) -> int:
    mark = node.start_mark
    return int(mark.line) + 1 if mark else 0


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not text"


def known_keys(aliases: Iterable[str]) -> dict[str, str]:
    """Return the flat keys by folded spelling."""
    return {fold(alias): alias for alias in aliases}
