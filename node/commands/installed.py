"""Check for the packages that every node needs. The bare install is the client alone."""

from importlib.util import find_spec

from cluster_serving.client.extras import install_command

_PACKAGES = ("click", "cv2", "msgspec", "psutil", "pydantic", "rich", "structlog", "yaml")


def check_installed() -> None:
    """Check that the packages of the extra `node` are installed, without an import.

    Raises:
        ModuleNotFoundError: a package is not installed.
    """
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def client_alone() -> str:
    """Return the sentence about an installation of the client alone."""
    return f"This is the client of Cluster Serving alone; to run a node: {install_command('onnx')}"


def node_missing() -> str:
    """Return the sentence about an installation without the packages of a node."""
    return f"The packages of a node are not installed here; to run a node: {install_command('onnx')}"
