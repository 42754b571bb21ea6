"""Listening sockets of a frontend: a socket per process and address, all sharing the port (SO_REUSEPORT).

The kernel spreads connections over the sockets of a port. With a common socket, most of the connections that come at once would go
to the process that wakes up first. The server keeps every socket open: connections to a dead process wait for its successor, and
processes with new settings take over the sockets of the processes before.
"""

import errno
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.frontend.config.settings import FrontendConfig

_BACKLOG = 1024
Address = tuple[str, str, int]
"""Scheme, interface and port, as in the settings."""


@dataclass(frozen=True)
class Listener:
    """Port with its sockets, in groups with a socket for each address of the interface. Each process has one group or more."""

    scheme: str
    host: str
    port: int
    addresses: tuple[tuple[socket.AddressFamily, str], ...]
    groups: tuple[tuple[socket.socket, ...], ...]

    @property
    def url(self) -> str:
        """URL for people to read."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def sockets(self) -> set[socket.socket]:
        """All sockets."""
        return {each for group in self.groups for each in group}

    def descriptors(self, process: int, processes: int) -> list[int]:
        """Return the descriptors that a process inherits."""
        return [each.fileno() for group in self.groups[process::processes] for each in group]

    def shared_by(self, processes: int) -> "Listener":
        """Return a listener with the same sockets, and a group for each process. New sockets listen once their process does.

        Raises:
            Fault: no socket can be made.
        """
        missing = range(len(self.groups), processes)
        try:
            new = tuple(tuple(_bound(*address, self.port) for address in self.addresses) for _ in missing)
        except OSError as error:
            raise _fault(error, self.scheme, self.host, self.port) from error
        return replace(self, groups=self.groups + new)


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
    addresses = tuple(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))
    try:
        # First without SO_REUSEPORT: with SO_REUSEPORT a second frontend would quietly take a share of the first frontend's
        # requests.
        for family, address in addresses:
            with _socket(family) as probe:
                probe.bind((address, port))
                port = port or int(probe.getsockname()[1])
        groups = tuple(tuple(_bound(*address, port) for address in addresses) for _ in range(processes))
        listener = Listener(scheme, host, port, addresses, groups)
        for bound in listener.sockets:
            bound.listen(_BACKLOG)
    except OSError as error:
        raise _fault(error, scheme, host, port) from error
    return listener


def listeners_of(config: FrontendConfig, known: Mapping[Address, Listener]) -> dict[Address, Listener]:
    """Return a listener for each address that the settings name. A known listener keeps its sockets.

    Raises:
        Fault: there is no such address, or a port is taken or not allowed. No new socket stays open.
    """
    wanted: list[Address] = [("http", config.interface, config.port)]
    if config.https_enabled:
        wanted.append(("https", config.interface, config.secure_port))
    found: dict[Address, Listener] = {}
    try:
        for address in wanted:
            listener = known.get(address) or listen(*address, config.workers)
            found[address] = listener.shared_by(config.workers)
    except Fault:
        close(found, known)
        raise
    return found


def close(listeners: Mapping[Address, Listener], but: Mapping[Address, Listener] | None = None) -> None:
    """Close the sockets of listeners, except for the sockets that other listeners have too."""
    kept = {each for listener in (but or {}).values() for each in listener.sockets}
    for listener in listeners.values():
        for unused in listener.sockets - kept:
            unused.close()


def _socket(family: socket.AddressFamily) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return made


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    made = _socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((address, port))
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
