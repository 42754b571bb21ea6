"""Builds the project's images from the checkout, and node images with models baked in, and puts them on every host.

Beside them images of the release before: its source in the images of today, which Python imports first.
"""

import shutil
from pathlib import Path
from typing import Final

from support import frozen
from support.swarm.lab import ROOT, Lab

_HERE: Final = Path(__file__).parent
_BASE: Final = "python:3.11-slim-bookworm"
_NODE: Final = "cluster-serving-node:systemtest"
FRONTEND: Final = "cluster-serving-frontend:systemtest"
FRONTEND_2: Final = f"{FRONTEND}-2"
FORMER_NODE: Final = f"{_NODE}-former"
FORMER_FRONTEND: Final = f"{FRONTEND}-former"
REDIS: Final = "lab-redis:1"
_VERSIONS: Final = ("1", "2", "3")
_BAKED: Final = ("1", "2", "broken")


def node_image(model: str) -> str:
    """The node image with a version of the paced model (1, 2), or with the `broken` one, at /opt/model."""
    return f"{_NODE}-{model}"


def prepare(lab: Lab, directory: Path) -> None:
    """Build all, and load them.

    Args:
        lab: one that is up.
        directory: an empty one, for what is baked in.
    """
    if not lab.docker("builder", "images", "-q", _BASE):
        lab("base")
    dockerfile = str(ROOT / "docker" / "Dockerfile")
    common = ("--quiet", "--build-arg", f"BASE={_BASE}", "-f", dockerfile)
    lab("build", *common, "--target", "node", "--build-arg", "EXTRAS=node", "-t", _NODE, str(ROOT))
    lab("build", *common, "--target", "frontend", "-t", FRONTEND, str(ROOT))
    lab("build", "--quiet", "-f", str(_HERE / "redis.Dockerfile"), "-t", REDIS, str(_HERE))
    _bake(lab, directory)
    _bake_former(lab, directory / "former")
    lab("load", FRONTEND, FRONTEND_2, FORMER_NODE, FORMER_FRONTEND, REDIS, *map(node_image, _BAKED))
    for host in ("builder", *lab.hosts):
        lab.docker(host, "image", "prune", "--force")  # those that had these names before


def lay_out(models: Path) -> None:
    """Put every version of the paced model, and the broken one, into directories that containers can read."""
    for name, source in [*((version, "paced.py") for version in _VERSIONS), ("broken", "broken.py")]:
        (models / name).mkdir(parents=True)
        shutil.copy(_HERE / "models" / source, models / name / "model.py")
        (models / name / "version.txt").write_text(name)
    for path in [models, *models.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def _bake(lab: Lab, directory: Path) -> None:
    models, dockerfile = directory / "models", directory / "Dockerfile"
    lay_out(models)
    build = ("build", "--quiet", "-f", str(dockerfile))
    dockerfile.write_text(f"FROM {FRONTEND}\nLABEL version=2\n")
    lab(*build, "-t", FRONTEND_2, str(models))
    dockerfile.write_text(f"FROM {_NODE}\nARG MODEL\nCOPY ${{MODEL}} /opt/model\n")
    for model in _BAKED:
        lab(*build, "--build-arg", f"MODEL={model}", "-t", node_image(model), str(models))


def _bake_former(lab: Lab, directory: Path) -> None:
    directory.mkdir()
    frozen.unpack(directory / "release")
    dockerfile = directory / "Dockerfile"
    for today, former in ((node_image("1"), FORMER_NODE), (FRONTEND, FORMER_FRONTEND)):
        dockerfile.write_text(f"FROM {today}\nCOPY release /opt/release\nENV PYTHONPATH=/opt/release/src\n")
        lab("build", "--quiet", "-f", str(dockerfile), "-t", former, str(directory))
