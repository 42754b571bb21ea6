"""State of a stack's nodes, read from the metrics of a frontend that can be reached from here."""

import re
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException

import msgspec

from cluster_serving.swarm import docker
from cluster_serving.swarm.live import Stack
from cluster_serving.swarm.variables import FRONTEND_PORT

_ANSWER_S = 2.0
_PREFIX = "cluster_serving_"
_SAMPLE = re.compile(rf"^{_PREFIX}(\w+)\{{(.*)\}} (\S+)$", re.MULTILINE)  # text format of Prometheus
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_OF_NODE = (
    "node_ready",
    "workers_alive",
    "workers",
    "records_answered_total",
    "records_failed_total",
    "restarts_total",
)
_OF_JOB = ("backlog", "oldest_age_seconds", "dead_letters")


@dataclass
class Known:
    """Metrics from one frontend.

    Attributes:
        nodes: (job, node) to its metrics by name.
        jobs: job to its metrics by name.
        problem: reason why there are no metrics, or empty.
    """

    nodes: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict[tuple[str, str], dict[str, float]])
    jobs: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    problem: str = ""


class _Status(msgspec.Struct, rename="pascal"):
    addr: str = ""


class _Host(msgspec.Struct, rename="pascal"):
    status: _Status


def ask(stack: Stack) -> Known:
    """Return the metrics of the first frontend that answers."""
    why = "no frontend publishes a port"
    service = stack.services.get("frontend")
    if service is None:
        return Known(problem=why)
    ports = (service.endpoint.get("Spec") or {}).get("Ports") or []
    port = next((one["PublishedPort"] for one in ports if one.get("TargetPort") == FRONTEND_PORT), None)
    tasks = [task for task in stack.tasks_of(service) if task.status.state == "running" and task.node_id]
    if port is None or not tasks:
        return Known(problem=why)
    nodes = msgspec.json.decode(docker.inspect("node", sorted({task.node_id for task in tasks})), type=list[_Host])
    for node in nodes:
        # A machine that runs a frontend answers for published ports of either mode.
        known = metrics_from(node.status.addr, port)
        if not known.problem:
            return known
        why = known.problem
    return Known(problem=why)


def metrics_from(host: str, port: int) -> Known:
    """Return the metrics of the frontend at an address, or the reason why there are none."""
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    request = urllib.request.Request(f"{url}/metrics", headers={"Accept": "text/plain"})  # noqa: S310  # always http
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
            return parse(answer.read().decode())
    except urllib.error.HTTPError as error:
        return Known(problem=f"{url} wants an API key" if error.code == 401 else f"{url} answers {error.code}")
    except OSError as error:
        return Known(problem=f"{url} cannot be reached from here: {getattr(error, 'reason', error)}")
    except (HTTPException, ValueError) as error:
        return Known(problem=f"{url} does not answer as a frontend: {error}")


def parse(text: str) -> Known:
    """Parse a frontend's metrics, given in Prometheus' text format."""
    known = Known()
    for name, labels, value in _SAMPLE.findall(text):
        found = dict(_LABEL.findall(labels))
        if name in _OF_NODE and "node" in found:
            known.nodes.setdefault((found["job_name"], found["node"]), {})[name] = float(value)
        elif name in _OF_JOB and "job_name" in found:
            known.jobs.setdefault(found["job_name"], {})[name] = float(value)
    return known
