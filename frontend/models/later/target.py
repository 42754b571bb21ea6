"""Target of a callback: a URL from a caller, and addresses behind its host that may be connected to.

Through the frontend, a caller must not reach the services that only the frontend can reach: of its machine, network and cloud.
So every address of the host has to be public, at each attempt, and the connection goes to the very address that was checked.
Hosts in `callbackHosts` are exempt.
"""

import asyncio
import re
import socket
from collections.abc import Collection
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from cluster_serving.frontend.http.errors import BadRequest

_URL = re.compile(r"[!-~]{1,2048}")
_PORTS = {"https": 443, "http": 80}
_NAT64 = IPv6Network("64:ff9b::/96")


class Forbidden(Exception):
    """The host of a callback has an address that is not public."""


class Target(NamedTuple):
    """Target of a callback.

    Attributes:
        is_tls: whether the connection uses TLS.
        host: name or address of the host.
        port: TCP port.
        path: path and query.
        is_exempt: whether `callbackHosts` has the host.
    """

    is_tls: bool
    host: str
    port: int
    path: str
    is_exempt: bool

    @classmethod
    def parse(cls, url: str, exempt: Collection[str]) -> "Target":
        """Return the target of a URL.

        Args:
            url: URL from a caller.
            exempt: hosts of `callbackHosts`.

        Raises:
            BadRequest: the URL is none, or a host that is not exempt is called without TLS or by a private address.
        """
        try:
            parts = urlsplit(url) if _URL.fullmatch(url) else urlsplit("")
            host, port = (parts.hostname or "").lower(), parts.port
            port = _PORTS.get(parts.scheme, 0) if port is None else port
        except ValueError:  # of a port or an IPv6 address
            host, port, parts = "", 0, urlsplit("")
        if not host or not port or "@" in parts.netloc or "#" in url:
            raise BadRequest(
                "callback is a URL of at most 2048 characters, as https://host/path, without user or fragment"
            )
        is_exempt = bool({host, f"{host}:{port}"} & {each.lower() for each in exempt})
        is_tls = parts.scheme == "https"
        is_fit = is_tls
        with suppress(ValueError):  # a name, which is looked up at each attempt
            is_fit = is_tls and is_public(host)
        if not (is_fit or is_exempt):
            raise BadRequest(
                f"callback goes to https:// and a public address, not to {parts.scheme}://{host[:100]}; for hosts of your own, "
                "the frontend's operator may set callbackHosts"
            )
        path = parts.path or "/"
        return cls(is_tls, host, port, f"{path}?{parts.query}" if parts.query else path, is_exempt)

    @property
    def authority(self) -> str:
        """Value of the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.is_tls else "http"] else f"{host}:{self.port}"

    async def addresses(self) -> list[str]:
        """Return the addresses of the host.

        Raises:
            Forbidden: an address is not public, and the host is not exempt.
            OSError: the host has no address.
        """
        found = await asyncio.get_running_loop().getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        addresses = [str(entry[4][0]) for entry in found]
        private = [] if self.is_exempt else [address for address in addresses if not is_public(address)]
        if private:
            raise Forbidden(f"{self.host} has the address {private[0]}, which is not public")
        return addresses


def is_public(address: str) -> bool:
    """Return whether an IP address is reachable by everybody, by its kind. An IPv4 address within an IPv6 address counts.

    https://www.iana.org/assignments/iana-ipv6-special-registry
    """
    found = ip_address(address)
    if isinstance(found, IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo or (None, None))[1]
        if found in _NAT64:
            inner = IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if found.is_site_local:
            return False
    return found.is_global and not (found.is_multicast or found.is_reserved)
