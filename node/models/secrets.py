"""Secrets that open encrypted models and records."""

import msgspec


class Secrets(msgspec.Struct, frozen=True):
    """What opens encrypted models (or records): `secret` and `salt`; empty: they will be put into Redis."""

    secret: str = ""
    salt: str = ""

    def __repr__(self) -> str:
        return "Secrets(***)"
