"""A process of a frontend: answers requests on inherited sockets, until SIGTERM.

    server                                       process: python -P -m cluster_serving.frontend.server.process
    descriptors, spec on standard input  ─────►  imports, makes the application, accepts connections
    ready pipe                           ◄─────  ready, or the fault of the start
    shared memory                        ◄─────  signs of life (hangs.py)
    SIGTERM                              ─────►  accepts no more connections, answers open requests, ends

The messages of both are drawn in client/servers/process/child.py.
"""

from cluster_serving.client.servers.process.parent import Parent
from cluster_serving.client.servers.process.quick_imports import import_lean, make_imports_quick


def main() -> None:
    """Run a process of a frontend."""
    parent = Parent()
    make_imports_quick()
    import_lean("structlog", "redis")
    from cluster_serving.frontend.server.serving import serve

    serve(parent)


if __name__ == "__main__":
    main()
