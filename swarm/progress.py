"""How far a stack is from what it was asked to be; pure.

A task of Swarm is started once: new -> pending -> assigned -> preparing -> starting -> running, and then failed, rejected, complete
or shutdown; another takes its place. One with a health check is `running` when it is healthy, and `starting` until then.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from cluster_serving.swarm.live import Service, Stack, Task

ENOUGH_FAILURES = 3  # of one service, with nothing getting better meanwhile

_ALIVE = {"ready", "running"}  # desired states
_FAILED = {"failed", "rejected"}
_COMING = {"ready": "waiting"}  # Swarm's word for a task that is held back until the one before it has ended
_UPDATING = {"updating", "rollback_started"}
# What is not said has these values in a service, as docker tells it, and is not there in its tasks.
_CONTAINER_DEFAULTS = {"StopGracePeriod": 10_000_000_000}
_RESTART_DEFAULTS = {"Condition": "any", "Delay": 5_000_000_000}


@dataclass(frozen=True)
class Progress:
    """One service: how many tasks it is to have, and what those are doing."""

    service: str
    wanted: int
    ready: int  # running, healthy, and of the newest specification
    old: int  # alive, and to be replaced
    leaving: int  # still running, told to stop
    coming: dict[str, int]  # state to tasks that are not running yet
    waiting_for: str  # why Swarm cannot place a task; empty: it can
    update: str  # state of the last update, as Swarm says it; empty: none

    @property
    def is_settled(self) -> bool:
        """Whether it is as it was asked to be."""
        return self.ready == self.wanted and not self.old and not self.coming and self.update not in _UPDATING

    def sentence(self) -> str:
        """What it is doing, for people."""
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
    """Where a service stands."""
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
    """Whether a task is what its service's specification says now."""
    return bool(_compared(task.spec) == _compared(service.spec.task_template))


def _compared(template: dict[str, Any]) -> Any:
    # Swarm itself does not start tasks anew for a placement that they fulfil; a task does not repeat its runtime.
    kept = {key: value for key, value in template.items() if key not in {"Placement", "Runtime"}}
    kept["ContainerSpec"] = _CONTAINER_DEFAULTS | template["ContainerSpec"]
    kept["RestartPolicy"] = _RESTART_DEFAULTS | (template.get("RestartPolicy") or {})
    return _without_empty(kept)


def _without_empty(value: Any) -> Any:
    """What the engine leaves out in one place, and writes as null, false, 0 or {} in another, is the same."""
    if isinstance(value, dict):
        kept = {key: _without_empty(inner) for key, inner in value.items()}
        return {key: inner for key, inner in kept.items() if inner}
    return [_without_empty(inner) for inner in value] if isinstance(value, list) else value


@dataclass
class StackFollower:
    """Follows a stack from a command until it is as that command wanted it, or never will be.

    Attributes:
        before: the stack before the command; None: there was none. What failed in it is old news.
        drained: whether tasks that leave have to be gone too.
        failures: by service, the newest last.
        stack: as it was looked at last; None: it never was.
        now: its services.
        rolled_back: the services that Swarm has put back to what they were, or is putting back.
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
        """Take in how it is now."""
        self.stack = stack
        self.now = [progress_of(name, service, stack) for name, service in stack.services.items()]
        self.rolled_back = [name for name, service in stack.services.items() if self._goes_back(name, service)]
        for name, service in stack.services.items():
            for task in reversed(stack.tasks_of(service)):
                if task.status.state in _FAILED and task.id not in self._counted:
                    self._counted.add(task.id)
                    self.failures.setdefault(name, []).append(task)
                    self._since_better[name] += 1
        ready = sum(progress.ready for progress in self.now)
        if ready > self._most_ready:  # what failed until now may have waited for this
            self._most_ready = ready
            self._since_better.clear()

    @property
    def is_done(self) -> bool:
        """Whether all is as it was wanted."""
        settled = all(one.is_settled and not (self.drained and one.leaving) for one in self.now)
        return bool(self.now) and settled and not self.rolled_back

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for any more: rolled back, stopped half-way, or failing again and again."""
        going_back = [one for one in self.now if one.service in self.rolled_back]
        if going_back:
            return all(one.update not in _UPDATING for one in going_back)
        unsettled = [one for one in self.now if not one.is_settled]
        # An update that fails is ended by Swarm, in its own time.
        return any(one.update in {"paused", "rollback_paused"} for one in unsettled) or (
            bool(unsettled)
            and all(
                self._since_better[one.service] >= ENOUGH_FAILURES and one.update not in _UPDATING for one in unsettled
            )
        )

    def _goes_back(self, name: str, service: Service) -> bool:
        """Whether a roll-back is news: what Swarm says of the last one stays for ever."""
        old = self.before.services.get(name) if self.before else None
        said = service.update_status
        return said is not None and said.state.startswith("rollback") and (old is None or old.update_status != said)
