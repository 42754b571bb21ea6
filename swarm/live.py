"""What runs: the services and tasks of a stack, as the Swarm's manager tells them.

Only the fields that something of ours reads are here; their names are those of the Engine's API, 1.41 and later.
"""

from typing import Any

import msgspec

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.swarm import docker

NAMESPACE = "com.docker.stack.namespace"
ENDED = {"complete", "shutdown", "failed", "rejected", "orphaned", "remove"}  # states that a task does not leave


class NoStack(Fault):
    """No stack of this name runs."""

    exit_code = ExitCode.NOT_RUNNING


class _Api(msgspec.Struct, frozen=True, rename="pascal"):
    pass


class Replicated(_Api, frozen=True, rename="pascal"):
    """A service of so many tasks."""

    replicas: int = 1


class Mode(_Api, frozen=True, rename="pascal"):
    """How many tasks a service has; without `replicated`: one on each machine that may have one."""

    replicated: Replicated | None = None


class ServiceSpec(_Api, frozen=True, rename="pascal"):
    """What a service is to be."""

    name: str
    task_template: dict[str, Any]
    mode: Mode = Mode()


class UpdateStatus(_Api, frozen=True, rename="pascal"):
    """How the last update of a service goes."""

    state: str = ""
    message: str = ""
    started_at: str = ""
    completed_at: str = ""


class Service(_Api, frozen=True, rename="pascal"):
    """One service."""

    id: str = msgspec.field(name="ID")
    spec: ServiceSpec
    update_status: UpdateStatus | None = None
    endpoint: dict[str, Any] = {}

    @property
    def container(self) -> dict[str, Any]:
        """What its containers are to be."""
        found: dict[str, Any] = self.spec.task_template["ContainerSpec"]
        return found

    @property
    def environ(self) -> dict[str, str]:
        """The variables of its containers."""
        return dict(pair.split("=", 1) for pair in self.container.get("Env") or () if "=" in pair)


class ContainerStatus(_Api, frozen=True, rename="pascal"):
    """How a task's container ended."""

    exit_code: int = 0


class TaskStatus(_Api, frozen=True, rename="pascal"):
    """What became of a task until now."""

    state: str = ""
    timestamp: str = ""
    err: str = ""
    message: str = ""
    container_status: ContainerStatus | None = None


class Task(_Api, frozen=True, rename="pascal"):
    """One task: what Swarm starts, once, on one machine."""

    id: str = msgspec.field(name="ID")
    service_id: str = msgspec.field(name="ServiceID")
    created_at: str
    desired_state: str
    status: TaskStatus
    spec: dict[str, Any]
    slot: int = 0
    node_id: str = msgspec.field(name="NodeID", default="")


class Machine(msgspec.Struct, frozen=True):
    """One machine of the Swarm; what ran on one that is down may still be called running for a day."""

    name: str
    is_up: bool


class Stack(msgspec.Struct, frozen=True):
    """The services of a stack, by name without that of the stack; its tasks, the newest first; the machines, by id."""

    name: str
    services: dict[str, Service]
    tasks: list[Task]
    machines: dict[str, Machine] = {}

    def is_running(self, task: Task) -> bool:
        """Whether a task runs, and its machine too."""
        machine = self.machines.get(task.node_id)
        return task.status.state == "running" and (machine is None or machine.is_up)

    def machine_of(self, task: Task) -> str:
        """The name of the machine that a task was given to; a dash where there is none yet."""
        machine = self.machines.get(task.node_id)
        return machine.name if machine else "-"

    def tasks_of(self, service: Service) -> list[Task]:
        """The tasks of one of them."""
        return [task for task in self.tasks if task.service_id == service.id]

    def service(self, name: str) -> Service:
        """One of them.

        Raises:
            Fault: there is none of this name.
        """
        if name not in self.services:
            raise Fault(f"stack {self.name} has no service {name}; it has {', '.join(self.services)}")
        return self.services[name]


def read_stack(name: str) -> Stack:
    """A stack as it is now.

    Raises:
        NoStack: there is none of this name.
        DockerMissing: there is no docker command.
        DockerFailed: the engine does not answer, or manages no Swarm.
    """
    services = _services(name)
    if not services:
        raise NoStack(f"no stack {name} runs on this Swarm; cluster-serving swarm deploy starts one")
    ids = docker.run(["service", "ps", "--quiet", "--no-trunc", *(one.id for one in services)], partly=True).split()
    tasks = msgspec.json.decode(docker.inspect("task", ids), type=list[Task])
    tasks.sort(key=lambda task: task.created_at, reverse=True)
    return Stack(name, {one.spec.name.removeprefix(f"{name}_"): one for one in services}, tasks, _machines())


def find_stack(name: str) -> Stack | None:
    """A stack as it is now, if there is one; raises as `read_stack` does."""
    try:
        return read_stack(name)
    except NoStack:
        return None


def remains_of(stack: Stack) -> list[str]:
    """What is left of a stack that was removed: tasks that still run on machines that are up, and networks."""
    ids = [task.id for task in stack.tasks if task.status.state not in ENDED]
    tasks = msgspec.json.decode(docker.inspect("task", ids), type=list[Task])
    machines = _machines()
    up = {machine for machine in machines if machines[machine].is_up}
    running = sum(task.status.state not in ENDED and task.node_id in up for task in tasks)
    networks = docker.run(
        ["network", "ls", "--filter", f"label={NAMESPACE}={stack.name}", "--format", "{{.Name}}"]
    ).split()
    return [*([f"{running} tasks"] if running else []), *(f"network {name}" for name in networks)]


def _machines() -> dict[str, Machine]:
    lines = docker.run(["node", "ls", "--format", "{{.ID}} {{.Status}} {{.Hostname}}"]).splitlines()
    rows = [line.split(" ", 2) for line in lines]
    return {identity: Machine(name, status == "Ready") for identity, status, name in rows}


def _services(stack: str) -> list[Service]:
    ids = docker.run(["service", "ls", "--quiet", "--filter", f"label={NAMESPACE}={stack}"]).split()
    services = msgspec.json.decode(docker.inspect("service", ids), type=list[Service])
    return sorted(services, key=lambda service: service.spec.name)
