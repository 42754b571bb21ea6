"""Checks for open ports and readable secrets."""

import re
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

import yaml

from cluster_serving.swarm.lint.finding import Finding, Part
from cluster_serving.swarm.stack import text_of

_SECRET = re.compile(
    r"(password|passwd|secret|(?-i:[Tt]okens?(?![a-z])|TOKENS?(?![A-Z]))|salt|api_?key|private_?key)", re.IGNORECASE
)
_TOKEN_COUNT = re.compile(r"tokens(?![a-z]).*=\d+(\.\d+)?$", re.IGNORECASE)  # a limit, as MAX_TOKENS=512
_NO_SECRET = re.compile(r"(_file|file|path|enabled|username|perSecond|timeout|__file)$", re.IGNORECASE)
_NO_VALUE = {"", "~", "null", "true", "false", "yes", "no", "on", "off"}
_LAST_PORT = 65_535
_IN_URL = re.compile(r"[a-z+]+://[^\s/@]*:[^\s/@$]+@")
_IN_COMMAND = re.compile(
    r"""(?:sentinel\s+auth-pass\s+\S+|(?<!auth)--?(?:pass|password|token|secret|requirepass|masterauth))[\s=]+"""
    r"""(?!["']?\$|/run/secrets|-)\S+""",
    re.IGNORECASE,
)
_IN_REDIS_CONF = re.compile(r"""^\s*(requirepass|masterauth)\s+(?!["']?\$|\{\{)\S""", re.MULTILINE)


def findings(part: Part) -> Iterator[Finding]:
    """Yield findings about the open ports and readable secrets of a service."""
    ports = part.spec.get("ports") or ()
    for port in ports:
        published = str(port.get("published", "")) if isinstance(port, dict) else ""
        if published.isdigit() and int(published) > _LAST_PORT:
            yield part.error(f"publishes port {published}, which does not exist", f"use one up to {_LAST_PORT}")
    if ports and part.role == "redis":
        yield part.error(
            "is open to everybody who reaches a machine of the Swarm",
            "remove ports:; nodes and frontends reach it by name",
        )
    elif ports and part.role == "node":
        yield part.warning("publishes a port, but nobody connects to a node", "remove ports:")
    for name, value in part.environ.items():
        if value and (_is_secret(name, value) or _IN_URL.search(value)):
            yield part.error(
                f"has a secret in its variable {name}, where docker inspect shows it",
                f"make it a secret of the stack, and name its file: {name}_FILE=/run/secrets/...",
            )
    words = part.words
    if found := (_IN_COMMAND.search(words) or _IN_REDIS_CONF.search(words) or _IN_URL.search(words)):
        yield part.error(
            f"has a secret in its command line ({found[0].split()[0].partition('=')[0].partition('://')[0]})",
            "make it a secret of the stack, and read it from /run/secrets",
        )
    for target, file in part.files().items():
        try:
            text = text_of(file)
            # The texts of the values: a loader ends at a text that looks like a date and is none.
            root = yaml.compose(text, Loader=yaml.SafeLoader) if file.suffix in {".yaml", ".yml"} else None
            keys = [*_keys_in(root)]
        except (OSError, yaml.YAMLError, RecursionError):
            continue  # an unreadable file is reported by other checks
        for key in (*keys, *_IN_REDIS_CONF.findall(text)):
            yield part.error(
                f"has a secret in {file.name} ({key}), which is a config: everybody who reaches the Swarm can read it",
                f"make it a secret of the stack; {target} is no place for it",
            )


def of_secrets(document: dict[str, Any]) -> Iterator[Finding]:
    """Yield findings about the files of the stack's secrets and configs."""
    for part, kind in (("secrets", "secret"), ("configs", "config")):
        for key, entry in (document.get(part) or {}).items():
            file = (entry or {}).get("file")
            if file is None:
                continue
            path = Path(file)
            if not path.is_file() and key.endswith("password"):
                yield Finding(
                    "warning", "", f"{kind} {key}: there is no file {path}", "swarm deploy and swarm render make it"
                )
            elif not path.is_file():
                yield Finding("error", "", f"{kind} {key}: there is no file {path}", "put it there")
            elif kind == "secret" and not path.read_bytes().strip():
                yield Finding("error", "", f"{kind} {key}: {path} is empty", "write the secret into it")
            elif kind == "secret" and path.stat().st_mode & 0o044:
                yield Finding("warning", "", f"{kind} {key}: others can read {path}", f"chmod 600 {quote(file)}")


def _is_secret(name: str, value: str) -> bool:
    if name.endswith("_FILE") or value.startswith("/run/secrets/"):
        return False
    return bool(_SECRET.search(name)) and not _NO_SECRET.search(name) and not _TOKEN_COUNT.search(f"{name}={value}")


def _keys_in(node: yaml.Node | None) -> Iterator[str]:
    """Yield the keys of a YAML document that hold a secret."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(value, yaml.ScalarNode):
                yield from _keys_in(value)
            elif value.value.lower() not in _NO_VALUE and (
                _is_secret(str(key.value), value.value) or _IN_URL.search(value.value)
            ):
                yield str(key.value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _keys_in(item)
