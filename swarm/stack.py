"""Stack to deploy: `docker stack config` merges its files and fills in its variables, then its configs get lasting names.

Swarm never changes a stored config. So the name of a config contains a hash of its content: an edited file becomes a new config,
and its services are updated. When a file of the running stack is missing here, the copy in the Swarm is used.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cluster_serving.client.servers.config.file_here import DEFAULT_CONFIG
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.client.servers.process.whole_file import whole_file
from cluster_serving.swarm import docker
from cluster_serving.swarm.live import Stack

PACKAGED = Path(__file__).parent
ADDITIONS = ("autoscale", "global", "monitoring", "replicas", "tls")
REDIS = ("redis", "redis-2", "redis-3")
SENTINELS = ("sentinel", "sentinel-2", "sentinel-3")
_LABEL = re.compile(r"node\.labels\.(\S+) *== *(\S+)")
_HASH_DIGITS = 8
_PASSWORD_BYTES = 24
_STACK_FILE = "stack.yml"
_DATE = "tag:yaml.org,2002:timestamp"
# Docker takes more texts for numbers and dates than PyYAML, which would leave out their quotes: 1234567e8, 0o14, 0X1F, 2026-1-2.
_NUMBER = re.compile(r"[-+.\d][-+.: \da-fA-FoOxX_TtZ]*$", re.ASCII)

Document = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """Sources of a stack.

    Attributes:
        name: name of the stack.
        files: stack files. A later file overrides an earlier file.
        folder: folder of config.yaml and the passwords.
        variables: values for the variables in the stack files.
    """

    name: str
    files: tuple[Path, ...]
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    def paths(self) -> dict[str, Path]:
        """Return variable to path, for the files that the stack files refer to."""
        own_config = self.folder / DEFAULT_CONFIG
        return {
            "CLUSTER_SERVING_CONFIG": own_config if own_config.exists() else PACKAGED / DEFAULT_CONFIG,
            "CLUSTER_SERVING_REDIS_PASSWORD_FILE": self.folder / "redis_password.txt",
            "CLUSTER_SERVING_GRAFANA_PASSWORD_FILE": self.folder / "grafana_password.txt",
            "CLUSTER_SERVING_TLS": self.folder / "frontend.pem",
            "CLUSTER_SERVING_MONITORING": PACKAGED / "monitoring",
            "CLUSTER_SERVING_DASHBOARD": PACKAGED.parent / "frontend" / "metrics" / "grafana" / "cluster-serving.json",
        }


def stack_files(given: tuple[str, ...], additions: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the files of a stack: the given files or the packaged stack.yml, then the packaged additions.

    They are in the order of `ADDITIONS`, for replicas.yml changes what autoscale.yml has.

    Raises:
        Fault: a given file does not exist.
    """
    files = [Path(name).absolute() for name in given] or [PACKAGED / _STACK_FILE]
    for file in files:
        if not file.is_file():
            raise Fault(f"{file}: there is no such file; without -c, the packaged stack.yml is used")
    return (*files, *(PACKAGED / f"{name}.yml" for name in ADDITIONS if name in additions))


def text_of(file: Path) -> str:
    """Return the text of a stack file or config, whatever bytes it holds: Docker and Redis say what is wrong with them."""
    return file.read_text("utf-8", "replace")


def render(source: Source) -> Document:
    """Return the merged stack, with all variables filled in and absolute paths.

    Raises:
        DockerMissing: no docker command is on PATH.
        DockerFailed: Docker refuses the files. The message names the refused part.
    """
    # A path in the environment is relative to the current folder, not to the folder of the first file.
    paths = {name: Path(os.environ.get(name) or path).absolute() for name, path in source.paths().items()}
    options = [word for file in source.files for word in ("-c", str(file))]
    text = docker.run(
        ["stack", "config", *options], environ={**{name: str(path) for name, path in paths.items()}, **source.variables}
    )
    document: Document = _Loader(text).get_single_data()
    services: Document = document["services"]
    if (autoscaler := services.get("autoscaler")) and "image" not in autoscaler:
        del services["autoscaler"]  # replicas.yml is there, which changes it, and autoscale.yml is not, which has it
    for service in services.values():
        if (deploy := service.get("deploy") or {}).get("mode") == "global":
            deploy.pop("replicas", None)  # an overriding stack file cannot remove `replicas`
    return {key: value for key, value in document.items() if not key.startswith("x-")}


def settle_names(document: Document, name: str) -> None:
    """Add a content hash to the name of every config and certificate. An entry whose file is missing keeps its name.

    A password keeps its plain name, because a hash would confirm a right guess of the password.
    """
    entries = [*_files_of(document, "configs"), *_files_of(document, "secrets")]
    for key, entry in entries:
        if (path := Path(entry["file"])).is_file() and not _is_password(key):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:_HASH_DIGITS]
            entry.setdefault("name", f"{name}_{key}_{digest}")


def check_replicas(document: Document, running: Stack) -> None:
    """Refuse a stack that would turn a running Redis with replicas into a Redis alone.

    Raises:
        Fault: the running stack has replicas, and this stack has none.
    """
    _, replica, _ = REDIS
    if replica in running.services and replica not in document["services"]:
        raise Fault(
            f"Redis of stack {running.name} has replicas, and its records may be in one of them: give --with replicas again. To go "
            "back to a Redis alone, let the nodes answer what waits, end the stack by cluster-serving swarm rm, and remove the "
            "volumes of all Redis and Sentinels, which it names"
        )


def check_places(document: Document, labels: Sequence[Mapping[str, str]]) -> None:
    """Refuse a stack whose Redis, with its replicas, has no machine to run on: a master without replicas takes no record.

    Args:
        document: stack to deploy.
        labels: labels of each machine of the Swarm.

    Raises:
        Fault: no machine has a label that a service asks for. The message has the command that sets the label.
    """
    for name in (*REDIS, *SENTINELS):
        placement = document["services"].get(name, {}).get("deploy", {}).get("placement") or {}
        for constraint in placement.get("constraints") or ():
            match = _LABEL.fullmatch(constraint)
            if match and not any(each.get(match[1]) == match[2] for each in labels):
                raise Fault(
                    f"No machine of the Swarm has the label {match[1]}={match[2]}, which {name} asks for: "
                    f"docker node update --label-add {match[1]}={match[2]} MACHINE"
                )


def make_passwords(document: Document) -> list[Path]:
    """Create the missing password files, readable only by their owner, and return their paths."""
    made: list[Path] = []
    for key, secret in _files_of(document, "secrets"):
        path = Path(secret["file"])
        if _is_password(key) and not path.exists():
            _write_secret(path, f"{secrets.token_hex(_PASSWORD_BYTES)}\n".encode())
            made.append(path)
    return made


def keep_what_runs(document: Document, running: Stack) -> list[str]:
    """Use Swarm's copies of files that are missing here, and return the names of the copies.

    Args:
        document: the stack to deploy. Entries with a missing file, or with the packaged config.yaml, are changed.
        running: the running stack of the same name.
    """
    kept: list[str] = []
    for part, kind in (("configs", "Config"), ("secrets", "Secret")):
        for key, entry in _files_of(document, part):
            stored = re.compile(rf"{re.escape(f'{running.name}_{key}')}(_[0-9a-f]{{{_HASH_DIGITS}}})?")
            # The running services give the full name of the stored copy.
            names_in_use = (
                str(mounted[f"{kind}Name"])
                for service in running.services.values()
                for mounted in service.container.get(f"{kind}s") or ()
            )
            name = next(filter(stored.fullmatch, names_in_use), None)
            if (
                name
                and name != entry.get("name")
                and (not Path(entry["file"]).exists() or Path(entry["file"]) == PACKAGED / DEFAULT_CONFIG)
            ):
                document[part][key] = {"external": True, "name": name}
                kept.append(name)
    return kept


def to_text(document: Document) -> str:
    """Return the stack as text for `docker stack deploy`. A literal $ is written twice."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=132)
    return text.replace("$", "$$")


def save(document: Document, folder: Path) -> None:
    """Write the stack into a folder, with copies of the files that it names outside the folder.

    A secret is copied readable only by its owner. A copy whose name is taken by a different file has its key before the name.
    """
    parts = {part: _files_of(document, part) for part in ("configs", "secrets")}
    named = [Path(entry["file"]) for entries in parts.values() for _, entry in entries]
    taken = {
        folder / _STACK_FILE: folder / _STACK_FILE,
        **{path: path for path in named if path.is_relative_to(folder)},
    }
    for part, entries in parts.items():
        for key, entry in entries:
            path = copy = Path(entry["file"])
            if not path.is_relative_to(folder) and path.exists():
                copy = folder / path.name
                while taken.setdefault(copy, path) != path:
                    copy = folder / f"{key}-{copy.name}"
                if part == "secrets":
                    _write_secret(copy, path.read_bytes())
                else:
                    with whole_file(copy) as stream:
                        stream.write(path.read_bytes())
            entry["file"] = f"./{copy.relative_to(folder)}" if copy.is_relative_to(folder) else str(path)
    with whole_file(folder / _STACK_FILE) as stream:
        stream.write(to_text(document).encode())


class _Loader(yaml.SafeLoader):
    """YAML loader without dates: Docker puts none, and leaves a text such as 2026-02-30 without quotes."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in the base class
        first: [pair for pair in pairs if pair[0] != _DATE]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class _Dumper(yaml.SafeDumper):
    """YAML dumper that writes a text of several lines as a literal block, and a text that may be a number in quotes."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Return the YAML node of a text."""
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _Dumper.represent_str)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))


def _files_of(document: Document, part: str) -> list[tuple[str, dict[str, Any]]]:
    return [(key, entry) for key, entry in (document.get(part) or {}).items() if "file" in (entry or {})]


def _write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read. A link of that name is removed: the content would go to its file."""
    path.unlink(missing_ok=True)
    with whole_file(path, 0o600) as stream:
        stream.write(content)


def _is_password(key: str) -> bool:
    return key.endswith("password")
