"""Settings of node, frontend and autoscaler: a section each, with type, default, example, variable and flag."""

import re
from collections.abc import Mapping
from typing import Any, get_args

import click
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cluster_serving.client.servers.config.sources import ENVIRON_PREFIX
from cluster_serving.client.servers.config.spellings import snake
from cluster_serving.client.servers.config.values import parse_size
from cluster_serving.frontend.config.settings import GROUPS, FrontendConfig
from cluster_serving.node.commands.start import start
from cluster_serving.node.config.settings import Settings
from cluster_serving.swarm.autoscale.settings import Autoscale

_SIZES = {"g": 1 << 30, "m": 1 << 20, "k": 1 << 10}
_LEAST_SIZE = 4096  # a smaller number is a count

_TOP = f"""# Settings

A setting comes from a flag, else from the environment, else from `config.yaml`, else from its default. `cluster-serving config` and
`cluster-serving frontend --print-config` print each in effect, with its source.

- **File**: `config.yaml` of the current folder, or `-c FILE`. Each section below begins with a line for it.
- **Environment**: the name in capitals, `modelPath` as `{ENVIRON_PREFIX}{snake("modelPath").upper()}`. For a secret, `_FILE` behind
  the variable names a file that holds it: secrets belong there, and not on a command line.
- **Sizes** are bytes, or take k, m and g: `64m`. Lists have commas, `a, b`, or are lists of YAML.

All settings have been there since 0.1.0. Spellings of the original's versions are read too: [coming over](../coming-over.md).
"""

_FRONTEND = """Below `frontend:` in `config.yaml`, or as a flag. `redisUrl` and the other settings of Redis, `jobName` and
`logLevel` are read from the node's part of the file too.
"""

_AUTOSCALER = """Below `autoscale:` in `config.yaml`. [Nodes that follow the load](../how-to/autoscale.md) tells when to set them.
"""

EXAMPLES = {
    "accuracyAgreement": "0.98",
    "accuracyMetric": "metric.py:score",
    "accuracyTolerance": "0.02",
    "apiKeysFile": "/etc/cluster-serving/keys",
    "calibrationData": "samples.npz",
    "callbackHosts": "hooks.internal, 10.0.0.5:8080",
    "callbackSecret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=",
    "coreNumberPerMachine": "4",
    "corsOrigins": "https://app.example",
    "httpsKeyPath": "key.pem",
    "httpsKeyStorePath": "frontend.p12",
    "imageChannels": "1",
    "imageMean": "104, 117, 123",
    "imageResize": "224,224",
    "imageScale": "0.0078125",
    "interface": "127.0.0.1",
    "labels": "labels.txt",
    "maxBatchDelayMs": "2",
    "maxWorkerMemory": "2g",
    "modelCache": "/var/cache/models",
    "modelChecksum": "sha256:9d3bd3499042ab85bb36ce3e69bbf739a273766aa81599099ab1fa2e7f9ea4ab",
    "modelInputs": "ids int64 [N,12]",
    "modelOutputs": "scores",
    "modelParallelism": "2",
    "modelPath": "/srv/models/resnet",
    "modelSignature": "serving_default",
    "modelType": "onnx",
    "batchSize": "16",
    "objective": "latency:20",
    "padding": "{input_ids: 0, attention_mask: 0}",
    "postProcessing": "topN(5)",
    "processing": "mine.py:Mine",
    "redisCertFile": "client.pem",
    "redisDb": "1",
    "redisHost": "10.0.0.5",
    "redisKeyFile": "client-key.pem",
    "redisPort": "6380",
    "redisSecureTrustStorePath": "ca.pem",
    "redisUrl": "rediss://10.0.0.5:6380/0",
    "redisUsername": "node",
    "schedule": "{8-18: 4}",
    "sentinelUsername": "node",
    "servableManagerConfPath": "servables-conf.yaml",
    "shadow": "1%",
    "tensorboardDir": "runs",
    "threadPerModel": "2",
    "timeZone": "Europe/Berlin",
}
"""Value of a setting in `config.yaml`, where neither its type nor its default says how one looks."""


def settings_page() -> str:
    """Return the page."""
    flags = _flags_of_start()
    node = [_section(Settings, name, flags.get(_key(name, field), "")) for name, field in _sorted(Settings)]
    groups: list[str] = []
    for group in GROUPS:
        groups.append(f"### {(group.__doc__ or '').rstrip('.')}\n")
        groups += [_section(FrontendConfig, name, _flag(_key(name, field)), "####") for name, field in _sorted(group)]
    autoscaler = [_section(Autoscale, name, "") for name, _ in _sorted(Autoscale)]
    return (
        "\n".join(
            [
                _TOP,
                "## Node\n",
                "In `config.yaml`, or as a flag of `start` and `serve`: `--set name=value`.\n",
                *node,
                "## Frontend\n",
                _FRONTEND,
                *groups,
                "## Autoscaler\n",
                _AUTOSCALER,
                *autoscaler,
            ]
        ).rstrip("\n")
        + "\n"
    )


def _sorted(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    return sorted(model.model_fields.items(), key=lambda item: _key(*item).lower())


def _section(model: type[BaseModel], name: str, flag: str, heading: str = "###") -> str:
    field = model.model_fields[name]
    key = _key(name, field)
    schema: Mapping[str, Any] = model.model_json_schema(by_alias=True)["properties"][key]
    kind = _type(field, schema)
    default = "`auto`" if kind.endswith("`auto`") else _default(field)
    facts = [kind, f"default {default}", f"`{ENVIRON_PREFIX}{snake(key)}`"]
    facts += [f"`{flag}`"] if flag else []
    facts = facts if not _is_secret(field) else [*facts[:2], f"`{ENVIRON_PREFIX}{snake(key)}_FILE`", *facts[2:]]
    example = "" if _is_secret(field) else f"```yaml\n{key}: {_example(key, field, schema)}\n```\n\n"
    return f"{heading} `{key}`\n\n{field.description}\n\n{example}{' · '.join(facts)}\n"


def _key(name: str, field: FieldInfo) -> str:
    return field.alias or name


def _is_secret(field: FieldInfo) -> bool:
    return SecretStr in (field.annotation, *get_args(field.annotation))


def _type(field: FieldInfo, schema: Mapping[str, Any]) -> str:
    if _is_secret(field):
        return "secret"
    choices = schema.get("anyOf", [schema])
    if any(getattr(each, "func", None) is parse_size for each in field.metadata):
        return "size"
    kinds = [_kind(each) for each in choices if each.get("type") != "null"]
    return ", or ".join(kinds) + (", or `auto`" if "auto" in (field.description or "") and len(choices) > 1 else "")


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    words = {"boolean": "`true` or `false`", "integer": "whole number", "number": "number", "string": "text"}
    words |= {"array": "list", "object": "values by name"}
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    bounds = [f"{'above' if 'exclusiveMinimum' in schema else 'from'} {low:g}"] if low is not None else []
    bounds += [f"to {high:g}"] if high is not None else []
    return " ".join([words[schema["type"]], *bounds])


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined or value is None or isinstance(value, SecretStr) or value in ("", (), {}):
        return "unset"
    return f"`{_written(value)}`"


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    for unit, size in _SIZES.items():
        if isinstance(value, int) and value >= _LEAST_SIZE and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


def _example(key: str, field: FieldInfo, schema: Mapping[str, Any]) -> str:
    if key in EXAMPLES:
        return EXAMPLES[key]
    if isinstance(field.default, bool):
        return _written(not field.default)
    others = [value for value in schema.get("enum", ()) if value != field.default]
    return _written(others[-1] if others else field.default)


def _flags_of_start() -> dict[str, str]:
    """Return the flag of `start` for each setting that has one. The help of the flag names the setting in brackets."""
    flags: dict[str, str] = {}
    for option in start.params:
        named = re.search(r"\((\w+)\)", option.help or "") if isinstance(option, click.Option) else None
        if named:
            flags[named[1]] = option.opts[-1]
    return flags


def _flag(key: str) -> str:
    return f"--{snake(key).lower().replace('_', '-')}"
