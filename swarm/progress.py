"""Progress of a stack towards its wanted state. Pure.

Swarm starts a task once: new -> pending -> assigned -> preparing -> starting -> running, and then failed, rejected, complete or
shutdown. A new task takes the place of an ended task. A task with a health check is `starting` until it is healthy, and `running`
from then on.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from cluster_serving.swarm.live import Service, Stack, Task

ENOUGH_FAILURES = 3  # of one service, while the number of ready tasks does not rise

_ALIVE = {"ready", "running"}  # desired states
_FAILED = {"failed", "rejected"}
_COMING = {"ready": "waiting"}  # Swarm calls a task `ready` while it is held back until the task before it has ended
_UPDATING = {"updating", "rollback_started"}
# Defaults that Docker fills in for a service, and leaves out for its tasks.
_CONTAINER_DEFAULTS = {"StopGracePeriod": 10_000_000_000}
_RESTART_DEFAULTS = {"Condition": "any", "Delay": 5_000_000_000}


@dataclass(frozen=True)
class Progress:
    """Progress of a service: the number of wanted tasks, and the states of the existing tasks."""

    service: str
    wanted: int
    ready: int  # running, healthy, and of the newest specification
    old: int  # alive, and to be replaced
    leaving: int  # still running, told to stop
    coming: dict[str, int]  # state to number of tasks, for tasks that do not run yet
    waiting_for: str  # Swarm's reason for not placing a task, or empty
    update: str  # Swarm's state of the last update, or empty

    @property
    def is_settled(self) -> bool:
        """True if the service is in its wanted state."""
        return self.ready == self.wanted and not self.old and not self.coming and self.update not in _UPDATING

    def sentence(self) -> str:
        """Return the state of the service as a phrase for people."""
        parts = [f"{count} {state}" for state, count in self.coming.items()]
        parts += [f"{self.old} to be replaced"] if self.old else []
        parts += [f"{self.leaving} leaving"] if self.leaving else []
        if self.update.startswith("rollback") and not self.is_settled:
            parts.insert(0, "rolling back")
        if self.waiting_for:
            parts.append(self.waiting_for)
        if parts:
            return ", ".join(parts)
        if self.is_settled:
            return "ready" if self.wanted else "none wanted"
        return "watched for a moment" if self.ready == self.wanted else "waiting to start again"


def progress_of(name: str, service: Service, stack: Stack) -> Progress:
    """Return the progress of a service."""
    tasks = stack.tasks_of(service)
    alive = [task for task in tasks if task.desired_state in _ALIVE and task.status.state not in _FAILED]
    current = [task for task in alive if is_current(task, service)]
    ready = sum(stack.is_running(task) and task.desired_state == "running" for task in current)
    replicated = service.spec.mode.replicated
    pending = [task.status.err or task.status.message for task in current if task.status.state == "pending"]
    return Progress(
        service=name,
        wanted=replicated.replicas if replicated else len({task.node_id for task in alive}),
        ready=ready,
        old=len(alive) - len(current),
        leaving=sum(stack.is_running(task) for task in tasks if task.desired_state not in _ALIVE),
        coming=dict(
            Counter(_COMING.get(state, state) for task in current if (state := task.status.state) != "running")
        ),
        waiting_for=next((why for why in pending if "no suitable node" in why), ""),
        update=service.update_status.state if service.update_status else "",
    )


def is_current(task: Task, service: Service) -> bool:
    """Return whether a task has the current specification of its service."""
    return bool(_compared(task.spec) == _compared(service.spec.task_template))


def _compared(template: dict[str, Any]) -> Any:
    # Swarm keeps tasks that already fulfil a changed placement. The specification of a task has no Runtime.
    kept = {key: value for key, value in template.items() if key not in {"Placement", "Runtime"}}
    kept["ContainerSpec"] = _CONTAINER_DEFAULTS | template["ContainerSpec"]
    kept["RestartPolicy"] = _RESTART_DEFAULTS | (template.get("RestartPolicy") or {})
    return _without_empty(kept)


def _without_empty(value: Any) -> Any:
    """Remove empty values. The engine leaves a value out in one place, and writes null, false, 0 or {} in another."""
    if isinstance(value, dict):
        kept = {key: _without_empty(inner) for key, inner in value.items()}
        return {key: inner for key, inner in kept.items() if inner}
    return [_without_empty(inner) for inner in value] if isinstance(value, list) else value


@dataclass
class StackFollower:
    """Observed state of a stack after a command, until the stack is as wanted or can no longer become so.

    Attributes:
        before: the stack before the command. Its failures do not count. None: there was no stack.
        drained: leaving tasks have to be gone too.
        failures: failed tasks by service, newest last.
        stack: the stack at the last look. None: before the first look.
        now: progress of the stack's services.
        rolled_back: names of the services that Swarm has rolled back, or is rolling back.
    """

    before: Stack | None
    drained: bool = False
    failures: dict[str, list[Task]] = field(default_factory=dict[str, list[Task]])
    stack: Stack | None = None
    now: list[Progress] = field(default_factory=list[Progress])
    rolled_back: list[str] = field(default_factory=list[str])
    _most_ready: int = 0
    _since_better: Counter[str] = field(default_factory=Counter[str])
    _counted: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self._counted |= {task.id for task in self.before.tasks} if self.before else set()

    def look(self, stack: Stack) -> None:
        """Update the state from a stack that was just read."""
        self.stack = stack
        self.now = [progress_of(name, service, stack) for name, service in stack.services.items()]
        self.rolled_back = []
        for name, service in stack.services.items():
            # Swarm reports the last roll-back for ever, so a roll-back counts only when it is new.
            old = self.before.services.get(name) if self.before else None
            said = service.update_status
            if said is not None and said.state.startswith("rollback") and (old is None or old.update_status != said):
                self.rolled_back.append(name)
            for task in reversed(stack.tasks_of(service)):
                if task.status.state in _FAILED and task.id not in self._counted:
                    self._counted.add(task.id)
                    self.failures.setdefault(name, []).append(task)
                    self._since_better[name] += 1
        ready = sum(progress.ready for progress in self.now)
        if ready > self._most_ready:  # earlier failures may have waited for the task that is ready now
            self._most_ready = ready
            self._since_better.clear()

    @property
    def is_done(self) -> bool:
        """True if every service is in its wanted state, and none is rolled back."""
        settled = all(one.is_settled and not (self.drained and one.leaving) for one in self.now)
        return bool(self.now) and settled and not self.rolled_back

    @property
    def is_over(self) -> bool:
        """True if waiting is useless: the stack is rolled back, stopped half-way, or fails again and again."""
        going_back = [one for one in self.now if one.service in self.rolled_back]
        if going_back:
            return all(one.update not in _UPDATING for one in going_back)
        unsettled = [one for one in self.now if not one.is_settled]
        # Services under update are waited for, because Swarm itself ends a failing update.
        return any(one.update in {"paused", "rollback_paused"} for one in unsettled) or (
            bool(unsettled)
            and all(
                self._since_better[one.service] >= ENOUGH_FAILURES and one.update not in _UPDATING for one in unsettled
            )
        )
