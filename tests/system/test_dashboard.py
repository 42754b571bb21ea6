"""The dashboard in a real browser, before a real node and a frontend of two processes."""

import base64
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from cluster_serving import node as node_package
from cluster_serving.client import InputQueue, OutputQueue, keys
from support.browser import Page, browser
from support.dead_letters import Letters
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.programs import program
from support.running_frontend import RunningFrontend, running_frontend
from support.running_node import RunningNode, running_node
from support.wait import wait_until

JOB = "digits"
MODEL = Path(node_package.__file__).with_name("quickstart") / "model"
KEY = "the-key-of-the-test"
ROW = np.full((1, 8, 8), 0.5, np.float32)
AXE = "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations)"


@pytest.fixture(scope="module")
def node(server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with running_node(tmp_path_factory.mktemp("node"), server, modelPath=str(MODEL), jobName=JOB) as node:
        yield node


@pytest.fixture(scope="module")
def frontend(
    server: PrivateRedis, node: RunningNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningFrontend]:
    with running_frontend(tmp_path_factory.mktemp("frontend"), server, jobName=JOB, workers=2) as frontend:
        yield frontend


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(tab: Page, frontend: RunningFrontend) -> Iterator[Page]:
    """The page with its figures. At the end no script has failed, and nothing was asked of others."""
    tab.resize(1280)
    tab.leave()
    tab.open(f"{frontend.url}/dashboard", "document.querySelector('#throughput')")
    yield tab
    assert tab.troubles == []
    assert [url for url in tab.loaded if not url.startswith((f"{frontend.url}/", "data:", "blob:"))] == []


@pytest.fixture(scope="module")
def axe() -> str:
    spec = find_spec("axe_core_python")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name("axe.min.js").read_text(encoding="utf-8")


def ask(frontend: RunningFrontend, path: str, **headers: str) -> Any:
    request = urllib.request.Request(f"{frontend.url}{path}", headers=headers)  # noqa: S310 - our own http URL
    return urllib.request.urlopen(request, timeout=30)  # noqa: S310


def metric(frontend: RunningFrontend, name: str) -> float:
    """The sum of a metric's samples of the job: a test may serve another one."""
    with ask(frontend, "/metrics", Accept="text/plain") as response:
        text = response.read().decode()
    return sum(
        float(value)
        for value in re.findall(rf'^cluster_serving_{name}{{.*job_name="{JOB}".*}} (\S+)$', text, re.MULTILINE)
    )


def shown(page: Page, tile: str, part: str = "b") -> float:
    """The first number in a part of a tile."""
    found = re.search(r"[\d,.]+", page.text(f"#{tile} {part}"))
    return float(found[0].replace(",", "")) if found else 0.0


def test_numbers_are_those_of_the_metrics_under_load(
    page: Page, frontend: RunningFrontend, server: PrivateRedis
) -> None:
    before = metric(frontend, "records_answered_total")

    def agrees() -> bool:
        answered, failed, backlog, dead = (
            metric(frontend, name)
            for name in ("records_answered_total", "records_failed_total", "backlog", "dead_letters")
        )
        tiles = [shown(page, tile) for tile in ("total", "backlog", "dead")]
        return answered > before and tiles == [answered + failed, backlog, dead]

    with InputQueue(url=server.url, name=JOB) as queue:

        def has_throughput() -> bool:
            list(queue.predict_many([{"image": ROW}] * 50))
            return shown(page, "throughput") > 0

        wait_until(has_throughput, "the page shows the load")
    wait_until(agrees, "the page shows what the metrics tell")

    assert page.text("#latency b") not in ("", "\N{EN DASH}")


def test_the_sentence_is_that_of_the_limit(page: Page, frontend: RunningFrontend) -> None:
    def agrees() -> bool:
        with ask(frontend, "/dashboard/data") as response:
            limit = json.load(response)["jobs"][0]["limit"]
        sentence, code = page.text("#limit span"), page.text("#limit > code")
        return (sentence, code) == (limit["sentence"].replace("`", ""), limit["code"])

    wait_until(agrees, "the page has the sentence")
    assert page.text("#nodes tbody th")


def test_processes_and_stages_are_those_of_the_heartbeat(page: Page, node: RunningNode, server: PrivateRedis) -> None:
    with InputQueue(url=server.url, name=JOB) as queue:

        def shows_stages() -> bool:
            list(queue.predict_many([{"image": ROW}] * 50))
            label = str(page.run("document.querySelector('.wide [role=img]')?.ariaLabel"))
            return re.search(r"model [^\u2013,]+s,", label) is not None

        wait_until(shows_stages, "the page shows the stages of the last 10 s")
    shown = page.run("[...document.querySelectorAll('.process b')].map((each) => each.textContent)")
    assert sorted(shown) == sorted(process["name"] for process in node.heartbeat()["load"]["processes"])
    cores = page.run("[...document.querySelectorAll('.core')].map((each) => each.ariaLabel)")
    assert any("used by" in core and "worker-0" in core for core in cores), cores


def test_a_late_page_has_the_points_before(page: Page, frontend: RunningFrontend) -> None:
    def kept() -> list[Any]:
        with ask(frontend, f"/dashboard/data?model={JOB}") as response:
            return list(json.load(response)["history"])

    wait_until(lambda: len(kept()) > 1, "two points are kept")
    page.open(f"{frontend.url}/dashboard", "document.querySelectorAll('canvas').length === 5")

    label = page.run("document.querySelector('.chart [role=img]').ariaLabel")
    assert re.fullmatch(r"Throughput, the last hour\. Now: records/s [\d.,]+, errors/s [\d.,]+\.", label)


def test_marks_are_restarts_models_nodes_and_decisions_of_the_last_hour(page: Page) -> None:
    hour_ms = 3_600_000
    points = [
        {"at_ms": 0, "restarts": 9, "model": "old", "nodes": 2},
        {"at_ms": 60_000, "restarts": 0, "model": "a", "nodes": 1},
        {"at_ms": 70_000, "restarts": 2, "model": "a", "nodes": 1},
        {"at_ms": hour_ms + 1, "restarts": 5, "model": "b", "nodes": 3},
    ]

    decisions = [{"at_ms": 80_000, "words": "3 nodes from 1: why"}]

    found = page.run(
        "import('/dashboard/static/history.js').then(({extended, marksOf}) => "
        f"marksOf(extended({json.dumps(points[:2])}, {json.dumps(points[2:])}), {json.dumps(decisions)}))"
    )

    assert [(mark["atMs"], mark["text"]) for mark in found] == [
        (70_000, "2 processes restarted"),
        (80_000, "autoscaler: 3 nodes from 1: why"),
        (hour_ms + 1, "model changed to b"),
        (hour_ms + 1, "3 nodes ready, 1 node before"),
    ]


def test_times_are_written_in_the_unit_that_fits_and_none_is_ahead_of_the_clock(page: Page) -> None:
    found = page.run(
        "import('/dashboard/static/format.js').then(({ago, duration}) => "
        "[-0.8, 0, 0.05, 90].map(ago).concat([0.00002, 0.9996, 5400, 0.00009996, 0.00996, 99.6, 172799].map(duration)))"
    )

    assert found[:7] == ["now", "now", "50 ms ago", "90 s ago", "20 µs", "1.0 s", "90 min"]
    assert found[7:] == ["0.1 ms", "10 ms", "1.7 min", "2 d"]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_person_who_needs_help_finds_no_serious_obstacle(page: Page, axe: str, theme: str, width: int) -> None:
    page.prefer(theme)
    page.resize(width)
    page.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    page.run(f"{axe}; 0")

    found = page.run(AXE)

    serious = [problem for problem in found if problem["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in serious] == []
    assert page.run("document.documentElement.scrollWidth") <= width


def test_every_control_is_reached_by_keyboard(page: Page) -> None:
    page.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    page.run("document.activeElement.blur()")
    reached: list[str] = []
    for _ in range(
        page.run("document.querySelectorAll('a, button, input, select, textarea, summary, [tabindex]').length")
    ):
        page.press("Tab")
        reached.append(page.run("document.activeElement.outerHTML.slice(0, 90)"))

    wanted = page.run(
        "[...document.querySelectorAll('a, button, input, select, textarea, summary, [tabindex=\"0\"]')]"
        ".filter((each) => !each.disabled).map((each) => each.outerHTML.slice(0, 90))"
    )
    assert wanted[0].startswith('<a class="skip"')
    assert set(wanted) <= set(reached)


@pytest.fixture
def dead_record(server: PrivateRedis, node: RunningNode) -> Iterator[str]:
    """The id of a dead letter whose record the model can take."""
    letters = Letters(server, JOB)
    with InputQueue(url=server.url, name="unserved") as queue:
        queue.enqueue("again", image=ROW)
    (fields,) = letters.stream("unserved")
    letter = letters.put(fields, message="it <b>died</b>")
    yield letter
    letters.redis.delete("unserved", keys.dead_key(JOB))


def test_a_dead_letter_is_read_and_replayed(page: Page, server: PrivateRedis, dead_record: str) -> None:
    page.until("document.querySelector('#dead b').textContent === '1' && document.querySelector('.letter')")
    page.run("document.querySelector('.letter summary').focus()")
    page.press("Enter")

    assert page.run("document.querySelector('.letter').open")
    shown = page.text(".letter")
    for fact in ("WorkerDied", "it <b>died</b>", "Traceback: here", "node-1", "again", "tensor:image"):
        assert fact in shown

    page.press("Tab", "Tab", "Enter")
    page.until("document.querySelector('#letters .said').textContent === '1 record put back into the queue.'")
    page.until("!document.querySelector('.letter')")
    with OutputQueue(url=server.url, name=JOB) as output:
        wait_until(lambda: str(output.query("again")) != "[]", "the answer of the record")
    page.until("document.querySelector('#dead b').textContent === '0'")


def test_a_dead_letter_is_deleted_at_the_second_press(page: Page, server: PrivateRedis, dead_record: str) -> None:
    page.until("document.querySelector('.letter')")
    button = "document.querySelectorAll('.letter button')[1]"
    page.run(f"document.querySelector('.letter').open = true; {button}.focus(); {button}.click()")
    page.until(f"{button}.textContent.trim() === 'Delete for ever'")

    page.run(f"{button}.click()")

    page.until("document.querySelector('#letters .said').textContent === '1 dead letter deleted.'")
    with server.client() as client:
        assert client.xlen(keys.dead_key(JOB)) == 0


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        ({"model": JOB, "ids": ["1-1"]}, {}, 403, "X-Cluster-Serving"),
        ({"model": JOB, "ids": ["all"]}, {"X-Cluster-Serving": "test"}, 400, "not 'all'"),
        ({"model": JOB, "ids": ["0-0"]}, {"X-Cluster-Serving": "test"}, 400, "not '0-0'"),
        ({"model": JOB, "ids": ["1-18446744073709551616"]}, {"X-Cluster-Serving": "test"}, 400, "not '1-1844"),
        ({"model": JOB, "ids": []}, {"X-Cluster-Serving": "test"}, 400, "the body is not"),
        ({"model": "unknown", "ids": ["1-1"]}, {"X-Cluster-Serving": "test"}, 404, "unknown"),
    ],
)
def test_dead_letters_are_changed_by_the_page_alone(
    frontend: RunningFrontend, body: dict[str, Any], headers: dict[str, str], status: int, words: str
) -> None:
    request = urllib.request.Request(  # noqa: S310 - our own http URL
        f"{frontend.url}/dashboard/dead-letters/replay", json.dumps(body).encode(), headers
    )

    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)  # noqa: S310

    assert refused.value.code == status
    assert words in refused.value.read().decode()


def bars(page: Page) -> dict[int, float]:
    """The scores that the answer shows, by class."""
    rows = page.run(
        "[...document.querySelectorAll('.bars tbody tr')].map(({cells}) => [...cells].map((each) => each.textContent))"
    )
    return {int(name): float(score) for name, score in rows}


def rounded(scores: Any) -> dict[int, float]:
    return {place: float(f"{score:.4g}") for place, score in enumerate(scores)}


def pasted(page: Page, folder: Path) -> list[Any]:
    """The answers of the two calls that the page shows, run as a person would."""
    shell, program = page.run("[...document.querySelectorAll('.calls pre')].map((each) => each.textContent)")
    commands = (["sh", "-c", shell], [sys.executable, "-c", program])
    done = [subprocess.run(each, cwd=folder, capture_output=True, timeout=120, check=True) for each in commands]
    return [json.loads(each.stdout.replace(b"'", b'"'))["predictions"][0] for each in done]


def test_a_tensor_is_tried(page: Page, server: PrivateRedis, tmp_path: Path) -> None:
    program("curl")
    row = np.zeros((1, 8, 8), np.float32)
    row[0, 2:6, 3] = 9.5
    page.run("document.querySelector('#try textarea').select()")
    page.type(json.dumps(row.tolist()))
    page.run("document.querySelector('#try button.main').focus()")
    page.press("Enter")
    page.until("document.querySelector('.took')")

    with InputQueue(url=server.url, name=JOB) as queue:
        wanted = queue.predict({"image": row}, timeout=60)
    assert bars(page) == rounded(wanted)
    assert "in the model" in page.text(".took")
    for answer in pasted(page, tmp_path):
        np.testing.assert_allclose(answer, wanted, rtol=1e-6)


def test_an_image_is_tried(page: Page, server: PrivateRedis, tmp_path: Path) -> None:
    program("curl")
    image = tmp_path / "it's a digit.png"
    pixels = np.zeros((8, 8), np.uint8)
    pixels[1:7, 4] = 16
    image.write_bytes(cv2.imencode(".png", pixels)[1].tobytes())
    page.run(
        "((text) => { const data = new DataTransfer();"
        "data.items.add(new File([Uint8Array.from(atob(text), (each) => each.charCodeAt(0))], "
        f"{json.dumps(image.name)}, {{type: 'image/png'}}));"
        "document.querySelector('.input').dispatchEvent("
        "new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})) })"
        f"({json.dumps(base64.b64encode(image.read_bytes()).decode())})"
    )
    page.until("document.querySelector('.file img')?.naturalWidth === 8")
    page.run("document.querySelector('#try button.main').click()")
    page.until("document.querySelector('.took')")

    with InputQueue(url=server.url, name=JOB) as queue:
        wanted = queue.predict({"image": str(image)}, timeout=60)
    assert bars(page) == rounded(wanted)
    for answer in pasted(page, tmp_path):
        np.testing.assert_allclose(answer, wanted, rtol=1e-6)


@pytest.fixture(scope="module")
def words(server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A job with an input of text and one of numbers, whose answers are the three highest classes with their names."""
    home = tmp_path_factory.mktemp("words")
    labels = home / "labels.txt"
    labels.write_text("cat\ndog\nbird\nfish\ncow\n")
    model = {"modelPath": str(MODELS / "weighed_words.py"), "postProcessing": "topN(3)", "labels": str(labels)}
    with running_node(home, server, jobName="words", **model):
        yield "words"


@pytest.fixture
def words_page(page: Page, frontend: RunningFrontend, words: str) -> Page:
    """The page of this job, with the cursor in the first input."""
    page.open(f"{frontend.url}/dashboard?model={words}", "document.querySelector('#input-weights')")
    page.run("document.querySelector('#input-text').select()")
    return page


def test_several_inputs_are_tried_by_keyboard(
    words_page: Page, server: PrivateRedis, words: str, tmp_path: Path
) -> None:
    program("curl")
    text, weights = 'it\'s "true"\n', [1.0, -2.0, 0.5, 3.0, 0.0]
    words_page.type(text)
    words_page.press("Tab")
    words_page.run("document.activeElement.select()")
    words_page.type(json.dumps(weights))
    words_page.press("Enter", with_control=True)
    words_page.until("document.querySelector('.took')")

    with InputQueue(url=server.url, name=words) as queue:
        wanted = queue.predict({"text": {"string": text}, "weights": np.array(weights, np.float32)}, timeout=60)
    shown = words_page.run("[...document.querySelectorAll('.bars tbody tr')].map((row) => row.innerText.split(/\\s+/))")
    assert [(name, float(score)) for name, score in shown] == [(name, score) for _, score, name in wanted]
    for answer in pasted(words_page, tmp_path):
        assert answer == wanted


def test_the_wrong_one_of_several_inputs_is_named(words_page: Page) -> None:
    words_page.press("Tab")
    words_page.run("document.activeElement.select()")
    words_page.type("[1, 2]")
    words_page.press("Tab", "Enter")

    words_page.until("document.querySelector('.answer .trouble')?.textContent.includes(\"input 'weights'\")")
    words_page.troubles[:] = [each for each in words_page.troubles if "status of 400" not in each]


def test_a_wrong_value_is_named(page: Page) -> None:
    page.run("document.querySelector('#try textarea').select()")
    page.type("[1, 2")
    page.run("document.querySelector('#try button.main').click()")
    page.until("document.querySelector('.answer .trouble')?.textContent.startsWith('image is not JSON')")
    page.run("document.querySelector('#try textarea').select()")
    page.type(" ")
    page.run("document.querySelector('#try button.main').click()")
    page.until(
        "document.querySelector('.answer .trouble')?.textContent === 'image is empty: paste JSON, or choose an image'"
    )
    assert "base64 -w0 'image.jpg'" in page.run("document.querySelector('#try .snippet pre').textContent")
    page.run("document.querySelector('#try textarea').select()")
    page.type("[1, 2]")
    page.run("document.querySelector('#try button.main').click()")

    page.until("document.querySelector('.answer .trouble')?.textContent.includes(\"input 'image'\")")
    page.until("!document.querySelector('#try button.main').disabled")
    page.troubles[:] = [each for each in page.troubles if "status of 400" not in each]


def test_a_browser_that_has_the_files_gets_304(frontend: RunningFrontend) -> None:
    with ask(frontend, "/dashboard/static/app.js", **{"Accept-Encoding": "gzip"}) as response:
        tag = response.headers["ETag"]
        assert response.headers["Content-Encoding"] == "gzip"
        assert response.headers["Cache-Control"] == "no-cache"

    with pytest.raises(urllib.error.HTTPError, match="304"):
        ask(frontend, "/dashboard/static/app.js", **{"If-None-Match": tag})
    with pytest.raises(urllib.error.HTTPError, match="404"):
        ask(frontend, "/dashboard/static/history.py")
    with pytest.raises(urllib.error.HTTPError, match="400"):
        ask(frontend, "/dashboard/data?since=yesterday")


def test_the_page_asks_for_the_key_and_shows_nothing_without(
    tab: Page, server: PrivateRedis, node: RunningNode, tmp_path: Path
) -> None:
    key_file = tmp_path / "keys"
    key_file.write_text(f"{KEY}\n")
    with running_frontend(tmp_path, server, jobName=JOB, apiKeysFile=str(key_file)) as guarded:
        for path in ("data", "dead-letters"):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                ask(guarded, f"/dashboard/{path}")
        tab.open(f"{guarded.url}/dashboard", "document.activeElement.id === 'key'")
        assert tab.text("#throughput") == ""
        tab.type("a wrong key")
        tab.press("Enter")
        tab.until("document.querySelector('#key-note').textContent.includes('does not know')")
        tab.run("document.querySelector('#key').value = ''")
        tab.type(KEY)
        tab.press("Enter")

        tab.until("document.querySelector('#throughput')")
        assert KEY not in tab.run("location.href + document.cookie + JSON.stringify(localStorage)")
