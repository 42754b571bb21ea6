"""The supervisor: starts a lane, watches it, tells Redis how it is, changes it, and drains it when it is asked to stop.

It loads no framework. A signal handler only queues; the loop acts.
"""

import gc
import signal
import sys
import time
from collections import deque
from enum import StrEnum

import structlog

from cluster_serving.client.process.exit_codes import ExitCode
from cluster_serving.node.arrangement import Share
from cluster_serving.node.bell import Bell
from cluster_serving.node.change import Change, Plan, Plans, Report, refuse
from cluster_serving.node.config import Config
from cluster_serving.node.crew import consumer_of
from cluster_serving.node.heartbeat import Heartbeat
from cluster_serving.node.jobs import Job
from cluster_serving.node.lane import Lane
from cluster_serving.node.metrics import Figures
from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.detect import Detected, detect
from cluster_serving.node.processing.topn import parse_filter
from cluster_serving.node.turn import take_turn

log = structlog.get_logger(__name__)

_TURN_S = 0.5
_DRAINING_TURN_S = 0.02
_RESIZE_S = 600.0  # within which workers of another number have to be ready
_STOPPED = "the node was told to stop"


class Phase(StrEnum):
    """Where a node stands."""

    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"  # it has served, and cannot now: no worker, no reader, or no Redis
    DRAINING = "draining"  # it finishes what it has read, and ends


class Supervisor:
    """The node of a job; `report` is told how the start goes, `plans` say what to change to."""

    def __init__(self, config: Config, job: Job, model: Detected, report: Report, plans: Plans) -> None:
        self._job = job
        self._node = job.node_id()
        self._report = report
        self._plans = plans
        self._share = Share()
        self._lane = self._new_lane(config, model, 0)
        self._change: Change | None = None
        self._change_wanted = False
        self._retired: list[Lane] = []
        self._past = Figures()
        """What lanes have counted and measured that are no more."""
        self._heartbeat = Heartbeat(config, self._node)
        self._signals: deque[int] = deque()
        self._bell = Bell()
        self._on_terminal = sys.stdout.isatty()  # asked now: one that has gone says no
        self._phase = Phase.STARTING
        self._exit = ExitCode.OK
        self._deadline_s = float("inf")

    def on_signal(self, number: int, _frame: object = None) -> None:
        """Queue a signal for the loop."""
        self._signals.append(number)
        self._bell.ring()

    def run(self) -> ExitCode:
        """Serve until a signal, or until the start fails."""
        _tell_loading(self._lane, self._report, "")
        self._lane.start()
        while not all(lane.ended for lane in self._lanes()):
            longest_s = _DRAINING_TURN_S if self._retired or self._phase is Phase.DRAINING else _TURN_S
            take_turn(self._lanes(), self._bell, longest_s)
            while self._signals:
                self._act_on(self._signals.popleft())
            self._forget_ended_lanes()
            self._advance()
            self._advance_change()
            self._follow_machine()
            self._publish_heartbeat()
        self._retire()
        return self._exit

    def _lanes(self) -> list[Lane]:
        return [self._lane, *self._retired, *([self._change.lane] if self._change else [])]

    def _act_on(self, number: int) -> None:
        name = signal.Signals(number).name
        if number == signal.SIGHUP and (self._plans.asked() or not self._on_terminal):
            log.info("to be changed", signal=name)
            self._change_wanted = True
        elif self._phase is Phase.DRAINING and number != signal.SIGHUP:
            log.warning("stopping at once", signal=name)
            self._exit = ExitCode.FAILED
            for lane in self._lanes():
                lane.kill()
        elif self._phase is not Phase.DRAINING:
            log.info("draining", signal=name, within_s=self._lane.config.drain_timeout_s)
            self._drain()

    def _drain(self) -> None:
        """Unready, then stop reading; what was read is finished and published."""
        was_starting = self._phase is Phase.STARTING
        self._deadline_s = time.monotonic() + self._lane.config.drain_timeout_s
        self._enter(Phase.DRAINING)
        if self._plans.fetching:
            self._plans.give_up(_STOPPED)
        if self._change is not None:
            log.warning("the change is given up", reason=_STOPPED)
            self._change.plan.report("failed", _STOPPED, ExitCode.FAILED)
            self._give_up(self._change)
        if was_starting:
            self._lane.kill()
        else:
            self._lane.drain()

    def _forget_ended_lanes(self) -> None:
        if any(lane.ended for lane in self._retired):
            self._close_ended_lanes()
            gc.collect()  # a lane and its parts know each other; with them goes the memory of its ring

    def _close_ended_lanes(self) -> None:
        for lane in [lane for lane in self._retired if lane.ended]:
            self._past += lane.figures
            self._retired.remove(lane)
            lane.close()

    def _advance(self) -> None:
        """Move on when what this phase waits for has come."""
        if self._phase is Phase.STARTING and self._lane.failure is not None:
            # A child that cannot boot stops the node: nothing would be better the second time.
            sentence, code = self._lane.failure
            self._exit = ExitCode(code)
            self._report("failed", sentence)
            self._enter(Phase.DRAINING)
            self._lane.kill()
        elif self._phase is Phase.STARTING and self._lane.serving:
            self._enter(Phase.READY)
            self._announce(self._lane, self._report)
        if self._phase is Phase.DRAINING and time.monotonic() > self._deadline_s:
            # What was read and not answered stays pending in Redis, and is taken again by the next start of this node.
            log.warning("the drain timeout is over; unanswered records stay in the stream")
            self._deadline_s = float("inf")
            for lane in self._lanes():
                lane.kill()

    def _advance_change(self) -> None:
        """Begin a change that is wanted, give up one that has failed, take over when it serves."""
        if self._change is None:
            # One at a time, and the lane before it has to be gone: there are two consumers' names.
            wanted = self._change_wanted and self._phase is Phase.READY and not self._retired
            if wanted or self._plans.fetching:
                self._begin_change()
        elif self._change.failure is not None:
            refuse(self._change.plan.report, *self._change.failure)
            self._give_up(self._change)
        elif self._change.lane.serving:
            self._take_over(self._change)

    def _begin_change(self) -> None:
        if not self._plans.fetching:
            self._change_wanted = False
        plan = self._plans.next()
        if plan is not None:
            self._begin(plan)

    def _begin(self, plan: Plan) -> None:
        try:
            lane = self._new_lane(plan.config, plan.model, self._lane.generation + 1)
        except OSError as error:
            refuse(plan.report, str(error), ExitCode.FAILED)
            return
        _tell_loading(lane, plan.report, " beside the old one")
        self._change = Change(plan, lane)

    def _follow_machine(self) -> None:
        """Fit the lane to what the node may use now: its processes move at once; another number of them is a change."""
        changing = self._change or self._change_wanted or self._plans.fetching or self._retired
        if self._phase is not Phase.READY or changing or not self._share.changed():
            return
        lane = self._lane
        arrangement = self._share.arrange(lane.config, lane.model.backend)
        log.info("another share of the machine", budget=arrangement.budget.described(), workers=arrangement.workers)
        if arrangement.choice == lane.arrangement.choice:
            lane.rearrange(arrangement)
        else:
            self._begin(Plan(lane.config, lane.model, _untold, lambda: None, _RESIZE_S, time.monotonic()))

    def _give_up(self, change: Change) -> None:
        self._change = None
        self._retired.append(change.lane)
        change.lane.kill()

    def _take_over(self, change: Change) -> None:
        self._change = None
        self._retired.append(self._lane)
        self._lane.drain()
        self._lane = change.lane
        self._heartbeat.adopt(change.plan.config)
        change.plan.commit()
        self._announce(self._lane, change.plan.report)

    def _announce(self, lane: Lane, report: Report) -> None:
        model, budget = lane.model.definition.name, lane.arrangement.budget.described()
        runtime = lane.runtime.described(lane.model.backend)
        log.info("serving", job=lane.config.job_name, model=model, runtime=runtime, workers=lane.workers, budget=budget)
        report("ready", _described(lane))

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._publish_heartbeat()

    def _publish_heartbeat(self) -> None:
        state = self._phase
        if state is Phase.READY and not self._lane.consuming:
            state = Phase.UNREADY
        if self._heartbeat.is_due(state):
            self._lane.limit_memory()
            # Without Redis too: a node that waits for it is not at fault, and another one in its place would wait as well.
            self._job.show_serving(self._phase is Phase.READY and self._lane.serving)
            self._heartbeat.publish(state, self._lane, self._figures())

    def _figures(self) -> Figures:
        """What all lanes have counted and measured since the start."""
        return sum((lane.figures for lane in self._lanes()), self._past)

    def _retire(self) -> None:
        self._heartbeat.withdraw([consumer_of(self._node, generation) for generation in (0, 1)])
        for lane in self._lanes():
            lane.close()
        self._bell.close()
        log.info("stopped", answered=self._figures().counts["answered"])

    def _new_lane(self, config: Config, model: Detected, generation: int) -> Lane:
        arrangement = self._share.arrange(config, model.backend)
        arrangement.check()
        return Lane(config, model, self._node, generation, arrangement)


def _untold(event: str, text: str, code: int = 0) -> None:
    """Nobody waits for it."""


def _tell_loading(lane: Lane, report: Report, where: str) -> None:
    report("progress", f"loading {lane.model.definition.name} into {_counted(lane.workers, 'worker')}{where}")
    if lane.config.model_encrypted and not lane.config.model_secret:
        report("progress", "waiting for the model's secret and salt in the Redis hash model_secured")


def _described(lane: Lane) -> str:
    takes = ", ".join(spec.describe() for spec in lane.inputs)
    gives = ", ".join(spec.describe() for spec in lane.outputs)
    many = f"{_counted(lane.workers, 'worker')} x {_counted(lane.arrangement.threads, 'thread')}"
    runtime = lane.runtime.described(lane.model.backend)
    batch = lane.ring.geometry.batch
    return f"{lane.model.definition.name} ({runtime}): {takes} -> {gives}; {many}, batch {batch}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def serve(config: Config, job: Job, report: Report, plans: Plans) -> int:
    """Run the node of a job until SIGTERM or SIGINT.

    Args:
        config: a complete one.
        job: its directory on this machine; the caller holds its lock.
        report: told how the start goes.
        plans: say what to change to on SIGHUP.

    Returns:
        The exit code of the process.
    """
    try:
        parse_filter(config.post_processing)
        model = detect(config.model_path, config.model_type, config.beside_model)
    except (ModelError, ValueError) as error:
        report("failed", str(error))
        return ExitCode.MODEL if isinstance(error, ModelError) else ExitCode.CONFIG
    supervisor = Supervisor(config, job, model, report, plans)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, supervisor.on_signal)
    if plans.asked():  # while the model was fetched
        supervisor.on_signal(signal.SIGHUP)
    return supervisor.run()
