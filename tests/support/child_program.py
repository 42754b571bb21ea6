"""Program of a child: runs the Python source that it gets as its spec, with `parent` in reach."""

import sys

from cluster_serving.client.servers.process.parent import Parent

if __name__ == "__main__":
    parent = Parent()
    exec(sys.stdin.buffer.read(), {"parent": parent})  # noqa: S102 - a test's own source
