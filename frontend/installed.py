"""Whether what a frontend needs is installed: the bare install is the client alone."""

from importlib.util import find_spec

from cluster_serving.client.process.exit_codes import ExitCode, Fault

_PACKAGES = (
    "click",
    "cryptography",
    "msgspec",
    "orjson",
    "prometheus_client",
    "pydantic",
    "sanic",
    "structlog",
    "swagger_ui",
    "uvloop",
    "yaml",
)


class NotInstalled(Fault):
    """Packages of the extra `http` are missing."""

    exit_code = ExitCode.USAGE


def check_installed() -> None:
    """Check that the packages of the extra `http` are there; none of them is imported.

    Raises:
        NotInstalled: one is not.
    """
    missing = [package for package in _PACKAGES if not _is_there(package)]
    if missing:
        raise NotInstalled(
            f"The HTTP frontend is not installed ({', '.join(missing)} is missing): pip install 'cluster-serving[http]', "
            "or from a checkout: pip install '.[http]'."
        )


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
