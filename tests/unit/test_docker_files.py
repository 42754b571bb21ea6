"""Files that the images are built from, which agree with the rest of the repository."""

import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cluster_serving.frontend.config.loading import load_frontend_config
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.node.config.config import Config
from cluster_serving.node.config.loading import load_config

REPOSITORY = Path(__file__).parents[2]
DOCKER = REPOSITORY / "docker"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
LOCKS = {"http": ["http"]} | {
    extra: [extra, "fetch"]
    for extra in ("node", "onnx", "openvino", "tensorflow", "torch", "bigdl", "otel", "tensorboard", "all")
}
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((DOCKER / "compose.yml").read_text())["services"]
PYTHONS = ("3.11.9", "3.12.7", "3.13.1")


def requirements_of(extras: list[str]) -> list[Requirement]:
    """Return the requirements that `cluster-serving[extras]` asks for directly, extras of its own followed."""
    declared: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
    found = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
    for extra in extras:
        for requirement in map(Requirement, declared[extra]):
            own = requirement.name == PROJECT["project"]["name"]
            found += requirements_of(sorted(requirement.extras)) if own else [requirement]
    return found


def locked(name: str) -> list[Requirement]:
    """The pins of a lock."""
    lines = (DOCKER / f"requirements-{name}.txt").read_text().splitlines()
    return [Requirement(line.rstrip(" \\")) for line in lines if re.match(r"[a-z0-9]", line)]


def applies(requirement: Requirement, python: str) -> bool:
    """Return whether a requirement is one of this Python on Linux."""
    environment = {
        "sys_platform": "linux",
        "platform_machine": "x86_64",
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
    }
    return requirement.marker is None or requirement.marker.evaluate(environment)


def versions(pins: list[Requirement], python: str) -> dict[str, Version]:
    """Return the version of each package that a lock gives this Python on Linux."""
    chosen = [pin for pin in pins if applies(pin, python)]
    return {canonicalize_name(pin.name): Version(str(pin.specifier).removeprefix("==")) for pin in chosen}


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_what_its_extras_ask_for(name: str, python: str) -> None:
    """Mend it with docker/lock.sh."""
    pins = versions([*locked(name), Requirement((DOCKER / "torch.txt").read_text().strip())], python)
    asked = [one for one in requirements_of(LOCKS[name]) if applies(one, python)]

    assert asked
    for requirement in asked:
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not in the lock"
        assert requirement.specifier.contains(version), f"{requirement}, but the lock has {version}"


def test_the_build_is_locked() -> None:
    pins = versions(locked("build"), PYTHONS[0])

    for requirement in map(Requirement, PROJECT["build-system"]["requires"]):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LOCKS)
def test_locks_agree_so_that_extras_can_be_put_together(name: str, python: str) -> None:
    everything = versions(locked("all"), python)

    assert versions(locked(name), python).items() <= everything.items()


@pytest.mark.parametrize("lock", sorted(DOCKER.glob("requirements-*.txt")), ids=lambda path: path.stem)
def test_every_pin_has_a_hash_and_no_address(lock: Path) -> None:
    text = lock.read_text()

    assert not re.search(r"://|--(extra-)?index-url|--find-links", text)
    for pin in re.split(r"\n(?=[a-z0-9])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", pin), pin


def test_torch_is_the_one_of_the_makefile() -> None:
    pinned = re.search(r"^TORCH \?= (\S+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)

    assert pinned is not None
    assert (DOCKER / "torch.txt").read_text().strip() == pinned[1]


def test_what_the_wheel_is_built_from_reaches_the_builder() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    let_in = re.findall(r"^!(\S+)$", (REPOSITORY / ".dockerignore").read_text(), re.MULTILINE)
    sources = {source.partition("/")[0] for line in copied for source in line.split()}
    parts = {path.name for path in (REPOSITORY / "src" / "cluster_serving").iterdir() if path.is_symlink()}

    assert parts | {"src", "pyproject.toml"} <= sources
    assert sources == set(let_in)


def test_the_node_image_has_what_serve_needs() -> None:
    dockerfile = (DOCKER / "Dockerfile").read_text()
    node = dockerfile[dockerfile.index("FROM runtime AS node") :]
    built = {"onnx,http"}

    assert set(re.findall(r"^ARG EXTRAS=(\S+)$", dockerfile, re.MULTILINE)) == built
    assert set(re.findall(r"^EXTRAS \?= (\S+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)) == built
    assert f"EXPOSE {FrontendConfig().port}" in node
    assert "ENTRYPOINT" not in node  # `tini -- cluster-serving` of the stage before


def test_scripts_can_be_run() -> None:
    scripts = sorted(DOCKER.glob("*.sh"))

    assert scripts
    assert all(path.stat().st_mode & stat.S_IXUSR for path in scripts)


@pytest.mark.parametrize(
    ("service", "settings"), [("node", Config.model_fields), ("frontend", FrontendConfig.model_fields)]
)
def test_variables_of_compose_are_settings(service: str, settings: dict[str, Any]) -> None:
    named = {name.removeprefix("CLUSTER_SERVING_").removesuffix("_FILE") for name in SERVICES[service]["environment"]}

    assert named
    assert named <= {name.removesuffix("_s").upper() for name in settings}


@pytest.mark.parametrize("service", ["node", "frontend"])
def test_servers_in_compose_may_drain(service: str) -> None:
    fields = Config.model_fields if service == "node" else FrontendConfig.model_fields

    assert int(SERVICES[service]["stop_grace_period"].removesuffix("s")) > fields["drain_timeout_s"].default


def test_the_config_of_compose_is_one() -> None:
    loaded = load_config(DOCKER / "config.yaml", {}, {})

    assert loaded.config.model_path == "/models"


def test_compose_publishes_the_port_of_the_frontend_whatever_its_config_has(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("frontend: {port: 8080}\n")
    frontend = SERVICES["frontend"]
    environ = {name: value for name, value in frontend["environment"].items() if not name.endswith("_FILE")}
    (published,) = frontend["ports"]

    assert published.endswith(f":{load_frontend_config(config, environ, {}).config.port}")
