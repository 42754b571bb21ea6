"""Protection of the original's own packages, which bring modules of the same names.

    zoo/serving/client.py            of the original
    zoo/serving/client/__init__.py   of this distribution

No file of the one has the path of the other, so an installation never replaces the original's module. Python prefers a folder to a
module of the same name, so a program that imports `zoo.serving.client` meets this distribution, and gets the error below.
"""

from importlib.metadata import distributions
from pathlib import Path


def refuse_beside_original(file: str) -> None:
    """Refuse to be imported in place of the original, where the original is installed too.

    Args:
        file: `__file__` of a package with the name of a module of the original.

    Raises:
        ImportError: the original's module lies beside the package. The message has the command that removes either.
    """
    package = Path(file).parent
    original = package.with_suffix(".py")
    if not original.exists():
        return
    owners = (each.name for each in distributions() if any(path.locate() == original for path in each.files or ()))
    owner = next(owners, "")
    name = ".".join(package.parts[-3:])
    removal = f"pip uninstall {owner}" if owner else f"remove {original}"
    raise ImportError(
        f"{name} is there twice: from {owner or original}, and from cluster-serving-compat. To use Cluster Serving, "
        f"{removal}; to keep the original, pip uninstall cluster-serving-compat.",
        name=name,
        path=file,
    )
