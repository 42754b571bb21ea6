"""Whether what `cluster-serving swarm` needs is installed."""

from cluster_serving.client.servers.process.installed import require

_PACKAGES = ("click", "cryptography", "msgspec", "pydantic", "rich", "yaml")


def check_installed() -> None:
    """Check that the packages of the extra `swarm` are there.

    Raises:
        NotInstalled: one is not.
    """
    require(_PACKAGES, "swarm", "The commands for a Swarm are")
