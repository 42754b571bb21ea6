"""Secrets that open encrypted models and records."""

import msgspec


class Secrets(msgspec.Struct, frozen=True):
    """Secret and salt that open encrypted models or records. Empty: secret and salt will be put into Redis."""

    secret: str = ""
    salt: str = ""

    def __repr__(self) -> str:
        return "Secrets(***)"
