"""`cluster-serving-http`: the frontend as a program of its own."""

import os
import signal
import sys

from cluster_serving.client.servers.process.exit_codes import INTERRUPTED
from cluster_serving.client.servers.process.installed import NotInstalled
from cluster_serving.client.servers.process.quick_imports import import_lean, make_imports_quick
from cluster_serving.frontend.config.installed import check_installed


def main() -> None:
    """Run the frontend."""
    make_imports_quick()

    def end(_number: int, _frame: object) -> None:
        sys.exit(0)

    # For process 1 the kernel drops signals without a handler. The server installs its own handler later.
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, end)
    try:
        check_installed()
        from cluster_serving.frontend.cli import frontend
    except NotInstalled as fault:
        print(fault, file=sys.stderr)
        sys.exit(fault.exit_code)
    except KeyboardInterrupt:  # the imports take a second and more on a busy machine
        print("Aborted!", file=sys.stderr)
        sys.exit(INTERRUPTED)
    import_lean("structlog", "redis")
    frontend.main(prog_name="cluster-serving-http")


if __name__ == "__main__":
    main()
