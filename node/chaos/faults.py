"""Execution of the scheduled faults on nodes and Redis."""

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil
import redis

from cluster_serving.client import keys
from cluster_serving.node.chaos import pace
from cluster_serving.node.chaos.failover import fail_over
from cluster_serving.node.chaos.nodes import Node, wait_for
from cluster_serving.node.chaos.schedule import CHILDREN, Act, Fault, Target
from cluster_serving.node.job.private_redis import PrivateRedis

_CHILD_S = 20.0  # longest time until a dead child is started again
_GATHER_S = 0.3
_PATIENCE_S = 20.0
_FAR_ID = "99999999999999999-0"


class Faults:
    """Executor of faults, one at a time. After each fault, its target runs again or is being started.

    Args:
        nodes: both nodes.
        server: Redis of the nodes.
        job: stream of the nodes.
        reply: reply stream of the observer, which reads on through a failover.
        patience_s: longest time for a node to be ready again. After that time, `NodeEnded` is raised.
    """

    def __init__(self, nodes: Sequence[Node], server: PrivateRedis, job: str, reply: str, patience_s: float) -> None:
        self._nodes = nodes
        self._redis = server
        self._job = job
        self._reply = reply
        self._patience_s = patience_s
        self.done = 0

    def do(self, fault: Fault) -> None:
        """Carry out one fault."""
        node = self._nodes[fault.node]
        whole = fault.target is Target.NODE
        if fault.act is Act.SET_CLOCK:
            node.clock.set_forward(pace.CLOCK_S)
            time.sleep(pace.PAUSE_S)
            node.clock.set_forward(0)
        elif fault.act is Act.FAR_ID:
            # The record has no inputs, and is answered InvalidInput. The ids of all later records are as far.
            with suppress(redis.RedisError), self._redis.settings().client() as client:
                client.xadd(self._job, {keys.URI: "far"}, id=_FAR_ID)
        elif fault.act is Act.FAIL_OVER:
            self._await_nodes()
            with suppress(redis.RedisError), self._redis.settings(_PATIENCE_S).client() as client:
                fail_over(client, self._job, but={self._reply.encode()})
        elif fault.target in CHILDREN:
            node.await_ready(self._patience_s)  # a node whose child dies during the start gives up, as intended
            self._to_child(node, fault.target, fault.act)
        elif fault.target is Target.GROUP:
            # The readers are stopped meanwhile, so that the stream holds unread records when the group is destroyed.
            readers = [reader for each in self._nodes for reader in each.children(Target.READER)]
            _signal(readers, psutil.Process.suspend)
            try:
                time.sleep(_GATHER_S)
                with suppress(redis.RedisError), self._redis.settings().client() as client:
                    client.xgroup_destroy(self._job, keys.GROUP)
            finally:
                _signal(readers, psutil.Process.resume)
        elif fault.target is Target.REDIS:
            self._await_nodes()  # a node that starts while Redis is away would give up
            self._to_redis(fault)
        elif fault.act is Act.PAUSE:
            victims = node.everybody()
            _pause(victims if whole else victims[:1], pace.PAUSE_S)
        else:
            self._await_nodes()  # at most one node is away at a time
            if fault.act is Act.RESTART:
                node.end(signal.SIGTERM)
            else:
                for process in node.everybody()[1:] if whole else ():
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                node.end(signal.SIGKILL)
            if whole:
                time.sleep(pace.PAUSE_S)  # the other node takes over
            node.start()
        self.done += 1

    def _to_child(self, node: Node, kind: str, act: Act) -> None:
        wait_for(lambda: bool(node.children(kind)), _CHILD_S)
        for child in node.children(kind)[:1]:
            if act is Act.PAUSE:
                _pause([child], pace.PAUSE_S)
            else:
                with suppress(psutil.NoSuchProcess):
                    child.send_signal(signal.SIGKILL if act is Act.KILL else signal.SIGTERM)

    def _to_redis(self, fault: Fault) -> None:
        def meanwhile() -> None:
            if fault.meanwhile is not None:
                self._to_child(self._nodes[fault.node], fault.meanwhile, Act.KILL)

        if fault.act is Act.PAUSE:
            self._redis.suspend()
            try:
                time.sleep(pace.PAUSE_S / 2)
                meanwhile()
                time.sleep(pace.PAUSE_S / 2)
            finally:
                self._redis.resume()
            return
        self._redis.end(signal.SIGKILL if fault.act is Act.KILL else signal.SIGTERM)
        meanwhile()
        time.sleep(pace.AWAY_S)
        self._redis.start()

    def _await_nodes(self) -> None:
        for node in self._nodes:
            node.await_ready(self._patience_s)


def _pause(victims: Sequence[psutil.Process], seconds: float) -> None:
    _signal(victims, psutil.Process.suspend)
    try:
        time.sleep(seconds)
    finally:
        _signal(victims, psutil.Process.resume)


def _signal(victims: Sequence[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            act(victim)
