"""Trials of the limit that is named: eight bottlenecks made for real, and the names of `status`, `doctor` and the page.

A trial is 13 s of load with the trouble, on a node that goes on between trials; figures are of the last 10 s. Then each voice is
asked for the code of the limit. Exits with 1 when a verdict is wrong.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import report
from bench.scenes import JOB, SCENES, Scene
from bench.stage import Stage, stage
from cluster_serving.node.load.machine import machine

_PORT, _HTTP_PORT = 26394, 26395
_LOAD_S = 13.0


def main() -> None:
    """Make trials, print how many verdicts were right, and write them where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts there")
    parser.add_argument("--trials", type=int, default=20, help="of each bottleneck")
    parser.add_argument("--only", nargs="+", choices=[scene.name for scene in SCENES], help="these bottlenecks")
    options = parser.parse_args()
    named: dict[str, dict[str, Counter[str]]] = {}
    with stage(_PORT) as place:
        for scene in SCENES:
            if options.only is None or scene.name in options.only:
                named[scene.name] = trials(place, scene, options.trials)
                print(scene.name, {voice: dict(codes) for voice, codes in named[scene.name].items()}, flush=True)
    show(named)
    if options.json is not None:
        options.json.write_text(json.dumps(named))
    right = {scene.name: scene.code for scene in SCENES}
    if any(set(codes) != {right[name]} for name, voices in named.items() for codes in voices.values()):
        sys.exit("not every limit is named rightly")


def trials(place: Stage, scene: Scene, count: int, seconds: float = _LOAD_S) -> dict[str, Counter[str]]:
    """Return how often each voice has named each limit."""
    named: dict[str, Counter[str]] = {voice: Counter() for voice in VOICES}
    with scene.node(place), place.frontend(JOB, _HTTP_PORT):
        for _ in range(count):
            with scene.trouble(place), scene.load(place.port):
                time.sleep(seconds)
                for voice, ask in VOICES.items():
                    named[voice][ask(place)] += 1
    return named


def show(named: Mapping[str, Mapping[str, Counter[str]]]) -> None:
    """Print how many verdicts of each voice were right, and the wrong ones."""
    table = Table("bottleneck", "limit", *VOICES, "named instead", caption=machine(), title_justify="left")
    for scene in SCENES:
        if scene.name in named:
            voices = named[scene.name]
            cells = [f"{codes[scene.code]} of {codes.total()}" for codes in voices.values()]
            wrong = sum(voices.values(), Counter[str]())
            del wrong[scene.code]
            table.add_row(scene.name, scene.code, *cells, ", ".join(wrong))
    Console().print(table)


def _status(place: Stage) -> str:
    """Return the limit that `status` names."""
    (found,) = _asked(place, "status", JOB, "--json")
    return str(found["limit"]["code"])


def _doctor(place: Stage) -> str:
    """Return the limit that `doctor` names."""
    findings = _asked(place, "doctor", JOB, "--json")["checks"]
    (found,) = (finding for finding in findings if finding["code"] == "CS-JOB-STARVES")
    return str(found["evidence"]["limit"])


def _page(_: Stage) -> str:
    """Return the limit that the page shows."""
    with urllib.request.urlopen(f"http://127.0.0.1:{_HTTP_PORT}/dashboard/data", timeout=10) as reply:
        (job,) = json.load(reply)["jobs"]
    return str(job["limit"]["code"])


VOICES: dict[str, Callable[[Stage], str]] = {"status": _status, "doctor": _doctor, "page": _page}


def _asked(place: Stage, *arguments: str) -> Any:
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(place.directory / "state")}
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", *arguments]
    told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False).stdout
    return json.loads(told)


if __name__ == "__main__":
    main()
