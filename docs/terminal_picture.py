"""Terminal picture of the README: `cluster-serving serve` of the quick start's model, with some load.

python docs/terminal_picture.py [docs/static/serve.svg]
"""

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from itertools import repeat, takewhile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from cluster_serving.client import InputQueue
from cluster_serving.node import quickstart

_ROOT = Path(__file__).resolve().parents[1]
_MODEL = Path(quickstart.__file__).parent / "model" / "digits.onnx"
_COLUMNS, _LINES = 84, 60
_LOAD_S = 12.0
_OF_THIS_PLACE = "The Python program runs in this container"  # printed in a container alone
_THEME = TerminalTheme(
    (22, 27, 34),
    (230, 237, 243),
    [
        (72, 79, 88),
        (255, 123, 114),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (230, 237, 243),
    ],
)
# A font of the reader's own, so that the picture loads nothing.
_FONT = re.compile(r"@font-face \{[^}]*\}\s*")


def main(path: Path) -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / _MODEL.name).write_bytes(_MODEL.read_bytes())
        shown = _serve(Path(home))
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ cluster-serving serve digits.onnx", style="bold"))
    console.print(Text.from_ansi(shown))
    svg = console.export_svg(title="cluster-serving serve", theme=_THEME, unique_id="serve")
    path.write_text(_FONT.sub("", svg).replace("Fira Code", "ui-monospace"))


def _serve(home: Path) -> str:
    """Return what the terminal shows after some load."""
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
    environment = {**os.environ, "HOME": str(home), "TERM": "xterm-256color"}
    program = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "serve", _MODEL.name]
    serving = subprocess.Popen(program, cwd=home, stdin=inside, stdout=inside, stderr=inside, env=environment)
    os.close(inside)
    output = bytearray()
    reading = threading.Thread(target=_read, args=(terminal, output))
    reading.start()
    try:
        while b"/dashboard" not in output:
            if serving.poll() is not None:
                raise SystemExit(output.decode())
            time.sleep(0.1)
        _load()
        return _screen(output.decode()).replace(str(home), "~")
    finally:
        serving.send_signal(signal.SIGINT)
        serving.wait(60)
        reading.join()


def _load() -> None:
    """Send records for some seconds."""
    until_s = time.monotonic() + _LOAD_S
    record = {"image": np.zeros((1, 8, 8), np.float32)}
    with InputQueue() as queue:
        for _ in queue.predict_many(takewhile(lambda _: time.monotonic() < until_s, repeat(record)), window=64):
            pass


def _read(terminal: int, output: bytearray) -> None:
    while True:
        try:
            output += os.read(terminal, 1 << 16)
        except OSError:  # the program has ended
            return


def _screen(output: str) -> str:
    """Return the lines as they stand: a line that was written again shows its last state, a spinner that has ended nothing."""
    lines = (re.split(r"\r|\x1b\[2?K", line.rstrip("\r"))[-1] for line in output.replace("\r\n", "\n").split("\n"))
    return "\n".join(line for line in lines if " loading " not in line and not line.startswith(_OF_THIS_PLACE)).strip(
        "\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else _ROOT / "docs" / "static" / "serve.svg")
