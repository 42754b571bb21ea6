"""Reference pages made from the code: settings, metrics, the JSON of `bench`. `make docs` writes them, and a test compares them."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from prometheus_client.metrics_core import Metric
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cluster_serving.client.servers.config.sources import ENVIRON_PREFIX
from cluster_serving.client.servers.config.spellings import snake
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.metrics.frontend_metrics import frontend_metrics
from cluster_serving.frontend.metrics.node_metrics import node_metrics
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.node.config.settings import Settings
from cluster_serving.node.load.result import Result

_SIZES = {"g": 1 << 30, "m": 1 << 20, "k": 1 << 10}
_LEAST_SIZE = 4096  # a smaller number is a count


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    return {
        "reference/settings.md": "\n".join(_settings()) + "\n",
        "reference/metrics.md": "\n".join(_metrics()) + "\n",
        "reference/bench.schema.json": json.dumps(msgspec.json.schema(Result), indent=2) + "\n",
    }


def _settings() -> Iterator[str]:
    yield from (
        "# Settings",
        "",
        "A setting comes from a flag, else from the environment, else from `config.yaml`, else from its default;",
        "`cluster-serving config` and `cluster-serving frontend --print-config` print each with its source. The variable of the",
        f"environment is the name in capitals: `modelPath` is `{ENVIRON_PREFIX}{snake('modelPath').upper()}`; with `_FILE` behind",
        "the name of a secret it names a file. Sizes take k, m and g.",
        "",
        "## Node",
        "",
        "In `config.yaml`, or as a flag: `--set name=value`.",
        "",
        *_table(Settings),
        "",
        "## Frontend",
        "",
        "Below `frontend:` in `config.yaml`, or as a flag: `--port`, `--request-timeout`.",
        "",
        *_table(FrontendConfig),
    )


def _table(model: type[BaseModel]) -> Iterator[str]:
    yield "| setting | default | |"
    yield "|---|---|---|"
    for name, field in sorted(model.model_fields.items(), key=lambda item: _key(*item).lower()):
        meaning = (field.description or "").replace("|", "\\|")
        yield f"| `{_key(name, field)}` | {_default(field)} | {meaning} |"


def _key(name: str, field: FieldInfo) -> str:
    return field.alias or name


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined or value is None or isinstance(value, SecretStr) or value in ("", ()):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    for unit, size in _SIZES.items():
        if isinstance(value, int) and value >= _LEAST_SIZE and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


def _metrics() -> Iterator[str]:
    yield from (
        "# Metrics",
        "",
        "`/metrics` of a frontend as Prometheus reads it (`Accept: text/plain`). Without the header it is the original's JSON.",
        "",
        "## Nodes and queues",
        "",
        *_families(node_metrics([])),
        "",
        "## Frontend",
        "",
        *_families(frontend_metrics(Timers(1).read())),
    )


def _families(families: Iterable[Metric]) -> Iterator[str]:
    yield "| metric | kind | |"
    yield "|---|---|---|"
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield f"| `{name}` | {family.type} | {family.documentation} |"


if __name__ == "__main__":
    for name, text in pages().items():
        (Path(sys.path[0]) / name).write_text(text)
