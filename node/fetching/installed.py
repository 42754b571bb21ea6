"""Check for the package that fetches models."""

from importlib.util import find_spec

from cluster_serving.client.extras import install_command
from cluster_serving.client.servers.config.values import mask_address
from cluster_serving.client.servers.process.exit_codes import ModelFault


def check_can_fetch(url: str) -> None:
    """Check that the package obstore is installed.

    Raises:
        ModelFault: the package is not installed.
    """
    if find_spec("obstore") is None:
        raise ModelFault(
            f"{mask_address(url)} is fetched with the package obstore, which is not installed: "
            f"{install_command('fetch')}"
        )
