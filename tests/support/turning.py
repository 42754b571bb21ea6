"""Generation that a test arranges itself, and turns as a supervisor does."""

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from cluster_serving.node.config.arrangement import Arrangement
from cluster_serving.node.config.choice import Choice
from cluster_serving.node.config.loading import Config
from cluster_serving.node.models.detect import detect
from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.supervisor.generation import Generation, take_turn
from cluster_serving.node.topology.budget import Budget
from cluster_serving.node.topology.machine import Core
from cluster_serving.node.topology.placement import LanePlaces
from support.models import MODELS
from support.private_redis import PrivateRedis

_TURN_S = 0.02
_PATIENCE_S = 60.0

CORES = tuple(Core(number, number) for number in sorted(os.sched_getaffinity(0)))
MORE = tuple(Core(number, number) for number in range(1000, 1008))
"""Cores that this machine seems to have: a lane has room for workers on them."""


def arrangement(*crews: int, domain: int | None = None, cores: tuple[int, ...] = ()) -> Arrangement:
    """Generation of so many workers each, all on this machine's cores, or each worker on these."""
    lanes = tuple(LanePlaces((cores,) * crew, (), domain) for crew in crews)
    config = Config()
    return Arrangement(Budget(CORES, None, MORE), Choice(sum(crews), 1, 4, config.runtime), lanes)


class Turning:
    """Generations of lanes that serve `affine.py` in this process's charge. Calls wait for them as for those of a node."""

    def __init__(self, server: PrivateRedis, job: str) -> None:
        server.serve_once(job)
        path = str(MODELS / "affine.py")
        self._config = Config(model_path=path, job_name=job, redis_url=server.url, batch_size=4, slot_bytes=1 << 16)
        self._bell = Bell()
        self.generations: list[Generation] = []

    def make(self, arrangement: Arrangement) -> Generation:
        """Another generation."""
        model = detect(self._config.model_path, None, ())
        number = self.generations[-1].number + 1 if self.generations else 0
        lanes = Generation(self._config, model, "node", number, arrangement)
        self.generations.append(lanes)
        return lanes

    def start(self, arrangement: Arrangement) -> Generation:
        """Start another generation, and wait until it serves."""
        lanes = self.make(arrangement)
        lanes.start()
        self.until(lambda: lanes.serving, "they serve")
        return lanes

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Take turns until something is true.

        Raises:
            AssertionError: it did not come in time, or a child cannot boot.
        """
        deadline_s = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, f"{what}: not within {_PATIENCE_S} s"
            take_turn(self.generations, self._bell, _TURN_S)
            assert not [lanes.failure for lanes in self.generations if lanes.failure]

    def retire(self, lanes: Generation) -> None:
        """Drain a generation, and wait until nothing of it is left."""
        lanes.drain()
        self.until(lambda: lanes.ended, "they have ended")
        self.generations.remove(lanes)
        lanes.close()

    def close(self) -> None:
        """End everybody."""
        for lanes in self.generations:
            lanes.kill()
            while not lanes.ended:
                take_turn([lanes], self._bell, _TURN_S)
            lanes.close()
        self._bell.close()


@contextmanager
def turning(server: PrivateRedis, job: str) -> Generator[Turning]:
    """Generations for a block."""
    turned = Turning(server, job)
    try:
        yield turned
    finally:
        turned.close()
