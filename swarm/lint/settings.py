"""Checks of the settings of nodes, frontends and the autoscaler: config.yaml, overridden by the stack's variables.

The settings are read with the loaders of each of them.
"""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from cluster_serving.client.servers.config.loading import load
from cluster_serving.client.servers.config.spellings import ConfigError, Spellings
from cluster_serving.frontend.config import spellings as frontend_keys
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.node.config import spellings as node_keys
from cluster_serving.node.config.config import Config
from cluster_serving.node.config.settings import PLACEHOLDER_PATH
from cluster_serving.swarm.autoscale import settings as autoscaler
from cluster_serving.swarm.autoscale.settings import Autoscale
from cluster_serving.swarm.lint.finding import Finding, Part

_TARGET = "/etc/cluster-serving/config.yaml"

_READERS: dict[str, tuple[type[BaseModel], Spellings]] = {
    "node": (Config, node_keys.SPELLINGS),
    "frontend": (FrontendConfig, frontend_keys.SPELLINGS),
    "autoscaler": (Autoscale, autoscaler.SPELLINGS),
}


def drain_s(part: Part) -> float | None:
    """Return the seconds that a node or a frontend may drain, or None for a different service or unreadable settings."""
    try:
        settings = _read(part)
    except ConfigError:
        return None
    return float(settings.drain_timeout_s) if isinstance(settings, Config | FrontendConfig) else None


def findings(part: Part) -> Iterator[Finding]:
    """Yield findings about the settings of a node or a frontend."""
    try:
        settings = _read(part)
    except ConfigError as error:
        yield part.error(f"cannot read its settings: {error}", "mend that line")
        return
    if not isinstance(settings, Config):
        return
    path = settings.model_path
    if path in {"", PLACEHOLDER_PATH}:
        # A config that is only in the Swarm may name a model, and its content cannot be read here.
        configs = part.document.get("configs") or {}
        if not any(
            isinstance(entry, dict)
            and (configs.get(entry["source"]) or {}).get("external")
            and str(entry.get("target", "")) == _TARGET
            for entry in part.spec.get("configs") or ()
        ):
            yield part.error("has no model", "deploy with --model, or set modelPath in config.yaml")
        return
    targets = [str(volume.get("target", "")) for volume in part.spec.get("volumes") or () if isinstance(volume, dict)]
    if "://" not in path and not any(Path(path).is_relative_to(target) for target in targets if target):
        yield part.warning(
            f"is to serve {path}, and nothing is mounted there", "mount it below volumes:, unless it is in the image"
        )


def _read(part: Part) -> BaseModel | None:
    if part.role not in _READERS:
        return None
    model, spellings = _READERS[part.role]
    # Secret files exist only in the containers.
    environ = {name: value for name, value in part.environ.items() if not name.endswith("_FILE")}
    file = part.files().get(_TARGET)
    path = file if file is not None and file.exists() else None
    return load(model, spellings, path, environ, {}).config
