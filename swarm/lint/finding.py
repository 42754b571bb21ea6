"""Findings, and the services of a stack as the checks see them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Level = Literal["error", "warning"]
Role = Literal["redis", "node", "frontend", "autoscaler", "other"]


@dataclass(frozen=True)
class Finding:
    """Fault of a stack: the service, the description and the remedy. An error prevents the deployment."""

    level: Level
    service: str
    what: str
    mend: str


@dataclass(frozen=True)
class Part:
    """Service of a merged stack."""

    name: str
    role: Role
    spec: dict[str, Any]
    document: dict[str, Any]

    def error(self, what: str, mend: str) -> Finding:
        """Return an error: the service loses data, reveals a secret, or cannot work."""
        return Finding("error", self.name, what, mend)

    def warning(self, what: str, mend: str) -> Finding:
        """Return a warning: the setting may be intended."""
        return Finding("warning", self.name, what, mend)

    def of_deploy(self, *keys: str) -> Any:
        """Return the value at a path of keys below `deploy:`, or None."""
        value: Any = self.spec.get("deploy")
        for key in keys:
            value = (value or {}).get(key)
        return value

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables of the service."""
        environ = self.spec.get("environment") or {}
        pairs = environ.items() if isinstance(environ, Mapping) else (pair.partition("=")[::2] for pair in environ)
        return {str(name): "" if value is None else str(value) for name, value in pairs}

    @property
    def words(self) -> str:
        """Entrypoint and command, one word per line."""
        return "\n".join(word for key in ("entrypoint", "command") for word in _words(self.spec.get(key)))

    def files(self) -> dict[str, Path]:
        """Return target path to file, for the service's configs that come from files."""
        configs = self.document.get("configs") or {}
        found: dict[str, Path] = {}
        for entry in self.spec.get("configs") or ():
            source = entry if isinstance(entry, str) else entry["source"]
            target = f"/{source}" if isinstance(entry, str) else entry.get("target", f"/{source}")
            if file := (configs.get(source) or {}).get("file"):
                found[target] = Path(file)
        return found


def parts_of(document: dict[str, Any]) -> list[Part]:
    """Return the services of a merged stack."""
    services: dict[str, dict[str, Any]] = document.get("services") or {}
    return [Part(name, _role(name, spec), spec, document) for name, spec in services.items()]


def _role(name: str, spec: dict[str, Any]) -> Role:
    """Return the role of a service, judged by its program, then its image, then its name."""
    image = str(spec.get("image", "")).rpartition("/")[2].partition("@")[0].partition(":")[0]
    words = " ".join(_words(spec.get("command")))
    if "redis-server" in words or "redis" in image:
        return "other" if "--sentinel" in words else "redis"
    program = [*_words(spec.get("entrypoint")), *_words(spec.get("command"))]
    if "swarm" in program:  # a service in the image of the frontend
        return "autoscaler" if "autoscale" in program else "other"
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
