"""The sockets that a frontend listens on: for each address one a process, sharing the port (SO_REUSEPORT).

The kernel spreads connections over the sockets of a port. One socket for all processes would give most connections that come at
once to the process that wakes up first. The supervisor keeps every socket open, so that connections to a process that has died
wait for the one that is started in its place.
"""

import errno
import os
import socket
from dataclasses import dataclass

from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.client.servers.process.exit_codes import Fault

_BACKLOG = 1024


@dataclass(frozen=True)
class Listener:
    """One port; `sockets[n]` are those of process n, one an address of the interface."""

    scheme: str
    host: str
    port: int
    sockets: tuple[tuple[socket.socket, ...], ...]

    @property
    def url(self) -> str:
        """For people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def descriptors(self, process: int) -> list[int]:
        """What a process inherits."""
        return [listening.fileno() for listening in self.sockets[process]]

    def close(self) -> None:
        """Listen no more."""
        for listening in (each for group in self.sockets for each in group):
            listening.close()


def listen(scheme: str, host: str, port: int, processes: int) -> Listener:
    """Listen on a port.

    Args:
        scheme: `http` or `https`.
        host: a name or an address.
        port: 0 for any that is free.
        processes: how many share it.

    Raises:
        ConfigError: this machine has no such address.
        Fault: the port is taken, or not allowed.
    """
    addresses = _addresses(host)
    try:
        # First without SO_REUSEPORT: with it, a second frontend would quietly take its share of the requests of the first.
        for family, address in addresses:
            with _socket(family) as probe:
                probe.bind((address, port))
                port = port or int(probe.getsockname()[1])
        sockets = tuple(
            tuple(_listening(family, address, port) for family, address in addresses) for _ in range(processes)
        )
    except OSError as error:
        raise _fault(error, scheme, host, port) from error
    return Listener(scheme, host, port, sockets)


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(host or None, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is no name of a host"
        raise ConfigError(f"interface is {host}, but it is not an address of this machine: {why}") from error
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _socket(family: socket.AddressFamily) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return made


def _listening(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    made = _socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((address, port))
    made.listen(_BACKLOG)
    return made


def _fault(error: OSError, scheme: str, host: str, port: int) -> Fault:
    key = "port" if scheme == "http" else "securePort"
    if error.errno == errno.EADDRINUSE:
        return Fault(f"{key} {port} of {host} is taken: another program listens there; choose another {key}")
    if error.errno == errno.EACCES:
        return Fault(f"{key} {port} of {host} is not allowed to this user; choose one from 1024 on")
    if error.errno == errno.EADDRNOTAVAIL:
        return ConfigError(f"interface is {host}, but it is not an address of this machine")
    return Fault(f"cannot listen on {key} {port} of {host}: {os.strerror(error.errno or 0)}")
