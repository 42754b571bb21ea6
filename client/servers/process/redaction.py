"""Redaction of a process's secrets in its output.

Code that reads a secret calls `hide`. From then on `redact` replaces the secret with `***` anywhere in a text: as written,
percent-encoded as in a URL, or escaped as in Python, JSON and logfmt. Secrets of fewer than four characters are let through:
hiding `a` would make the log unreadable, and the holes would reveal the secret.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from cluster_serving.client.servers.config.values import secrets_of_address

HIDDEN = "***"
_SHORTEST = 4

_secrets: dict[str, str] = {}  # secret -> pattern of every way to write the secret
_pattern: re.Pattern[str] | None = None


def hide(*secrets: str | None) -> None:
    """Let `redact` hide secrets, for the life of the process.

    Args:
        secrets: texts to hide. None, and texts of fewer than four characters, are left out.
    """
    global _pattern
    for secret in secrets:
        if secret and len(secret) >= _SHORTEST:
            written = {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], secret.replace('"', '\\"')}
            patterns = [re.escape(form) for form in sorted(written, key=len, reverse=True)]
            in_url = ""  # each character percent-encoded or not. Hexadecimal digits come in both cases
            for character in secret:
                encoded = "".join(f"%{byte:02x}" for byte in character.encode(errors="surrogatepass"))
                space = r"|\+" if character == " " else ""
                in_url += f"(?:{re.escape(character)}|(?i:{encoded}){space})"
            _secrets.setdefault(secret, "|".join((*patterns, in_url)))
    # The longest secret first, because a secret may be the beginning of a longer secret.
    forms = [_secrets[secret] for secret in sorted(_secrets, key=len, reverse=True)]
    _pattern = re.compile("|".join(forms)) if forms else None


def redact(text: str) -> str:
    """Return the text without the secrets of the process."""
    return text if _pattern is None else _pattern.sub(HIDDEN, text)


def secrets_of_config(config: Any) -> Iterator[str]:
    """Yield every secret of a configuration: the fields of type `SecretStr`, and the secrets in URLs."""
    from pydantic import SecretStr  # imported here, because a child has no configuration

    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, SecretStr):
            yield value.get_secret_value()
    yield config.redis_settings().password or ""
    yield from secrets_of_address(getattr(config, "model_path", ""))


def secrets_of_spec(spec: Any) -> Iterator[str]:
    """Yield every secret in a child's spec: passwords of Redis and Sentinels, secrets that open models and records."""
    if (lane := getattr(spec, "lane", None)) is not None:
        yield lane.redis.password or ""
        if lane.redis.sentinels is not None:
            yield lane.redis.sentinels.password or ""
    for name in ("model_secrets", "record_secrets"):
        secrets = getattr(spec, name, None)
        if secrets is not None:
            yield from (secrets.secret, secrets.salt)
