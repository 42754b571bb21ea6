"""Check of the packages that `cluster-serving swarm` needs."""

from cluster_serving.client.servers.process.installed import require

_PACKAGES = ("click", "cryptography", "msgspec", "pydantic", "yaml")
_OF_SERVICES = ("prometheus_client", "structlog")
_OF_PEOPLE = ("rich",)  # the frontend's image, in which the services run, has none
_SERVICES = ("autoscale", "scaler")
_WHAT = "The commands for a Swarm are"


def check_installed() -> None:
    """Check that the packages are installed that all commands need.

    Raises:
        NotInstalled: a package is missing.
    """
    require(_PACKAGES, "swarm", _WHAT)


def check_installed_for(command: str) -> None:
    """Check that the packages are installed that a command needs beside the packages of all commands.

    Raises:
        NotInstalled: a package is missing.
    """
    require(_OF_SERVICES if command in _SERVICES else _OF_PEOPLE, "swarm", _WHAT)
