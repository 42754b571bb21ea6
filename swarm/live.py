"""Running services and tasks of a stack, as the Swarm's manager reports them.

The classes have only the fields that this package reads. Field names are the names of the Engine's API, 1.41 and later.
"""

from typing import Any

import msgspec

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.swarm import docker

STACK_VARIABLE = "CLUSTER_SERVING_STACK"
DEFAULT_STACK = "serving"
NAMESPACE = "com.docker.stack.namespace"
ENDED = {"complete", "shutdown", "failed", "rejected", "orphaned", "remove"}  # final states of a task


class NoStack(Fault):
    """No stack of this name runs."""

    exit_code = ExitCode.NOT_RUNNING


class _Api(msgspec.Struct, frozen=True, rename="pascal"):
    pass


class Replicated(_Api, frozen=True, rename="pascal"):
    """Number of tasks of a replicated service."""

    replicas: int = 1


class Mode(_Api, frozen=True, rename="pascal"):
    """Mode of a service. Without `replicated`, the service has one task on each machine that it may use."""

    replicated: Replicated | None = None


class ServiceSpec(_Api, frozen=True, rename="pascal"):
    """Specification of a service."""

    name: str
    task_template: dict[str, Any]
    mode: Mode = Mode()


class UpdateStatus(_Api, frozen=True, rename="pascal"):
    """State of a service's last update."""

    state: str = ""
    message: str = ""
    started_at: str = ""
    completed_at: str = ""


class Service(_Api, frozen=True, rename="pascal"):
    """Service of a stack."""

    id: str = msgspec.field(name="ID")
    spec: ServiceSpec
    update_status: UpdateStatus | None = None
    endpoint: dict[str, Any] = {}

    @property
    def container(self) -> dict[str, Any]:
        """Specification of the service's containers."""
        found: dict[str, Any] = self.spec.task_template["ContainerSpec"]
        return found

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables of the service's containers."""
        return dict(pair.split("=", 1) for pair in self.container.get("Env") or () if "=" in pair)


class ContainerStatus(_Api, frozen=True, rename="pascal"):
    """Exit status of a task's container."""

    exit_code: int = 0


class TaskStatus(_Api, frozen=True, rename="pascal"):
    """Current state of a task."""

    state: str = ""
    timestamp: str = ""
    err: str = ""
    message: str = ""
    container_status: ContainerStatus | None = None


class Task(_Api, frozen=True, rename="pascal"):
    """Task of a service. Swarm starts a task once, on one machine."""

    id: str = msgspec.field(name="ID")
    service_id: str = msgspec.field(name="ServiceID")
    created_at: str
    desired_state: str
    status: TaskStatus
    spec: dict[str, Any]
    slot: int = 0
    node_id: str = msgspec.field(name="NodeID", default="")


class _NodeSpec(_Api, frozen=True, rename="pascal"):
    labels: dict[str, str] = {}


class _NodeDocument(_Api, frozen=True, rename="pascal"):
    spec: _NodeSpec


class Machine(msgspec.Struct, frozen=True):
    """Machine of the Swarm. When a machine is down, Swarm may report its tasks as running for a day."""

    name: str
    is_up: bool


class Stack(msgspec.Struct, frozen=True):
    """Services and tasks of a stack, and the machines of the Swarm.

    Attributes:
        name: name of the stack.
        services: services by name, without the stack's prefix.
        tasks: tasks of all services, newest first.
        machines: machines by id.
    """

    name: str
    services: dict[str, Service]
    tasks: list[Task]
    machines: dict[str, Machine] = {}

    def is_running(self, task: Task) -> bool:
        """Return whether a task runs and its machine is up."""
        machine = self.machines.get(task.node_id)
        return task.status.state == "running" and (machine is None or machine.is_up)

    def machine_of(self, task: Task) -> str:
        """Return the name of a task's machine, or a dash before Swarm has chosen a machine."""
        machine = self.machines.get(task.node_id)
        return machine.name if machine else "-"

    def tasks_of(self, service: Service) -> list[Task]:
        """Return the tasks of a service."""
        return [task for task in self.tasks if task.service_id == service.id]

    def service(self, name: str) -> Service:
        """Return a service by name.

        Raises:
            Fault: the stack has no service of the name.
        """
        if name not in self.services:
            raise Fault(f"stack {self.name} has no service {name}; it has {', '.join(self.services)}")
        return self.services[name]


def read_stack(name: str) -> Stack:
    """Return the current state of a stack.

    Raises:
        NoStack: no stack of this name runs.
        DockerMissing: no docker command is on PATH.
        DockerFailed: the engine does not answer, or manages no Swarm.
    """
    service_ids = docker.run(["service", "ls", "--quiet", "--filter", f"label={NAMESPACE}={name}"]).split()
    services = msgspec.json.decode(docker.inspect("service", service_ids), type=list[Service])
    services.sort(key=lambda service: service.spec.name)
    if not services:
        raise NoStack(f"no stack {name} runs on this Swarm; cluster-serving swarm deploy starts one")
    task_ids = docker.run(
        ["service", "ps", "--quiet", "--no-trunc", *(one.id for one in services)], partly=True
    ).split()
    tasks = msgspec.json.decode(docker.inspect("task", task_ids), type=list[Task])
    tasks.sort(key=lambda task: task.created_at, reverse=True)
    return Stack(name, {one.spec.name.removeprefix(f"{name}_"): one for one in services}, tasks, _machines())


def find_stack(name: str) -> Stack | None:
    """Return the current state of a stack, or None when no stack of this name runs.

    Raises:
        DockerMissing: no docker command is on PATH.
        DockerFailed: the engine does not answer, or manages no Swarm.
    """
    try:
        return read_stack(name)
    except NoStack:
        return None


def remains_of(stack: Stack) -> list[str]:
    """Return the remains of a removed stack: networks, and tasks that still run on machines that are up."""
    ids = [task.id for task in stack.tasks if task.status.state not in ENDED]
    tasks = msgspec.json.decode(docker.inspect("task", ids), type=list[Task])
    machines = _machines()
    up = {machine for machine in machines if machines[machine].is_up}
    running = sum(task.status.state not in ENDED and task.node_id in up for task in tasks)
    networks = docker.run(
        ["network", "ls", "--filter", f"label={NAMESPACE}={stack.name}", "--format", "{{.Name}}"]
    ).split()
    return [*([f"{running} tasks"] if running else []), *(f"network {name}" for name in networks)]


def machine_labels() -> list[dict[str, str]]:
    """Return the labels of each machine of the Swarm.

    Raises:
        DockerMissing: no docker command is on PATH.
        DockerFailed: the engine does not answer, or manages no Swarm.
    """
    found = msgspec.json.decode(docker.inspect("node", [*_machines()]), type=list[_NodeDocument])
    return [one.spec.labels for one in found]


def _machines() -> dict[str, Machine]:
    lines = docker.run(["node", "ls", "--format", "{{.ID}} {{.Status}} {{.Hostname}}"]).splitlines()
    rows = [line.split(" ", 2) for line in lines]
    return {identity: Machine(name, status == "Ready") for identity, status, name in rows}
