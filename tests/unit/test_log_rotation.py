"""The log of a node in the background: rotated by size, with so many older logs, while others append to it."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from cluster_serving.node.lifecycle import log_rotation
from cluster_serving.node.lifecycle.log_rotation import older_log, rotate
from support.wait import wait_until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.log"


def logs(path: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(path.parent.iterdir())}


def test_the_oldest_log_goes(path: Path) -> None:
    for text in ("one", "two", "three", "four"):
        path.write_text(text)
        rotate(path, 2)

    assert logs(path) == {"node.log": "", "node.log.1": "four", "node.log.2": "three"}
    assert older_log(path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("older_files", "left"), [(1, ["node.log.1"]), (0, [])])
def test_a_smaller_number_counts_at_once(path: Path, older_files: int, left: list[str]) -> None:
    for number in range(4):
        path.write_text(f"{number}")
        rotate(path, 4)
    path.with_name("node.log.copy").write_text("mine")

    rotate(path, older_files)

    assert list(logs(path)) == ["node.log", *left, "node.log.copy"]


def test_a_log_that_cannot_be_copied_stays(path: Path) -> None:
    path.write_text("one")
    path.with_name(".node.log").mkdir()

    with pytest.raises(OSError, match="Is a directory"):
        rotate(path, 2)

    assert path.read_text() == "one"


def test_lines_are_whole_and_in_order_while_others_append(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine may stop a process in the middle of a line.
    monkeypatch.setattr(log_rotation, "_COPIES", 10_000_000)
    ended = threading.Event()

    def append() -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        number = 0
        while not ended.is_set():
            number += 1
            os.write(descriptor, b"%08d\n" % number)
        os.close(descriptor)

    writer = threading.Thread(target=append)
    writer.start()
    for _ in range(5):
        wait_until(lambda: path.exists() and path.stat().st_size > 100_000, "lines come")
        rotate(path, 5)
    ended.set()
    writer.join()

    files = (*(older_log(path, number) for number in range(5, 0, -1)), path)
    lines = "".join(file.read_text() for file in files).splitlines()
    assert all(len(line) == 8 for line in lines)
    assert lines == sorted(set(lines))
    assert len(lines) >= 5 * 100_000 // 9


_APPENDS = """
import os, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    os.write(log, b"1234567\\n1234567\\n12345\\n")  # crosses pages
"""


def test_a_line_that_another_process_is_writing_is_copied_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rotation, "_COPIES", 10_000_000)
    writer = subprocess.Popen([sys.executable, "-c", _APPENDS, str(path)])
    try:
        for _ in range(20):
            wait_until(lambda: path.exists() and path.stat().st_size > 20_000, "lines come")
            rotate(path, 1)
            assert older_log(path).read_bytes().endswith(b"\n")
    finally:
        writer.kill()
        writer.wait()


_ROTATES = """
import sys
from pathlib import Path
from cluster_serving.node.config.config import Config
from cluster_serving.node.lifecycle.log_rotation import LogRotation
rotation = LogRotation(Path(sys.argv[1]), Config(log_bytes=1000, log_files=1))
with rotation.running():
    print("x" * 1000, flush=True)
    sys.stdin.readline()
    rotation.follow(Config(log_bytes=0))
    print("y" * 1000, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def rotating(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process with the log as its standard output."""
    with (
        path.open("a") as output,
        subprocess.Popen(
            [sys.executable, "-c", _ROTATES, str(path)], stdin=subprocess.PIPE, stdout=output, text=True
        ) as process,
    ):
        yield process
        process.kill()


def test_a_process_rotates_its_own_log(path: Path, rotating: "subprocess.Popen[str]") -> None:
    assert rotating.stdin is not None
    wait_until(partial(os.path.exists, older_log(path)), "it is rotated")
    wait_until(lambda: path.stat().st_size == 0, "it is empty")

    rotating.stdin.write("\n")
    rotating.stdin.flush()
    wait_until(lambda: path.stat().st_size > 1000, "more comes")
    rotating.stdin.close()

    assert rotating.wait(120) == 0
    assert logs(path) == {"node.log": "y" * 1000 + "\n", "node.log.1": "x" * 1000 + "\n"}


def test_a_log_of_somebody_else_stays(path: Path) -> None:
    path.write_text("z" * 2000)

    done = subprocess.run(
        [sys.executable, "-c", _ROTATES, str(path)], input="\n\n", capture_output=True, text=True, check=True
    )

    assert len(done.stdout) == 2002
    assert logs(path) == {"node.log": "z" * 2000}
