"""Servers beside each other on one model: in which arrangement each is fastest, then rounds in which all take turns."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench.arrivals import Times
from bench.http_servers import Server, Unfit, free_port
from bench.peers.client import in_closed_loop, in_open_loop, warm_up
from bench.peers.environments import ENVIRONMENTS
from bench.peers.servers import KINDS, Arrangement
from bench.report import Figures

T = TypeVar("T")

CONNECTIONS = (8, 32)
_WARM_UP_RECORDS = 64


@dataclass
class Contest:
    """The contest on one model.

    Attributes:
        model: its name.
        path: its ONNX file.
        servers: by name, those that have not failed.
        capacities_per_s: of each, records a second in each arrangement that was tried.
        load_per_s: records a second of the open loop.
        rounds: the figures of each round.
        out: of those that failed, the reason.
    """

    model: str
    path: Path
    servers: list[str]
    capacities_per_s: dict[str, dict[Arrangement, float]] = field(default_factory=dict[str, dict[Arrangement, float]])
    load_per_s: float = 0
    rounds: list[Figures] = field(default_factory=list[Figures])
    out: dict[str, str] = field(default_factory=dict[str, str])

    def choose(self, arrangements: Sequence[Arrangement], seconds: float) -> None:
        """Try every server in each of these arrangements, over the most connections."""
        for name in list(self.servers):
            found = self._tried(name, partial(self._capacities_per_s, name, arrangements, seconds))
            if found:
                self.capacities_per_s[name] = found

    def kept(self, name: str) -> Arrangement:
        """The arrangement in which a server was fastest."""
        found = self.capacities_per_s[name]
        return max(found, key=found.__getitem__)

    def slowest_per_s(self) -> float:
        """Records a second of the slowest of the others, or of ours where they are alone; 0: all have failed."""
        others = [name for name in self.servers if name in ENVIRONMENTS] or self.servers
        return min((max(self.capacities_per_s[name].values()) for name in others), default=0)

    def take_turns(self, seconds: float, due_s: Times) -> None:
        """One round: closed loops of so many seconds, and an open loop by this schedule."""
        figures: Figures = {}
        first = len(self.rounds) % max(1, len(self.servers))  # nobody is always the one after an idle moment
        for name in self.servers[first:] + self.servers[:first]:
            found = self._tried(name, partial(self._turn, name, seconds, due_s)) or {}
            figures |= {f"{self.model}.{name}.{figure}": value for figure, value in found.items()}
        self.rounds.append(figures)

    def _capacities_per_s(
        self, name: str, arrangements: Sequence[Arrangement], seconds: float
    ) -> dict[Arrangement, float]:
        found: dict[Arrangement, float] = {}
        for arrangement in arrangements:
            with self._running(name, arrangement) as (server, port):
                found[arrangement] = in_closed_loop(server, port, max(CONNECTIONS), seconds)
        return found

    def _turn(self, name: str, seconds: float, due_s: Times) -> Figures:
        with self._running(name, self.kept(name)) as (server, port):
            rates = {f"{each}.records_per_s": in_closed_loop(server, port, each, seconds) for each in CONNECTIONS}
            return rates | in_open_loop(server, port, due_s)

    @contextmanager
    def _running(self, name: str, arrangement: Arrangement) -> Generator[tuple[Server, int]]:
        """The server, right and warm, and its port."""
        server, port = KINDS[name].server(name, self.path, arrangement), free_port()
        with server.running(port):
            server.await_ready(port)
            warm_up(server, port, _WARM_UP_RECORDS)
            yield server, port

    def _tried(self, name: str, work: Callable[[], T]) -> T | None:
        """Return the result of work on a server. After a second failure the server is out."""
        for is_last in (False, True):
            try:
                return work()
            except Unfit as error:
                if is_last:
                    self.out[name] = str(error)
                    self.servers.remove(name)
        return None
