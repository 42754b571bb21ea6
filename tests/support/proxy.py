"""A TCP proxy before Redis that can be slow, and cut a connection at a chosen byte."""

import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Cut:
    """Cut the connection at the first packet that contains these bytes, of which the first part still gets through."""

    containing: bytes
    keep: float  # the part of the packet that gets through, 0 to 1
    happened: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Passes bytes between clients and the server on `target`, a port of this machine; another one is for new connections."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.delay_s = 0.0  # of each packet from Redis
        self._command_cut: Cut | None = None
        self._reply_cut: Cut | None = None
        self._sockets: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def cut_command(self, containing: bytes, keep: float) -> Cut:
        """Cut at the next such packet to Redis."""
        self._command_cut = Cut(containing, keep)
        return self._command_cut

    def cut_reply(self, containing: bytes, keep: float) -> Cut:
        """Cut at the next such packet from Redis."""
        self._reply_cut = Cut(containing, keep)
        return self._reply_cut

    def close(self) -> None:
        """End every connection, and listen no more."""
        _shut(self._listener)  # closed alone, it would accept one more
        self._accepting.join()
        for end in self._sockets:
            _shut(end)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    client.close()
                    continue
                self._sockets += (client, server)
                threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, to_redis: bool) -> None:
        with suppress(OSError):
            while packet := source.recv(1 << 20):
                if not to_redis and self.delay_s:
                    time.sleep(self.delay_s)
                cut = self._command_cut if to_redis else self._reply_cut
                if cut is not None and not cut.happened.is_set() and cut.containing in packet:
                    cut.happened.set()
                    sink.sendall(packet[: int(len(packet) * cut.keep)])
                    break
                sink.sendall(packet)
        _shut(source)
        _shut(sink)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextmanager
def proxy(target: int) -> Generator[Proxy]:
    """A proxy for a block."""
    running = Proxy(target)
    try:
        yield running
    finally:
        running.close()
