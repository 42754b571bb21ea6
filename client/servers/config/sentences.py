"""Faults found by pydantic, as one sentence that starts with the place.

Example: `config.yaml, line 3: batchSize is many, but must be ...`.
"""

from typing import Any

from pydantic_core import ErrorDetails

from cluster_serving.client.servers.config.sources import Found

_EXPECTED = {
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be one text",
    "greater_than_equal": "must be {ge:g} or more",
    "less_than_equal": "must be {le:g} or less",
    "greater_than": "must be more than {gt:g}",
    "less_than": "must be less than {lt:g}",
    "literal_error": "must be {expected}",
}


def sentence(detail: ErrorDetails, found: Found) -> str:
    """Return one sentence on one error of pydantic."""
    context: dict[str, Any] = detail.get("ctx", {})
    message = str(context["error"]) if "error" in context else detail["msg"]
    form = _EXPECTED.get(detail["type"])
    expected = message if form is None else form.format(**context)  # a message may have braces of the user's value
    setting = found.settings.get(str(detail["loc"][0])) if detail["loc"] else None
    if setting is None:
        return expected
    value = setting.value
    if setting.key in found.secrets:
        shown = "not shown"
    elif isinstance(value, str) and (not value or value != value.strip()):
        shown = repr(value)
    else:
        shown = str(value)
    return f"{setting.where}: {setting.key} is {shown}, but {expected}"
