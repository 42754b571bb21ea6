"""Keeps the secrets of this process out of what it prints.

Who reads a secret says so by `hide`; from then on `redact` puts `***` in its place, wherever it stands in a text: as it is,
percent-encoded as in a URL, or escaped as Python, JSON and logfmt do. Secrets of fewer than four characters are let through:
hiding `a` would hide what the log says, and tell the secret by the holes.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from cluster_serving.client.servers.config.values import secrets_of_address

HIDDEN = "***"
_SHORTEST = 4

_secrets: dict[str, str] = {}  # the secret, and the pattern of every way to write it
_pattern: re.Pattern[str] | None = None


def hide(*secrets: str | None) -> None:
    """Have these hidden by `redact`, for the life of this process.

    Args:
        secrets: None, and whatever has fewer than four characters, is left out.
    """
    global _pattern
    for secret in secrets:
        if secret and len(secret) >= _SHORTEST:
            _secrets.setdefault(secret, _any_form(secret))
    # The longest first: one secret may be the beginning of another.
    forms = [_secrets[secret] for secret in sorted(_secrets, key=len, reverse=True)]
    _pattern = re.compile("|".join(forms)) if forms else None


def redact(text: str) -> str:
    """The text without the secrets of this process."""
    return text if _pattern is None else _pattern.sub(HIDDEN, text)


def secrets_of_config(config: Any) -> Iterator[str]:
    """Every secret of a configuration: its fields of type `SecretStr`, and what its URLs hold."""
    from pydantic import SecretStr  # a child has no configuration

    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, SecretStr):
            yield value.get_secret_value()
    yield config.redis_settings().password or ""
    yield from secrets_of_address(getattr(config, "model_path", ""))


def secrets_of_spec(spec: Any) -> Iterator[str]:
    """Every secret in what a child is told: the password of Redis, and what opens models and records."""
    yield spec.lane.redis.password or ""
    for name in ("model_secrets", "record_secrets"):
        secrets = getattr(spec, name, None)
        if secrets is not None:
            yield from (secrets.secret, secrets.salt)


def _any_form(secret: str) -> str:
    forms = {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], secret.replace('"', '\\"')}
    literal = (re.escape(form) for form in sorted(forms, key=len, reverse=True))
    return "|".join((*literal, "".join(map(_character, secret))))


def _character(character: str) -> str:
    """One character, percent-encoded or not; hexadecimal digits come in both cases."""
    encoded = "".join(f"%{byte:02x}" for byte in character.encode(errors="surrogatepass"))
    space = r"|\+" if character == " " else ""
    return f"(?:{re.escape(character)}|(?i:{encoded}){space})"
