"""Check of the packages that a frontend needs."""

from cluster_serving.client.servers.process.installed import require

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


def check_installed() -> None:
    """Check that the packages of the extra `http` are installed.

    Raises:
        NotInstalled: a package is missing.
    """
    require(_PACKAGES, "http", "The HTTP frontend is")
