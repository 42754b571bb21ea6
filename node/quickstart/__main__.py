"""Quick start: serve a trained model of handwritten digits, send images that the model has never seen, and show the answers.

Run by `make quickstart`, or `python -m cluster_serving.node.quickstart`. Everything is temporary: a Redis on a free port, a job
directory, a config file. A user would do the same by hand: `cluster-serving start`, the client, `cluster-serving shutdown`.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from cluster_serving.client import InputQueue
from cluster_serving.node.processing.image import encode_png

JOB = "quickstart"
_LEAST_ACCURACY = 0.95
_PASSES = 20
_SHOWN = 5
_SHADES = " ░▒▓█"


def main() -> int:
    """Serve, predict and print. Return the exit code: 0 when at least 95 % of the digits were recognised, else 1."""
    console = Console()
    here = Path(__file__).parent
    with np.load(here / "held_out.npz") as held_out:
        images, labels = held_out["images"], held_out["labels"]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    with _served(here / "model", port), InputQueue(port=port, name=JOB) as queue:
        requests = [{"image": encode_png(image)} for image in images]
        console.print(
            f"\nSending {len(images)} images that the model has never seen: one at a time, then all of them {_PASSES} times."
        )
        answers: list[NDArray[np.float32]] = []
        latencies_s: list[float] = []
        for request in track(requests, "one at a time", console=console):
            begun_s = time.perf_counter()
            answers.append(queue.predict(request))
            latencies_s.append(time.perf_counter() - begun_s)
        many = requests * _PASSES
        begun_s = time.perf_counter()
        for _ in track(queue.predict_many(many), "at once       ", total=len(many), console=console):
            pass
        rate = len(many) / (time.perf_counter() - begun_s)
        probabilities = np.stack(answers)
        accuracy = float((probabilities.argmax(axis=1) == labels).mean())
        console.print(_samples(images, labels, probabilities))
        p50, p99 = np.quantile(latencies_s, (0.5, 0.99)) * 1000
        summary = Table(title=f"{len(labels)} held-out images", title_justify="left", show_header=False)
        summary.add_row("accuracy", f"{accuracy:.1%}")
        summary.add_row("throughput, many at once", f"{rate:,.0f} images/s")
        summary.add_row("latency, one at a time", f"p50 {p50:.2f} ms, p99 {p99:.2f} ms")
        console.print(summary)
    return 0 if accuracy >= _LEAST_ACCURACY else 1


def _samples(images: NDArray[np.uint8], labels: NDArray[np.int64], probabilities: NDArray[np.float32]) -> Table:
    table = Table(title="A few images", title_justify="left")
    for heading in ("image", "is", "class", "probability"):
        table.add_column(heading, vertical="middle")
    for index in range(_SHOWN):
        row = probabilities[index]
        # Four lines of eight shades. A shade stands for two pixels, the upper and the lower.
        pairs = images[index].reshape(4, 2, 8).mean(axis=1) * (len(_SHADES) - 1) / 255
        drawn = "\n".join("".join(_SHADES[round(shade)] for shade in line) for line in pairs.tolist())
        table.add_row(drawn, str(labels[index]), str(row.argmax()), f"{row.max():.3f}")
    return table


@contextmanager
def _served(model: Path, port: int) -> Generator[None]:
    """Serve the model with a separate node for a block."""
    with tempfile.TemporaryDirectory(prefix="cluster-serving-quickstart-") as name:
        config = Path(name) / "config.yaml"
        settings: dict[str, Any] = {"modelPath": str(model), "jobName": JOB, "redisUrl": f"localhost:{port}"}
        config.write_text(yaml.safe_dump(settings))
        home = os.environ | {"CLUSTER_SERVING_HOME": str(Path(name) / "state")}
        command = [sys.executable, "-P", "-m", "cluster_serving.node.cli"]
        try:
            subprocess.run([*command, "start", "-c", str(config)], env=home, check=True)
            yield
        finally:
            subprocess.run([*command, "shutdown", JOB], env=home, check=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the command has printed the reason
    except KeyboardInterrupt:
        sys.exit(130)
