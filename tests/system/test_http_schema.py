"""Requests that schemathesis makes of the OpenAPI document: none is a fault of the server, and answers are as it says."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.example_models import example_models
from support.running_frontend import RunningFrontend

SEED = 20
EXAMPLES = 12
"""For each operation and phase; more are found in a run by hand."""
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
CONFIG = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503, 504]
"""


@pytest.fixture(scope="module")
def frontend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFrontend]:
    with example_models(tmp_path_factory.mktemp("schema")) as frontend:
        yield frontend


def test_no_request_is_a_fault_of_the_server(frontend: RunningFrontend, tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    command = (
        f"{Path(sys.executable).with_name('schemathesis')} --config-file {config} run {frontend.url}/openapi.json "
        f"--checks {','.join(CHECKS)} --phases examples,coverage,fuzzing --max-examples {EXAMPLES} --seed {SEED} "
        "--continue-on-failure --suppress-health-check all --warnings off --no-color"
    )

    done = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in frontend.log
