"""Fixtures for the tests of whole processes."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def children_measured(request: pytest.FixtureRequest) -> Iterator[None]:
    """Measure the coverage of the processes that tests start only in modules marked `measured`; it costs half their CPU time."""
    measuring = os.environ.get("COVERAGE_PROCESS_CONFIG")
    if measuring is not None and request.node.get_closest_marker("measured") is None:
        del os.environ["COVERAGE_PROCESS_CONFIG"]
    yield
    if measuring is not None:
        os.environ["COVERAGE_PROCESS_CONFIG"] = measuring
