"""Check for the packages that a part needs. The bare install is the client alone."""

from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec

from cluster_serving.client.extras import install_command
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault


class NotInstalled(Fault):
    """Packages of an extra are missing."""

    exit_code = ExitCode.USAGE


def require(packages: Sequence[str], extra: str, what: str) -> None:
    """Check that packages are installed, without importing the packages.

    Args:
        packages: import names of the packages.
        extra: extra of `cluster-serving` that installs the packages.
        what: beginning of the message, up to "not installed": `The HTTP frontend is`.

    Raises:
        NotInstalled: a package is not installed.
    """
    missing: list[str] = []
    for package in packages:
        with suppress(ModuleNotFoundError):  # the parent of a package is missing
            if find_spec(package) is not None:
                continue
        missing.append(package)
    if missing:
        raise NotInstalled(f"{what} not installed ({', '.join(missing)} is missing): {install_command(extra)}")
