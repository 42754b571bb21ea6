"""Check of the packages that `cluster-serving swarm` needs."""

from cluster_serving.client.servers.process.installed import require

_PACKAGES = ("click", "cryptography", "msgspec", "pydantic", "rich", "yaml")


def check_installed() -> None:
    """Check that the packages of the extra `swarm` are installed.

    Raises:
        NotInstalled: a package is missing.
    """
    require(_PACKAGES, "swarm", "The commands for a Swarm are")
