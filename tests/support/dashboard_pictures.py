"""Pictures of the dashboard: `cd tests && ../.venv/bin/python -m support.dashboard_pictures FOLDER`, with Chromium.

Serves a small model to callers that come and go for some minutes, replaces a worker, leaves dead letters, and takes a picture of
the page in both themes, 1280 and 390 pixels wide. `docs/how-to/dashboard.png` is the first of them.
"""

import random
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.client import InputQueue, RecordFailed
from support.browser import Page, browser
from support.private_redis import private_redis
from support.running_frontend import running_frontend
from support.running_node import running_node

MINUTES = 6.0
JOB = "flowers"
RAISES, KILLS = -1.0, -2.0
MODEL = f"""
import os, signal, time
import numpy as np

class Model:
    inputs = [("x", "float32", (None, 4))]
    outputs = [("scores", "float32", (None, 5))]

    def predict(self, batch):
        x = batch["x"]
        if (x[:, 0] == {RAISES}).any():
            raise ValueError("a flower without leaves")
        if (x[:, 0] == {KILLS}).any():
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.004 * len(x))
        powers = np.exp(x @ np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32))
        return {{"scores": powers / powers.sum(axis=1, keepdims=True)}}
"""


def call(url: str, ends_s: float, seed: int) -> None:
    """Send records in bursts, more and more of them, until a time of the monotonic clock."""
    chance = random.Random(seed)
    begun_s = time.monotonic()
    with InputQueue(url=url, name=JOB) as queue:
        while (now_s := time.monotonic()) < ends_s:
            part = (now_s - begun_s) / (ends_s - begun_s)
            rows = np.random.default_rng(seed).random((round(5 + 160 * part * chance.random()), 4), np.float32)
            list(queue.predict_many([{"x": row} for row in rows]))
            time.sleep(chance.random() / 4)


def harm(url: str, ends_s: float) -> None:
    """Send a record that raises, and one that kills its worker, now and then."""
    harms = [RAISES, KILLS]
    with InputQueue(url=url, name=JOB) as queue:
        while time.monotonic() < ends_s:
            time.sleep(MINUTES * 60 / 5)
            with suppress(RecordFailed):
                queue.predict({"x": np.array([harms[0], 0, 0, 0], np.float32)}, timeout=60)
            harms.reverse()


def take(page: Page, url: str, theme: str, width: int, target: Path) -> None:
    """Take a picture of the whole page, with an answer of the form."""
    page.prefer(theme)
    page.resize(width)
    page.open(f"{url}/dashboard", "document.querySelector('#slow') && document.querySelector('.letter')")
    page.run("document.querySelector('#try button.main').click()")
    page.until("document.querySelector('.took')")
    page.resize(width, int(page.run("document.documentElement.scrollHeight")))
    time.sleep(1)  # the charts take their new width
    target.write_bytes(page.picture())


def main(folder: Path) -> None:
    """Serve, call, and take the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp())
    (home / "redis").mkdir()
    path = home / "flowers.py"
    path.write_text(MODEL)
    model: dict[str, Any] = {"modelPath": str(path), "jobName": JOB, "modelParallelism": 2, "lease": 2}
    with ExitStack() as stack:
        server = stack.enter_context(private_redis(home / "redis"))
        stack.enter_context(running_node(home / "node", server, **model))
        frontend = stack.enter_context(running_frontend(home / "frontend", server, jobName=JOB))
        page = stack.enter_context(browser(home))
        ends_s = time.monotonic() + 60 * MINUTES
        threads = [threading.Thread(target=call, args=(server.url, ends_s + 30, seed)) for seed in range(3)]
        threads.append(threading.Thread(target=harm, args=(server.url, ends_s)))
        for thread in threads:
            thread.start()
        time.sleep(60 * MINUTES)
        for theme in ("light", "dark"):
            for width in (1280, 390):
                take(page, frontend.url, theme, width, folder / f"dashboard-{theme}-{width}.png")
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
