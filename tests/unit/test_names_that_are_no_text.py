"""Names of files that are no UTF-8, which an archive may bring: who tells of them goes on."""

import os
import subprocess
import sys

import msgspec

from cluster_serving.client.servers.process.progress_pipe import Event, Reporter

NAME = os.fsdecode(b"caf\xe9.onnx")
_LOG = """
import os, structlog
from cluster_serving.client.servers.process import log
log.configure("supervisor", "info")
structlog.get_logger("test").error("no change", reason=os.fsdecode(b"caf\\xe9.onnx"))
"""


def test_in_the_log() -> None:
    done = subprocess.run([sys.executable, "-c", _LOG], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert r"reason=caf\udce9.onnx" in done.stdout


def test_to_who_waits() -> None:
    reading, writing = os.pipe()

    Reporter(writing)("failed", NAME)

    assert msgspec.json.decode(os.read(reading, 1000), type=Event).text == r"caf\udce9.onnx"
    os.close(reading)


def test_who_waits_and_reads_nothing_stops_nobody() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    report = Reporter(writing)

    for _ in range(100):
        report("progress", "x" * 1000)
    report("ready", "it serves")

    assert report.was_ready
    assert os.read(reading, 1000).startswith(b'{"event":"progress"')
    os.close(reading)
