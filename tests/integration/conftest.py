"""Marks for the tests of one part and Redis."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let `make test-redis` take what asks for a server."""
    for item in items:
        if HERE in item.path.parents and not {"models", "squeezenet"} & set(item.path.stem.split("_")):
            item.add_marker(pytest.mark.redis)
