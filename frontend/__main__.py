"""`cluster-serving-http`: the frontend under the name of a program of its own."""

import os
import signal
import sys

from cluster_serving.client.servers.process.installed import NotInstalled


def _end(_number: int, _frame: object) -> None:
    sys.exit(0)


def main() -> None:
    """Run it."""
    if os.getpid() == 1:  # the kernel keeps signals from it that it does not handle; the server will
        signal.signal(signal.SIGTERM, _end)
    try:
        from cluster_serving.frontend.cli import frontend
    except NotInstalled as fault:
        print(fault, file=sys.stderr)
        sys.exit(fault.exit_code)
    frontend.main(prog_name="cluster-serving-http")


if __name__ == "__main__":
    main()
