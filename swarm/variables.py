"""Variables of stack.yml: their options, and their values in a running stack.

A variable that is not given keeps its value, because a new deploy must not undo `scale` and `update-model`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from cluster_serving import __version__
from cluster_serving.client.servers.config.sources import ENVIRON_PREFIX
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.swarm.live import Service, Stack

MODELS_MOUNT = "/models"
MODEL_PATH = f"{ENVIRON_PREFIX}MODEL_PATH"
MODEL_CHECKSUM = f"{ENVIRON_PREFIX}MODEL_CHECKSUM"
MODELS = f"{ENVIRON_PREFIX}MODELS"
NODES = f"{ENVIRON_PREFIX}NODES"
DOCKER_SOCKET = "/var/run/docker.sock"
FRONTEND_PORT = 10020  # in the container, like the next two ports
_SECURE_PORT = 10023
_GRAFANA_PORT = 3000
_MODELS_VOLUME = "models"  # volume of stack.yml, mounted in place of a directory of the machines
_IN_IMAGE, _IN_VOLUME = "image:", "volume:"


@dataclass(frozen=True)
class Variable:
    """Variable of a stack file.

    Attributes:
        name: name in the stack file.
        option: option of `deploy`, or empty.
        help: help text of the option.
        service: name of the service whose specification holds the current value.
        read: function that reads the current value from the service. None or empty: the service has no value.
        default: default value. Empty: the default in the stack file.
    """

    name: str
    option: str
    help: str
    service: str
    read: Callable[[Service], object]
    default: str = ""


def _replicas(service: Service) -> object:
    replicated = service.spec.mode.replicated
    return None if replicated is None else replicated.replicas


def _image(service: Service) -> object:
    return str(service.container["Image"]).partition("@")[0]


def _limit(name: str, unit: float) -> Callable[[Service], object]:
    def read(service: Service) -> object:
        limit = ((service.spec.task_template.get("Resources") or {}).get("Limits") or {}).get(name)
        return limit and f"{limit / unit:g}" if unit != 1 else limit

    return read


def _environ(name: str) -> Callable[[Service], object]:
    return lambda service: service.environ.get(name)


def _port(target: int) -> Callable[[Service], object]:
    def read(service: Service) -> object:
        ports: list[dict[str, Any]] = (service.endpoint.get("Spec") or {}).get("Ports") or []
        return next((port.get("PublishedPort") for port in ports if port.get("TargetPort") == target), None)

    return read


def _place(service: Service) -> object:
    constraints: list[str] = (service.spec.task_template.get("Placement") or {}).get("Constraints") or []
    return next(iter(constraints), None)


def _line(pattern: str) -> Callable[[Service], object]:
    def read(service: Service) -> object:
        found = re.search(pattern, "\n".join(service.container.get("Args") or ()), re.MULTILINE)
        return found and found[1]

    return read


def _models(service: Service) -> object:
    mount = models_mount(service)
    return None if mount is None else mount["Source"] if mount["Type"] == "bind" else _MODELS_VOLUME


def _socket(service: Service) -> object:
    mounts: list[dict[str, Any]] = service.container.get("Mounts") or []
    return next((mount["Source"] for mount in mounts if mount["Target"] == DOCKER_SOCKET), None)


VARIABLES = (
    Variable(NODES, "--nodes", "Number of nodes; 2.", "node", _replicas),
    Variable("CLUSTER_SERVING_FRONTENDS", "--frontends", "Number of frontends; 2.", "frontend", _replicas),
    Variable(
        "CLUSTER_SERVING_PORT", "--port", "Port of HTTP on every machine; 10020.", "frontend", _port(FRONTEND_PORT)
    ),
    Variable("CLUSTER_SERVING_NODE_CPUS", "--cpus", "Cores of one node, at most; 2.", "node", _limit("NanoCPUs", 1e9)),
    Variable(
        "CLUSTER_SERVING_NODE_MEMORY", "--memory", "Memory of one node, at most; 4g.", "node", _limit("MemoryBytes", 1)
    ),
    Variable(
        "CLUSTER_SERVING_NODE_IMAGE",
        "--node-image",
        "Image of the nodes; cluster-serving-node of this version.",
        "node",
        _image,
        f"cluster-serving-node:{__version__}",
    ),
    Variable(
        "CLUSTER_SERVING_FRONTEND_IMAGE",
        "--frontend-image",
        "Image of the frontends; cluster-serving-frontend of this version.",
        "frontend",
        _image,
        f"cluster-serving-frontend:{__version__}",
    ),
    Variable("CLUSTER_SERVING_REDIS_IMAGE", "--redis-image", "Image of Redis; redis:7.4-bookworm.", "redis", _image),
    Variable("CLUSTER_SERVING_REDIS_PLACE", "", "", "redis", _place),  # on a different machine Redis would find no data
    Variable("CLUSTER_SERVING_REDIS_2_PLACE", "", "", "redis-2", _place),
    Variable("CLUSTER_SERVING_REDIS_3_PLACE", "", "", "redis-3", _place),
    Variable("CLUSTER_SERVING_NODE_PLACE", "", "", "node", _place),
    Variable("CLUSTER_SERVING_REDIS_CPUS", "", "", "redis", _line(r"^cpus=(\S+)$")),
    Variable("CLUSTER_SERVING_REDIS_MEMORY", "", "", "redis", _limit("MemoryBytes", 1)),
    Variable("CLUSTER_SERVING_REDIS_MAXMEMORY", "", "", "redis", _line(r"^maxmemory (\S+)$")),
    Variable("CLUSTER_SERVING_FRONTEND_CPUS", "", "", "frontend", _limit("NanoCPUs", 1e9)),
    Variable("CLUSTER_SERVING_SECURE_PORT", "", "", "frontend", _port(_SECURE_PORT)),
    Variable("CLUSTER_SERVING_DOCKER_SOCKET", "", "", "scaler", _socket),
    Variable("CLUSTER_SERVING_PROMETHEUS_IMAGE", "", "", "prometheus", _image),
    Variable("CLUSTER_SERVING_GRAFANA_IMAGE", "", "", "grafana", _image),
    Variable("CLUSTER_SERVING_GRAFANA_PORT", "", "", "grafana", _port(_GRAFANA_PORT)),
    Variable("CLUSTER_SERVING_MONITORING_PLACE", "", "", "prometheus", _place),
    Variable(MODELS, "", "", "node", _models),
    Variable(MODEL_PATH, "", "", "node", _environ(MODEL_PATH)),
    Variable(MODEL_CHECKSUM, "", "", "node", _environ(MODEL_CHECKSUM)),
)


def variables(given: Mapping[str, str], environ: Mapping[str, str], running: Stack | None) -> dict[str, str]:
    """Choose the value of each variable: as given, from the environment, from the running stack, or the default, in this order.

    A given model decides all variables for the place of the model.
    """
    of_model = {MODELS, MODEL_PATH, MODEL_CHECKSUM} if MODEL_PATH in given else set[str]()
    found: dict[str, str] = {}
    for variable in VARIABLES:
        name = variable.name
        if name in given or name in of_model:
            found[name] = given.get(name, "")  # an empty value counts too: it overrides the environment
        elif not environ.get(name):
            service = running.services.get(variable.service) if running else None
            runs_with = variable.read(service) if service else None
            if value := ("" if runs_with is None else str(runs_with)) or variable.default:
                found[name] = value
    return found


def given_model(reference: str, checksum: str | None) -> dict[str, str]:
    """Return the variables for a model: a directory on every machine, a URL, image:/PATH, or volume:NAME.

    Raises:
        Fault: the reference has none of these forms.
    """
    given = {MODEL_PATH: reference, MODEL_CHECKSUM: checksum or ""}
    if "://" in reference:
        return given | {MODELS: _MODELS_VOLUME}
    if reference.startswith(_IN_IMAGE):
        return given | {MODELS: _MODELS_VOLUME, MODEL_PATH: _path_in_image(reference)}
    if reference.startswith(_IN_VOLUME):
        name = reference.removeprefix(_IN_VOLUME)
        return given | {MODELS: _MODELS_VOLUME, MODEL_PATH: f"{MODELS_MOUNT}/{name}".rstrip("/")}
    path = PurePosixPath(reference)
    if not path.is_absolute() or path == PurePosixPath("/"):
        raise Fault(
            f"--model is {reference}, but must be the full path of a directory that every machine has, a URL, image:/PATH or "
            "volume:NAME"
        )
    return given | {MODELS: str(path.parent), MODEL_PATH: f"{MODELS_MOUNT}/{path.name}"}


def _path_in_image(reference: str) -> str:
    """Return the path of a model in the image of the nodes.

    Raises:
        Fault: the path is not absolute, or a mount hides it.
    """
    path = PurePosixPath(reference.removeprefix(_IN_IMAGE))
    if not path.is_absolute() or path.is_relative_to(MODELS_MOUNT):
        raise Fault(
            f"--model is {reference}, but what an image has at {MODELS_MOUNT} is hidden by a mount: put it elsewhere, and give its "
            "full path, as image:/opt/model"
        )
    return str(path)


def model_in_container(reference: str, node: Service) -> str:
    """Return the place of a model as a running node sees it.

    Args:
        reference: a URL, image:/PATH, a path on the machines below the mounted directory, which comes first, a path in the
            container below /models, or a name in the mounted directory.
        node: the service of the nodes.

    Raises:
        Fault: the nodes cannot see the path.
    """
    if "://" in reference:
        return reference
    if reference.startswith(_IN_IMAGE):
        return _path_in_image(reference)
    path, mount = PurePosixPath(reference.removeprefix(_IN_VOLUME)), models_mount(node)
    if not path.is_absolute():
        return f"{MODELS_MOUNT}/{path}"
    if mount and mount["Type"] == "bind" and path.is_relative_to(mount["Source"]):
        return str(PurePosixPath(MODELS_MOUNT) / path.relative_to(mount["Source"]))
    if reference.startswith(f"{MODELS_MOUNT}/"):
        return reference
    where = mount["Source"] if mount else "nothing"
    raise Fault(
        f"the nodes do not see {reference}: {where} is mounted at {MODELS_MOUNT}; put the model there, or deploy with --model"
    )


def models_mount(node: Service) -> dict[str, Any] | None:
    """Return the mount at /models, or None."""
    mounts: list[dict[str, Any]] = node.container.get("Mounts") or []
    return next((mount for mount in mounts if mount.get("Target") == MODELS_MOUNT), None)
