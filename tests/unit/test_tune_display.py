"""Display that a person sees while `tune` measures."""

import os
import pty
import sys
from contextlib import suppress

import pytest

from cluster_serving.client.servers.process.signals import Signals
from cluster_serving.node.commands.tune_display import display
from cluster_serving.node.config.choice import Shape
from cluster_serving.node.config.objective import Measured
from cluster_serving.node.tuning.candidates import Candidate
from cluster_serving.node.tuning.search import Tried


def test_terminal_shows_what_is_measured_and_not_what_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    screen, line = pty.openpty()
    before = sys.stdout, sys.stderr
    shape = Shape(16, 16)
    with os.fdopen(line, "w") as terminal, display(terminal, Signals()) as watch:
        assert (sys.stdout, sys.stderr) == before
        watch.begin([shape])
        watch.opening(shape)
        watch.tried(Tried(Candidate(shape, 64), [Measured(119_152, 1, 2)]))

    assert b"16 workers x 16 threads, batch 64: 119,152 records/s" in _all_of(screen)
    os.close(screen)


def _all_of(screen: int) -> bytes:
    """Return all bytes that have been written to a terminal that is closed."""
    written = b""
    with suppress(OSError):  # there is no more
        while part := os.read(screen, 1 << 16):
            written += part
    return written
