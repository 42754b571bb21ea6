"""Listening sockets of a frontend: a socket per process and address, all sharing the port (SO_REUSEPORT).

The kernel spreads connections over the sockets of a port. With a common socket, most of the connections that come at once would go
to the process that wakes up first. The server keeps every socket open: connections to a dead process wait for its successor.
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
    """Port with its sockets. `sockets[n]` are the sockets of process n, a socket for each address of the interface."""

    scheme: str
    host: str
    port: int
    sockets: tuple[tuple[socket.socket, ...], ...]

    @property
    def url(self) -> str:
        """URL for people to read."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def descriptors(self, process: int) -> list[int]:
        """Return the descriptors that a process inherits."""
        return [listening.fileno() for listening in self.sockets[process]]

    def close(self) -> None:
        """Stop listening."""
        for listening in (each for group in self.sockets for each in group):
            listening.close()


def listen(scheme: str, host: str, port: int, processes: int) -> Listener:
    """Listen on a port.

    Args:
        scheme: `http` or `https`.
        host: name or address.
        port: port number, or 0 for any free port.
        processes: number of processes that share the port.

    Raises:
        ConfigError: this machine has no such address.
        Fault: the port is taken, or not allowed.
    """
    try:
        found = socket.getaddrinfo(host or None, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is not the name of a host"
        raise ConfigError(f"interface is {host}, but it is not an address of this machine: {why}") from error
    addresses = list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))
    try:
        # First without SO_REUSEPORT: with SO_REUSEPORT a second frontend would quietly take a share of the first frontend's
        # requests.
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
