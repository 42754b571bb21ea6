"""Files that are written whole, or not at all."""

import errno
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.client.servers.process.whole_file import whole_file
from support.private_redis import free_port


@contextmanager
def no_room() -> Generator[None]:
    """Files can be made, and nothing written."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def write(path: Path, content: bytes, mode: int = 0o666) -> None:
    with whole_file(path, mode) as stream:
        stream.write(content)


@pytest.mark.parametrize("before", [None, b"before"])
def test_a_disk_without_room_is_told_with_the_file_which_stays(tmp_path: Path, before: bytes | None) -> None:
    file = tmp_path / "a.bin"
    if before is not None:
        file.write_bytes(before)

    with no_room(), pytest.raises(OSError) as caught:  # noqa: PT011 - its file is looked at below
        write(file, b"now")

    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(file))
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == (
        {} if before is None else {"a.bin": before}
    )


def test_an_error_of_another_file_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, whole_file(tmp_path / "a.bin") as stream:
        stream.write((tmp_path / "none").read_bytes())

    assert caught.value.filename == str(tmp_path / "none")
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_missing_is_told_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write(tmp_path / "none" / "a.bin", b"now")

    assert caught.value.filename == str(tmp_path / "none" / "a.bin")


def test_a_file_has_its_permissions_also_in_place_of_another(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(b"before")

    write(file, b"now", 0o600)

    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"now", 0o600)


def test_of_two_that_make_a_new_file_one_gets_it(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"

    with whole_file(file, new=True) as first:
        with pytest.raises(FileExistsError) as caught, whole_file(file, new=True):
            pass
        first.write(b"first")

    assert (caught.value.filename, file.read_bytes()) == (str(file), b"first")


def test_an_unfinished_new_file_is_removed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), whole_file(tmp_path / "a.bin", new=True):
        raise KeyboardInterrupt

    assert not [*tmp_path.iterdir()]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "a.bin"
    link.symlink_to(file.name)

    write(link, b"now")

    assert (link.readlink(), file.read_bytes()) == (Path("a.bin"), b"now")


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(pipe, b"now")

        assert (os.read(reading, 9), pipe.is_fifo(), len([*tmp_path.iterdir()])) == (b"now", True, 1)
    finally:
        os.close(reading)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["init"], "{here}/config.yaml: File too large. Initialization failed."),
        (["encrypt", "model.onnx", "sealed.onnx"], "sealed.onnx: File too large"),
        (
            ["start", "--model-path", "model.onnx", "--redis-url", "localhost:{port}"],
            "{home}/serving_stream/redis/redis.conf: File too large",
        ),
    ],
    ids=["init", "encrypt", "start"],
)
@pytest.mark.usefixtures("unmeasured")  # coverage needs room for a file of its own
def test_commands_without_room_name_the_file_and_leave_none(words: list[str], told: str, tmp_path: Path) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    (here / "model.onnx").write_bytes(b"model")
    names = {"here": here, "home": home, "port": free_port()}
    secrets = {"CLUSTER_SERVING_MODEL_SECRET": "secret", "CLUSTER_SERVING_MODEL_SALT": "salt"}

    done = subprocess.run(
        [sys.executable, "-P", "-m", "cluster_serving.node.cli", *(word.format(**names) for word in words)],
        cwd=here,
        env={**os.environ, **secrets, "CLUSTER_SERVING_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )

    assert done.stderr.splitlines()[-1] == told.format(**names)
    assert done.returncode == ExitCode.FAILED
    assert [each.name for each in here.iterdir()] == ["model.onnx"]
    assert not [*home.glob("*/redis/*")]
