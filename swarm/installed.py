"""Whether what `cluster-serving swarm` needs is installed: the bare install is the client alone."""

from importlib.util import find_spec

from cluster_serving.client.process.exit_codes import ExitCode, Fault

_PACKAGES = ("click", "cryptography", "msgspec", "pydantic", "rich", "yaml")


class NotInstalled(Fault):
    """Packages of the extra `swarm` are missing."""

    exit_code = ExitCode.USAGE


def check_installed() -> None:
    """Check that the packages of the extra `swarm` are there; none of them is imported.

    Raises:
        NotInstalled: one is not.
    """
    missing = [package for package in _PACKAGES if not _is_there(package)]
    if missing:
        raise NotInstalled(
            f"The commands for a Swarm are not installed ({', '.join(missing)} is missing): pip install 'cluster-serving[swarm]', "
            "or from a checkout: pip install '.[swarm]'."
        )


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
