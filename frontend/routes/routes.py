"""Routes of an API: paths, methods and names, each with its handler behind the gate."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sanic import Sanic

from cluster_serving.frontend.routes.gate import Handler, gated

H = TypeVar("H", bound=Handler)


class Routes:
    """Routes of one API, filled by decorators.

    A handler is called with the request and the arguments in the path, decoded from percent-encoding. It raises
    `ClusterServingError` for a request without an answer. Before the handler, the gate answers 401 without an API key, and 429
    without a token.
    """

    def __init__(self) -> None:
        self._routes: list[tuple[Handler, str, Sequence[str], str]] = []

    def get(self, path: str, name: str, *, is_open: bool = False, is_limited: bool = True) -> Callable[[H], H]:
        """Register a handler for GET and HEAD, as `route`."""
        return self.route(path, ("GET", "HEAD"), name, is_open=is_open, is_limited=is_limited)

    def post(self, path: str, name: str) -> Callable[[H], H]:
        """Register a handler for POST, as `route`."""
        return self.route(path, ("POST",), name)

    def route(
        self, path: str, methods: Sequence[str], name: str, *, is_open: bool = False, is_limited: bool = True
    ) -> Callable[[H], H]:
        """Register a handler, which the decorator returns as it is.

        Args:
            path: path in Sanic's notation.
            methods: HTTP methods.
            name: unique name, under which requests are counted.
            is_open: whether a request needs no API key: health, documentation.
            is_limited: whether a request needs a token. A request to an open route never does.
        """

        def register(handler: H) -> H:
            self._routes.append((gated(handler, name, is_open=is_open, is_limited=is_limited), path, methods, name))
            return handler

        return register

    def add(self, app: Sanic[Any, Any]) -> None:
        """Add the routes to an application."""
        for handler, path, methods, name in self._routes:
            app.add_route(handler, path, methods=methods, name=name, unquote=True)
