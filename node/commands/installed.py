"""Check for the packages that every node needs. The bare install is the client alone."""

from importlib.util import find_spec

_HOW = "pip install 'cluster-serving[onnx]', or from a checkout: pip install '.[onnx]'."

CLIENT_ALONE = f"This is the client of Cluster Serving alone; to run a node: {_HOW}"
NODE_MISSING = f"The packages of a node are not installed here; to run a node: {_HOW}"

_PACKAGES = ("click", "cv2", "msgspec", "psutil", "pydantic", "rich", "structlog", "yaml")


def check_installed() -> None:
    """Check that the packages of the extra `node` are installed, without an import.

    Raises:
        ModuleNotFoundError: a package is not installed.
    """
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
