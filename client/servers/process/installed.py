"""Whether what a part needs is installed: the bare install is the client alone."""

from collections.abc import Sequence
from importlib.util import find_spec

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault


class NotInstalled(Fault):
    """Packages of an extra are missing."""

    exit_code = ExitCode.USAGE


def require(packages: Sequence[str], extra: str, what: str) -> None:
    """Check that packages are there; none of them is imported.

    Args:
        packages: by the names they are imported by.
        extra: that brings them.
        what: "... are not installed", for people.

    Raises:
        NotInstalled: one is not.
    """
    missing = [package for package in packages if not _is_there(package)]
    if missing:
        raise NotInstalled(
            f"{what} not installed ({', '.join(missing)} is missing): pip install 'cluster-serving[{extra}]', "
            f"or from a checkout: pip install '.[{extra}]'."
        )


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
