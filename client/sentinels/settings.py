"""Addresses of Redis Sentinels, and login."""

from dataclasses import dataclass, field

Address = tuple[str, int]
"""Host and port."""


@dataclass(frozen=True)
class SentinelSettings:
    """Addresses of the Sentinels that watch one master, the master's name, and the login at the Sentinels."""

    addresses: tuple[Address, ...]
    service: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def describe(self) -> str:
        """Return the part of a URL after the scheme and before the database."""
        return f"{','.join(f'{host}:{port}' for host, port in self.addresses)}/{self.service}"
