"""The OpenAPI document and its page, from a real frontend: the examples in it work, and the page needs no internet."""

import json
import re
import shlex
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cluster_serving
from support.browser import FLAGS
from support.example_models import example_models
from support.programs import program
from support.running_frontend import RunningFrontend
from support.wait import wait_until

EXAMPLE = re.compile(r"^curl .*?(?<!\\)$", re.MULTILINE | re.DOTALL)
SHOWN = "http://localhost:10020"


@pytest.fixture(scope="module")
def frontend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFrontend]:
    with example_models(tmp_path_factory.mktemp("docs")) as frontend:
        yield frontend


def get(frontend: RunningFrontend, path: str) -> Any:
    return urllib.request.urlopen(f"{frontend.url}{path}", timeout=30)  # noqa: S310 - our own http URL


@pytest.fixture(scope="module")
def document(frontend: RunningFrontend) -> dict[str, Any]:
    with get(frontend, "/openapi.json") as response:
        return dict(json.load(response))


def test_the_document_has_the_version_and_the_address(frontend: RunningFrontend, document: dict[str, Any]) -> None:
    assert document["info"]["version"] == cluster_serving.__version__
    assert document["servers"] == [{"url": frontend.url}]


@pytest.mark.parametrize(
    ("told", "scheme"),
    [("https", "https"), ("HTTPS, http", "https"), ("http", "http"), ("", "http"), ("x://y", "http")],
)
def test_the_document_has_the_address_of_a_proxy(frontend: RunningFrontend, told: str, scheme: str) -> None:
    headers = {"Host": "api.example", "X-Forwarded-Proto": told}
    request = urllib.request.Request(f"{frontend.url}/openapi.json", headers=headers)  # noqa: S310 - our own http URL

    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
        assert json.load(response)["servers"] == [{"url": f"{scheme}://api.example"}]


def test_every_example_works(frontend: RunningFrontend, document: dict[str, Any]) -> None:
    texts = [operation["description"] for item in document["paths"].values() for operation in item.values()]
    examples = [example for text in texts for example in EXAMPLE.findall(text)]
    assert len(examples) >= len(document["paths"])
    curl = program("curl")

    for example in examples:
        if "squeezenet" in example or "/results" in example:  # a model of its own; an id of its own
            continue
        _, *words = shlex.split(example.replace("\\\n", " ").replace(SHOWN, frontend.url))
        done = subprocess.run([curl, *words, "-sS", "--fail-with-body"], capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, (example, done.stdout, done.stderr)


@pytest.mark.parametrize("path", ["/docs", "/docs/"])
def test_the_page_runs_no_script_of_others(frontend: RunningFrontend, path: str) -> None:
    with get(frontend, path) as response:
        policy = response.headers["Content-Security-Policy"]
        page = response.read().decode()

    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?://", page)


def test_the_page_shows_every_operation_and_loads_nothing_from_elsewhere(
    frontend: RunningFrontend, document: dict[str, Any], tmp_path: Path
) -> None:
    browser = program("chromium")
    log = tmp_path / "net.json"

    shown = subprocess.run(
        [
            browser,
            *FLAGS,
            "--virtual-time-budget=20000",
            f"--user-data-dir={tmp_path / 'user'}",
            f"--log-net-log={log}",
            "--dump-dom",
            f"{frontend.url}/docs",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout

    paths = {path.replace("\u200b", "") for path in re.findall(r'data-path="([^"]*)"', shown)}
    assert paths == set(document["paths"])
    loaded = _requests_of_page(log, frontend.url)
    assert f"{frontend.url}/openapi.json" in loaded
    assert all(url.startswith(frontend.url) for url in loaded), loaded


def _requests_of_page(log: Path, origin: str) -> set[str]:
    """Return the URLs that a page of this origin asked for; the browser's own calls home have no origin."""
    found = wait_until(lambda: _read(log), "the browser has written its log")
    start = found["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    asked = [event["params"] for event in found["events"] if event["type"] == start and "params" in event]
    return {params["url"] for params in asked if params.get("initiator") == origin}


def _read(log: Path) -> dict[str, Any]:
    """Return the log of the browser, which writes it piece by piece; empty: it is not complete."""
    try:
        return dict(json.loads(log.read_text()))
    except (FileNotFoundError, ValueError):
        return {}
