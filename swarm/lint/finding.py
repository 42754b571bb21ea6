"""A finding, and the services as the rules see them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Level = Literal["error", "warning"]
Role = Literal["redis", "node", "frontend", "other"]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: where, what, and how to mend it. An error keeps a stack from being deployed."""

    level: Level
    service: str
    what: str
    mend: str


@dataclass(frozen=True)
class Part:
    """One service of a merged stack."""

    name: str
    role: Role
    spec: dict[str, Any]
    document: dict[str, Any]

    def error(self, what: str, mend: str) -> Finding:
        """Something that loses data, gives secrets away, or cannot work."""
        return Finding("error", self.name, what, mend)

    def warning(self, what: str, mend: str) -> Finding:
        """Something that may be meant."""
        return Finding("warning", self.name, what, mend)

    def of_deploy(self, *keys: str) -> Any:
        """What stands below `deploy:` at these keys; None: nothing."""
        value: Any = self.spec.get("deploy")
        for key in keys:
            value = (value or {}).get(key)
        return value

    @property
    def environ(self) -> dict[str, str]:
        """Its variables."""
        environ = self.spec.get("environment") or {}
        pairs = environ.items() if isinstance(environ, Mapping) else (pair.partition("=")[::2] for pair in environ)
        return {str(name): "" if value is None else str(value) for name, value in pairs}

    @property
    def words(self) -> str:
        """Entrypoint and command, a word a line."""
        return "\n".join(word for key in ("entrypoint", "command") for word in _words(self.spec.get(key)))

    def files(self) -> dict[str, Path]:
        """Target to file, of the configs that it has from files."""
        configs = self.document.get("configs") or {}
        found: dict[str, Path] = {}
        for entry in self.spec.get("configs") or ():
            source = entry if isinstance(entry, str) else entry["source"]
            target = f"/{source}" if isinstance(entry, str) else entry.get("target", f"/{source}")
            if file := (configs.get(source) or {}).get("file"):
                found[target] = Path(file)
        return found


def parts_of(document: dict[str, Any]) -> list[Part]:
    """The services of a merged stack."""
    services: dict[str, dict[str, Any]] = document.get("services") or {}
    return [Part(name, _role(name, spec), spec, document) for name, spec in services.items()]


def _role(name: str, spec: dict[str, Any]) -> Role:
    """What a service is, by its program, then its image, then its name."""
    image = str(spec.get("image", "")).rpartition("/")[2].partition("@")[0].partition(":")[0]
    words = " ".join(_words(spec.get("command")))
    if "redis-server" in words or "redis" in image:
        return "redis"
    for text in (image, name):
        if "frontend" in text:
            return "frontend"
        if text.endswith("node") or "serving-node" in text:
            return "node"
    return "redis" if name == "redis" else "other"


def _words(value: Any) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else [str(word) for word in value]
