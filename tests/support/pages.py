"""Runs the code blocks of pages in their order: `python -m support.pages PAGE ...` prints a line of JSON for each page.

Each page begins in an empty folder. Jobs and Redis are the same for all pages, in a network of their own.

| block | |
|---|---|
| `sh` | a script, which has to end with 0 |
| `console` | commands behind `$`, each with the output that it has to print, in which `…` stands for anything |
| `python` | code, in one namespace for each page |
| any that begins with a comment of a file's name alone, `# model.py` | saved as this file |

A command whose output may be anything has to end with 0.

`<!-- skip: next "reason" -->` keeps the next block from being run. `<!-- invisible-code-block: sh` begins a block that readers do
not see.
"""

import fcntl
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from unittest import SkipTest

import msgspec
from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser

LANGUAGES = ("sh", "console", "python", "yaml", "json", "text")
_FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n?((?:(?!\$ ).*\n?)*)", re.MULTILINE)
_ANYTHING = "…"
_SHELL = ["bash", "-euo", "pipefail", "-c"]
_TIMEOUT_S = 120
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


class Ran(msgspec.Struct):
    """A page: number of blocks that were run, reasons of the blocks that were skipped, and the first failure, or an empty text."""

    page: str
    run: int = 0
    skipped: list[str] = []
    failure: str = ""


def main(pages: list[str]) -> None:
    """Run the pages."""
    _lift_loopback()
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            print(msgspec.json.encode(run(page)).decode(), flush=True)


def run(page: str) -> Ran:
    """Run a page in the current folder, up to the first block that fails."""
    blocks = [CodeBlockParser(language, _evaluate) for language in LANGUAGES]
    ran = Ran(page)
    for example in Sybil([SkipParser(), *blocks]).parse(Path(page)).examples():
        try:
            example.evaluate()
        except SkipTest as skip:
            ran.skipped.append(str(skip))
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1].lineno
            ran.failure = f"{page}:{example.line}: {type(error).__name__} at line {at}: {error}"
            break
        else:
            ran.run += example.region.evaluator is _evaluate
    return ran


def _evaluate(example: Example) -> None:
    block, language = str(example.parsed), example.region.lexemes["arguments"]
    if named := _FILE.match(block):
        Path(named[1]).parent.mkdir(parents=True, exist_ok=True)
        Path(named[1]).write_text(block[named.end() :])
    elif language == "python":
        with redirect_stdout(sys.stderr):
            PythonEvaluator()(example)
    elif language == "sh":
        code, output = _bash(block)
        assert code == 0, f"exit code {code}:\n{output}"
    elif language == "console":
        for command, expected in _COMMAND.findall(block):
            code, output = _bash(command)
            assert code == 0 or expected.strip() != _ANYTHING, f"$ {command}\nexit code {code}:\n{output}"
            pattern = ".*".join(map(re.escape, expected.strip().split(_ANYTHING)))
            assert re.fullmatch(pattern, output.strip(), re.DOTALL), f"$ {command}\n{output}\nexpected:\n{expected}"


def _bash(script: str) -> tuple[int, str]:
    """Return the exit code of a script, and its output, in which no line ends with blanks."""
    with tempfile.TemporaryFile("w+") as output:  # not a pipe, which a process in the background would keep open
        done = subprocess.run([*_SHELL, script], stdout=output, stderr=output, timeout=_TIMEOUT_S, check=False)
        output.seek(0)
        return done.returncode, re.sub(r"[ \t]+$", "", output.read(), flags=re.MULTILINE)


def _lift_loopback() -> None:
    """Set the loopback device of this network up."""
    with socket.socket() as any_socket:
        flags = struct.pack("16sh14x", b"lo", 0)
        (current,) = struct.unpack_from("16xh", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, flags))
        if not current & _IFF_UP:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", current | _IFF_UP))


if __name__ == "__main__":
    main(sys.argv[1:])
