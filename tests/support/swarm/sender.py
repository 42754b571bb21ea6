"""Runs in a container on the stack's network: a program that enqueues steadily, and takes every answer off the queue.

Told to end by SIGTERM, it sends no more, waits for the answers, and prints what became of the records, as one line of JSON.
"""

import argparse
import json
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from cluster_serving.client import ClusterServingError, InputQueue, OutputQueue

URL = "redis+sentinel://sentinel:26379,sentinel-2:26379,sentinel-3:26379/serving"
PAUSE_S = 0.02
PATIENCE_S = 60.0
over = threading.Event()
GAP_S = 5.0
answers_s: dict[str, float] = {}
"""Unix time at which the answer of each uri came."""
wrong: list[str] = []


def end(_signal: int, _frame: FrameType | None) -> None:
    """Send no more."""
    over.set()


def take(output: OutputQueue, all_there: threading.Event) -> None:
    """Note the answers as they come."""
    while not all_there.is_set():
        try:
            found = output.dequeue()
        except ClusterServingError:
            found = {}
        for uri, answer in found.items():
            answers_s.setdefault(uri, time.time())
            if not isinstance(answer, np.ndarray) or answer[0] != float(uri.removeprefix("r")):
                wrong.append(f"{uri}: {answer}")
        time.sleep(PAUSE_S)


def main() -> None:
    """Send until told to end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("durability", choices=("none", "majority"))
    parser.add_argument("--run", type=float, default=0.01, help="seconds of a batch with these records")
    parser.add_argument(
        "--wave", type=float, help="seconds of full speed, and then as many of a tenth of it; unset: full speed"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, end)
    password = Path("/password.txt").read_text().rstrip("\n")
    login: dict[str, Any] = {"url": URL, "password": password, "sentinel_password": password}
    accepted: list[str] = []
    unknown: dict[str, str] = {}
    all_there = threading.Event()
    own: dict[str, Any] = {"durability": "majority"} if options.durability == "majority" else {}
    begun_s = time.monotonic()
    with InputQueue(**login, **own, patience_s=PATIENCE_S) as queue, OutputQueue(**login) as output:
        taker = threading.Thread(target=take, args=(output, all_there))
        taker.start()
        number = 0
        while not over.is_set():
            number += 1
            uri = f"r{number}"
            try:
                queue.enqueue(uri, x=np.array([options.run, number], np.float32))
            except ClusterServingError as error:
                unknown[uri] = str(error)
            else:
                accepted.append(uri)
            is_slow = options.wave and (time.monotonic() - begun_s) // options.wave % 2
            time.sleep(10 * PAUSE_S if is_slow else PAUSE_S)
        until_s = time.monotonic() + PATIENCE_S
        while set(accepted) - answers_s.keys() and time.monotonic() < until_s:
            time.sleep(PAUSE_S)
        all_there.set()
        taker.join()
    came_s = sorted(answers_s.values())
    found = {
        "accepted": len(accepted),
        "unknown": unknown,
        "lost": sorted(set(accepted) - answers_s.keys()),
        "wrong": wrong,
        "longest_gap_s": round(max(after - before for before, after in pairwise(came_s)), 1),
        "gaps": [
            f"{time.strftime('%H:%M:%S', time.gmtime(before))} {after - before:.1f} s"
            for before, after in pairwise(came_s)
            if after - before > GAP_S
        ],
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
