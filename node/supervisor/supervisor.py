"""Supervisor of a node: starts, watches, changes and drains the lanes, and publishes their state to Redis.

The supervisor loads no framework. A signal handler only queues the signal. The loop acts on the signal.
"""

import gc
import signal
import sys
import time
from collections import deque
from enum import StrEnum

import structlog

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.config.arrangement import best_arrangement
from cluster_serving.node.config.loading import Config
from cluster_serving.node.config.tuned import Store
from cluster_serving.node.job.directory import Job
from cluster_serving.node.job.redis_watch import RedisWatch
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.ring.metrics import Figures
from cluster_serving.node.supervisor.announcing import tell_loading, tell_serving, tell_tuned
from cluster_serving.node.supervisor.change import STOPPED, Change, ChangeSource, Report, refuse
from cluster_serving.node.supervisor.generation import Generation, take_turn
from cluster_serving.node.supervisor.heartbeat import HeartbeatPublisher
from cluster_serving.node.topology.share import Share

log = structlog.get_logger(__name__)

_TURN_S = 0.5
_DRAINING_TURN_S = 0.02
_RESIZE_S = 600.0  # within which a changed number of workers has to be ready


class Phase(StrEnum):
    """Phase in the life of a node: STARTING ──► READY ──► DRAINING. A start that fails goes to DRAINING at once."""

    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"  # in the heartbeat alone: READY, and cannot serve now without a worker, a reader, or Redis
    DRAINING = "draining"  # finishes the records that were read, and ends


class Supervisor:
    """Supervisor of the node of a job. `report` receives the progress of the start, `changes` supplies changes."""

    def __init__(
        self,
        config: Config,
        job: Job,
        model: Detected,
        report: Report,
        changes: ChangeSource,
        redis: RedisWatch | None = None,
    ) -> None:
        self._job = job
        self._node = job.node_id()
        self._report = report
        self._changes = changes
        self._redis = redis
        self._share = Share()
        self._tuned = Store(job.directory)
        self._consumers: set[str] = set()
        """Consumer names under which lanes have read, or may have read in an earlier run."""
        self._lanes = self._new_lanes(config, model, 0)
        self._change_requested = False
        self._change: Change | None = None
        self._taken_over: Change | None = None
        """Change whose lanes serve, while readers of the old lanes may still take records."""
        self._retired: list[Generation] = []
        self._past = Figures()
        """Counts and measurements of lanes that have ended."""
        self._heartbeat = HeartbeatPublisher(config, self._node)
        self._signals: deque[int] = deque()
        self._bell = Bell()
        self._on_terminal = sys.stdout.isatty()  # asked now, because a closed terminal says no
        self._phase = Phase.STARTING
        self._exit = ExitCode.OK
        self._deadline_s = float("inf")

    def on_signal(self, number: int, _frame: object = None) -> None:
        """Queue a signal for the loop."""
        self._signals.append(number)
        self._bell.ring()

    def run(self) -> ExitCode:
        """Serve until a signal, or until the start fails."""
        tell_tuned(self._lanes, self._report)
        tell_loading(self._lanes, self._report)
        self._heartbeat.inherit(self._lanes.consumers(0))
        self._heartbeat.tell_releases()
        self._lanes.start()
        while not all(lanes.ended for lanes in self._generations()):
            longest_s = _DRAINING_TURN_S if self._retired or self._phase is Phase.DRAINING else _TURN_S
            take_turn(self._generations(), self._bell, longest_s)
            while self._signals:
                self._act_on(self._signals.popleft())
            if any(lanes.ended for lanes in self._retired):
                self._close_ended_lanes()
                gc.collect()  # lanes and their parts form cycles, so the memory of the rings is free only now
            self._advance()
            self._advance_change()
            self._follow_machine()
            self._publish_heartbeat()
            self._finish_change()
        self._heartbeat.withdraw(sorted(self._consumers))
        for lanes in self._generations():
            lanes.close()
        self._bell.close()
        log.info("stopped", answered=self._figures().counts["answered"])
        return self._exit

    def _generations(self) -> list[Generation]:
        return [self._lanes, *self._retired, *([self._change.lanes] if self._change else [])]

    def _act_on(self, number: int) -> None:
        name = signal.Signals(number).name
        # A SIGHUP without a request tells a node on a terminal that the terminal was closed.
        if number == signal.SIGHUP and (self._changes.requested() or not self._on_terminal):
            log.info("to be changed", signal=name)
            self._change_requested = True
        elif self._phase is not Phase.DRAINING:
            log.info("draining", signal=name, within_s=self._lanes.served_model.config.drain_timeout_s)
            self._drain()
        elif number != signal.SIGHUP:
            log.warning("stopping at once", signal=name)
            self._exit = ExitCode.FAILED
            for lanes in self._generations():
                lanes.kill()

    def _drain(self) -> None:
        """Become unready, then stop reading. Records that were read are finished and published, within the drain timeout."""
        was_starting = self._phase is Phase.STARTING
        if self._redis is not None:
            self._redis.stop()
        self._deadline_s = time.monotonic() + self._lanes.served_model.config.drain_timeout_s
        self._enter(Phase.DRAINING)
        self._changes.give_up()
        if self._change is not None:
            log.warning("the change is given up", reason=STOPPED)
            self._change.report("failed", STOPPED, ExitCode.FAILED)
            self._give_up(self._change)
        if was_starting:
            self._lanes.give_up()
        else:
            self._lanes.drain()

    def _close_ended_lanes(self) -> None:
        """Close and forget retired lanes that have ended, in a function of its own: a variable of `run` would keep the lanes."""
        for lanes in [lanes for lanes in self._retired if lanes.ended]:
            self._past += lanes.figures
            self._retired.remove(lanes)
            lanes.close()

    def _advance(self) -> None:
        """Enter the next phase when the present phase is over."""
        if self._phase is Phase.STARTING and self._lanes.failure is not None:
            # A child that cannot boot stops the node, because a second attempt would fail too.
            sentence, code = self._lanes.failure
            self._exit = ExitCode(code)
            self._report("failed", sentence)
            self._drain()
        elif self._phase is Phase.STARTING and self._lanes.serving:
            self._enter(Phase.READY)
            tell_serving(self._lanes, self._report)
        if self._phase is Phase.DRAINING and time.monotonic() > self._deadline_s:
            # Unanswered records stay pending in Redis, and the next start of this node takes them again.
            log.warning("the drain timeout is over; unanswered records stay in the stream")
            self._deadline_s = float("inf")
            for lanes in self._generations():
                lanes.kill()

    def _advance_change(self) -> None:
        """Begin a requested change, give up a failed change, or take over when the new lanes serve."""
        change = self._change
        if change is None:
            # One change at a time, and only after all retired lanes have ended, because each lane has two consumer names.
            fetching = self._changes.fetching
            begins = not fetching and self._change_requested and self._phase is Phase.READY and not self._retired
            if begins:
                self._change_requested = False
            if begins or fetching:
                change = self._changes.next()
                if change is not None:
                    self._load(change)
        elif change.failure is not None:
            refuse(change.report, *change.failure)
            self._give_up(change)
        elif change.lanes.serving:
            self._change = None
            self._retired.append(self._lanes)
            self._lanes.drain()
            self._lanes = change.lanes
            self._heartbeat.adopt(change.config)
            change.commit()
            self._taken_over = change

    def _finish_change(self) -> None:
        """Report a change as soon as no record that comes from now on can meet the old model."""
        change = self._taken_over
        if change is not None and not any(lanes.reading for lanes in self._retired):
            self._taken_over = None
            tell_serving(change.lanes, change.report)

    def _load(self, change: Change) -> None:
        """Load the model of a change into new lanes, beside the old lanes."""
        try:
            change.lanes = self._new_lanes(change.config, change.model, self._lanes.number + 1)
        except OSError as error:
            refuse(change.report, str(error), ExitCode.FAILED)
            return
        if change.model == self._lanes.served_model.model:
            change.lanes.expect_outputs(self._lanes.row_output_bytes)
        tell_loading(change.lanes, change.report, " beside the old one")
        change.lanes.start()
        self._change = change

    def _follow_machine(self) -> None:
        """Fit the lanes to the present share of the machine.

        Processes move, and workers start and end, at once. Everything else is a change with new lanes.
        """
        changing = self._change or self._change_requested or self._changes.fetching or self._retired
        if self._phase is not Phase.READY or changing or not self._share.changed():
            return
        lanes, served = self._lanes, self._lanes.served_model
        running = lanes.arrangement.choice
        arrangement = best_arrangement(
            served.config, served.model, self._share.budget, self._tuned, running, served.model_hash
        )
        log.info("the machine share changed", budget=arrangement.budget.described(), workers=arrangement.workers)
        if lanes.can_become(arrangement):
            lanes.rearrange(arrangement)
        else:
            self._load(Change(served.config, served.model, _no_report, lambda: None, _RESIZE_S))

    def _give_up(self, change: Change) -> None:
        self._change = None
        self._retired.append(change.lanes)
        change.lanes.give_up()

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._publish_heartbeat()

    def _publish_heartbeat(self) -> None:
        state = self._phase
        if state is Phase.READY and not self._lanes.consuming:
            state = Phase.UNREADY
        if self._heartbeat.is_due(state, self._lanes):
            self._lanes.limit_memory()
            # Show serving without Redis too: the node is not at fault, and a new node in its place would wait for Redis too.
            self._job.show_serving(self._phase is Phase.READY and self._lanes.answering)
            self._heartbeat.publish(state, self._lanes, self._figures())

    def _figures(self) -> Figures:
        """Return the counts and measurements of all lanes since the start."""
        return sum((lanes.figures for lanes in self._generations()), self._past)

    def _new_lanes(self, config: Config, model: Detected, generation: int) -> Generation:
        arrangement = best_arrangement(config, model, self._share.budget, self._tuned)
        lanes = Generation(
            config, model, self._node, generation, arrangement, str(self._job.proof_directory(config.model_cache))
        )
        self._consumers.update(*(lanes.consumers(number) for number in (0, 1)))
        return lanes


def _no_report(event: str, text: str, code: int = 0) -> None:
    """Ignore a report, because no command waits for the change."""
