"""HTTP: every route of the frontend, from its OpenAPI document."""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import yaml

_METHODS = ("get", "post", "put", "delete")


def http_page() -> str:
    """Return the page."""
    text = files("cluster_serving.frontend.routes").joinpath("openapi.yaml").read_text(encoding="utf-8")
    document: Mapping[str, Any] = yaml.safe_load(text)
    lines = [
        "# HTTP",
        "",
        "Every route of a frontend. A frontend shows the same, with forms to try it, at `/docs`; `/openapi.json` is the document",
        "for programs. [How to call a model over HTTP](../how-to/http.md) is the way in.",
        "",
        document["info"]["description"].strip(),
        "",
    ]
    for tag in document["tags"]:
        lines += [f"## {tag['name']}", "", tag["description"].strip(), ""]
        for path, operations in document["paths"].items():
            for method in _METHODS:
                operation = operations.get(method)
                if operation is not None and tag["name"] in operation["tags"]:
                    lines += _operation(document, path, method, operation)
    return "\n".join(lines).rstrip("\n") + "\n"


def _operation(document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`"
    yield ""
    yield f"{operation['summary']}."
    yield ""
    if operation.get("description"):
        yield operation["description"].strip()
        yield ""
    parameters = [_resolved(document, each) for each in operation.get("parameters", ())]
    told = [each for each in parameters if each.get("description")]
    if told:
        yield "| parameter | in | |"
        yield "|---|---|---|"
        for each in told:
            yield f"| `{each['name']}` | {each['in']} | {_cell(each['description'])} |"
        yield ""
    yield "| status | |"
    yield "|---|---|"
    for status, response in sorted(operation["responses"].items()):
        yield f"| {status} | {_cell(_resolved(document, response)['description'])} |"
    yield ""


def _resolved(document: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in value:
        return value
    found: Any = document
    for part in value["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return _resolved(document, found)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
