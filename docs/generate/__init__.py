"""Reference pages that are made from the code. `make docs` writes them, and a test compares them with the files."""

import json

import msgspec
from docs.generate.client import client_page
from docs.generate.commands import commands_page
from docs.generate.http import http_page
from docs.generate.metrics import metrics_page
from docs.generate.settings import settings_page

from cluster_serving.node.load.result import Result


def pages() -> dict[str, str]:
    """Return the text of each page by its path in this folder."""
    return {
        "reference/settings.md": settings_page(),
        "reference/commands.md": commands_page(),
        "reference/client.md": client_page(),
        "reference/http.md": http_page(),
        "reference/metrics.md": metrics_page(),
        "reference/bench.schema.json": json.dumps(msgspec.json.schema(Result), indent=2) + "\n",
    }
