"""Files of the dashboard, points of its history, and its setting."""

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sanic import Sanic

from cluster_serving.client.wire.load import Load
from cluster_serving.frontend import dashboard
from cluster_serving.frontend.app import create_app
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.dashboard.files import HEADERS, PAGE, files
from cluster_serving.frontend.dashboard.point import point_of
from cluster_serving.frontend.metrics.timers import Timers
from support.heartbeats import described

FOLDER = Path(dashboard.__file__).parent
VENDORED = {
    "htm-preact.js": "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7",
    "uplot.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""Files as the npm packages htm 3.1.1 and uplot 1.6.32 have them."""


def test_libraries_are_those_of_their_packages() -> None:
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in (FOLDER / "vendor").iterdir()}

    del found["LICENSES"]
    assert found == VENDORED


@pytest.mark.parametrize("path", sorted((FOLDER / "static").iterdir()), ids=lambda path: path.name)
def test_own_files_load_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text()

    assert set(re.findall(r"https?://[^\"' ]+", text)) <= {"http://www.w3.org/2000/svg"}
    loaded = re.findall(r'(?:from |src=|href=)"(?:\./|dashboard/static/)([^"]+)"', text)
    assert [name for name in loaded if name not in files()] == []


def test_the_page_runs_only_its_own_scripts() -> None:
    page = files()[PAGE].content.decode()

    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert not re.search(r"<script(?![^>]* src=)| on\w+=| style=", page)


def test_a_point_is_the_sum_of_the_nodes() -> None:
    def node(name: str, state: str, **figures: Any) -> Any:
        load = Load(records_s=10, errors_s=1, p50_s=0.1, p99_s=0.2, rows=4, busy=(0.5,), stages={"model": 0.25})
        return described(
            node=name, state=state, load=load, workers_alive=2, figures=figures, model_hash="sha256:0123456789abcdef"
        )

    ready = node("a", "ready", answered=7, failed=1, restarts=2, backlog=3, oldest_ms=500, dead_letters=1)
    leaving = node("b", "draining", answered=5, failed="many", backlog=3, oldest_ms=500, dead_letters=1)
    point = point_of([ready, leaving])

    assert point is not None
    assert (point.records_s, point.errors_s, point.backlog, point.oldest_s) == (20, 2, 3, 0.5)
    assert (point.answered, point.failed, point.restarts, point.dead_letters) == (12, 1, 2, 1)
    assert point.stages["model"] == 0.25
    assert (point.nodes, point.workers, point.fill, point.busy, point.model) == (1, 4, 0.5, 0.5, "0123456789ab")


def test_nodes_of_the_release_before_make_no_point() -> None:
    assert point_of([described(load=None)]) is None


_PATHS = {f"dashboard{rest}" for rest in ("", "/data", "/static/<file:str>")} | {
    f"dashboard/dead-letters{rest}" for rest in ("", "/replay", "/delete")
}


@pytest.mark.parametrize("is_on", [True, False])
def test_the_dashboard_can_be_switched_off(is_on: bool) -> None:
    app = create_app(FrontendConfig(dashboard=is_on), Timers(1))
    Sanic.unregister_app(app)

    paths = {route.path for route in app.router.routes if route.path.startswith("dashboard")}
    assert paths == (_PATHS if is_on else set())
