"""A mistake in a program ends in a traceback of a few lines, whose last frame is the line of the program."""

import asyncio
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster_serving.client import AsyncInputQueue, ClusterServingError, InputQueue, InvalidValue

MOST_LINES = 15
MARKS_OF_ASYNCIO = 3 if sys.version_info >= (3, 13) else 0  # lines below asyncio's own that show the place in them
PROGRAM = """import asyncio

import numpy as np

from cluster_serving.client import *


def main():
    {line}


async def predict():
    {line_of_asyncio}


def main_of_asyncio():
    asyncio.run(predict())
"""
MISTAKES = {
    'InputQueue(host="no.such.host.invalid", patience_s=0).predict(1.0)': "no.such.host.invalid",
    'InputQueue(port=1, patience_s=0).enqueue("a", x=1.0)': "Connection refused",
    "list(InputQueue(port=1, patience_s=0).predict_many([1.0]))": "Connection refused",
    "OutputQueue(port=1).dequeue()": "Connection refused",
    "list(OutputQueue(port=1).results())": "Connection refused",
    'InputQueue("http://127.0.0.1:1").predict(\'{"instances": []}\')': "Connection refused",
    'InputQueue("localhost:6399").predict(1.0)': 'write InputQueue(host="localhost", port=6399)',
    'OutputQueue("localhost:6399")': 'write OutputQueue(host="localhost", port=6399)',
    'InputQueue(hots="redis")': "did you mean host?",
    'InputQueue(dialect="orignal")': "'native' or 'original'",
    'InputQueue(name="a:b")': "must have no ':'",
    'InputQueue(ssl_certfile="none.pem")': "no such file",
    'InputQueue().enqueue("a", x=np.array([1j]))': "complex128",
    'InputQueue().enqueue("a", x=None)': "a NoneType cannot be sent",
    'InputQueue().enqueue("a", x="cat.jpg")': "cannot read the image 'cat.jpg'",
    'InputQueue().enqueue("a", x=[[1], [1, 2]])': "ragged",
    'InputQueue(dialect="original").enqueue("a", x="cat.jpg")': "cat.jpg",
    'InputQueue().enqueue("a")': "has no inputs",
    "InputQueue().predict('{\"instances\": [')": "not JSON",
}
MISTAKES_OF_ASYNCIO = {
    "await AsyncInputQueue(port=1, patience_s=0).predict(1.0)": "Connect call failed",
    'await AsyncInputQueue().enqueue("a", x=None)': "a NoneType cannot be sent",
    "await anext(AsyncInputQueue(port=1, patience_s=0).predict_many([1.0]))": "Connect call failed",
    "await AsyncOutputQueue(port=1).dequeue()": "Connect call failed",
}


def run(path: Path, function: str, **lines: str) -> list[str]:
    """Return the lines that Python prints when a function of a program fails, without the frame of this file."""
    path.write_text(PROGRAM.format(**{"line": "...", "line_of_asyncio": "...", **lines}))
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(compile(path.read_text(), path, "exec"), namespace)  # noqa: S102 - the program is the one above
    try:
        namespace[function]()
    except Exception as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        return "".join(traceback.format_exception(error)).splitlines()
    pytest.fail("the program has not failed")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_of_a_mistake(mistake: str, tmp_path: Path) -> None:
    lines = run(tmp_path / "program.py", "main", line=mistake)

    assert len(lines) + 2 <= MOST_LINES, "\n".join(lines)  # two lines more for the call of `main`
    assert MISTAKES[mistake] in lines[-1]
    assert any(mistake in line for line in lines)


@pytest.mark.parametrize("mistake", MISTAKES_OF_ASYNCIO)
def test_of_a_mistake_in_asyncio(mistake: str, tmp_path: Path) -> None:
    """Nine lines are asyncio's own."""
    lines = run(tmp_path / "program.py", "main_of_asyncio", line_of_asyncio=mistake)

    assert len(lines) <= MOST_LINES + MARKS_OF_ASYNCIO, "\n".join(lines)
    assert MISTAKES_OF_ASYNCIO[mistake] in lines[-1]
    assert not any("cluster_serving/" in line for line in lines)


def test_python_s_development_mode_shows_everything(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        PROGRAM.format(line='InputQueue().enqueue("a", x="cat.jpg")', line_of_asyncio="...") + "\n\nmain()\n"
    )

    def lines(*options: str) -> list[str]:
        program = [sys.executable, *options, str(path)]
        return subprocess.run(program, capture_output=True, text=True, check=False).stderr.splitlines()

    assert len(lines()) <= MOST_LINES
    assert len(lines("-X", "dev")) > MOST_LINES


def test_the_frames_of_the_program_s_own_source_stay() -> None:
    def source() -> Iterator[Any]:
        yield from ()  # no record is on its way, whose error would come first
        InputQueue().enqueue("")

    async def source_of_asyncio() -> AsyncIterator[Any]:
        for each in source():
            yield each

    async def predict() -> None:
        async with AsyncInputQueue(port=1) as queue:
            async for _ in queue.predict_many(source_of_asyncio()):
                pass

    for call in (lambda: [*InputQueue(port=1).predict_many(source())]), (lambda: asyncio.run(predict())):
        with pytest.raises(InvalidValue) as caught:
            call()
        frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert frames[-1] == "source"


def test_an_error_of_the_program_is_left_as_it_is() -> None:
    def source() -> Iterator[Any]:
        yield from ()
        raise ValueError("mine") from KeyError("cause")

    with pytest.raises(ValueError, match="mine") as caught:
        list(InputQueue(port=1, patience_s=0).predict_many(source()))

    assert not isinstance(caught.value, ClusterServingError)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "predict_many" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
