"""The OpenAPI document, beside the routes that it describes."""

import re
from pathlib import Path
from typing import Any

from sanic import Sanic

import cluster_serving
from cluster_serving.frontend.app import create_app
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.routes.docs import document

REFUSING = ("v1_label", "v2_not_served")
"""Routes that only say why there is nothing; the document says so in words."""


def routes() -> set[tuple[str, str]]:
    app = create_app(FrontendConfig(), Timers(1))
    Sanic.unregister_app(app)  # others of this process may make one too
    return {
        (_path(route.uri), method.lower())
        for route in app.router.routes
        if not route.name.partition(".")[2].startswith(REFUSING)
        for method in route.methods
    }


def operations() -> dict[tuple[str, str], Any]:
    return {
        (path, method): operation for path, item in document()["paths"].items() for method, operation in item.items()
    }


def _path(uri: str) -> str:
    """A path with nothing but `{}` in the place of arguments, and without the verb of TensorFlow Serving."""
    return re.sub(r"<[^>]*>|\{[^}]*\}", "{}", re.sub(r"\}:[a-z]+$", "}", uri)) or "/"


def test_it_has_every_route_and_no_other() -> None:
    any_method = {path for (path, _), operation in operations().items() if operation.get("x-any-method")}

    assert {(_path(path), method) for path, method in operations()} == {
        (path, method) for path, method in routes() if method != "head" and (path not in any_method or method == "get")
    }


def test_every_operation_has_an_example_and_its_arguments() -> None:
    for (path, method), operation in operations().items():
        assert "curl http://localhost:10020/" in operation["description"], (path, method)
        for argument in re.findall(r"\{(\w+)\}", path):
            assert argument in str(operation["parameters"]).lower(), (path, argument)


def test_operations_have_a_name_of_their_own() -> None:
    names = [operation["operationId"] for operation in operations().values()]

    assert len(names) == len({*names})


def test_the_errors_of_the_docs_are_those_of_the_document() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "errors.md").read_text()

    told = set(re.findall(r"^\| ([45]\d\d) \|", page, re.MULTILINE))

    assert told == {
        status
        for operation in operations().values()
        for status in operation["responses"]
        if status.startswith(("4", "5"))
    }
    assert "501" not in str(document()["tags"])


def test_it_has_the_version() -> None:
    assert document()["info"]["version"] == cluster_serving.__version__
