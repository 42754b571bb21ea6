"""Every printed table, of a real node with a hostile job name: on a terminal, in a pipe, and as JSON."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

from cluster_serving.client import InputQueue, OutputQueue, keys
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.client.wire.dead_letter import Reason
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import running_node
from support.wait import wait_until

JOB = "a-job-with-a-very-long-name-" + "x" * 60 + "\x1bc\n数"
ESCAPED = JOB.replace("\x1b", "\\x1b").replace("\n", "\\n")
MESSAGE = "ValueError: \x9b2J\u202e" + "a very long reason " * 30
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
SENTENCES = ("record 1: answered by job ", "Dead letters of job ", "Job name: ", "Redis: ")
COMMANDS = [
    ("status",),
    ("status", "--placement"),
    ("list",),
    ("config",),
    ("dead-letters", "list"),
    ("dead-letters", "show", "5-0"),
    ("predict", "[1, 1, 1, 1]"),
    ("trace", "long"),
]


class Shell:
    """Runs commands where a node runs."""

    def __init__(self, home: Path, server: PrivateRedis) -> None:
        self._home = home
        self._server = server

    def piped(self, *words: str) -> str:
        """Return the text that a command writes into a pipe."""
        return subprocess.run(
            self._command(words), env=self._environ(), capture_output=True, text=True, check=True
        ).stdout

    def on_terminal(self, *words: str, expected: Collection[int] = (0,)) -> str:
        """Return the text that a command writes to a terminal of 80 columns."""
        screen, line = pty.openpty()
        termios.tcsetwinsize(line, (24, 80))
        with subprocess.Popen(self._command(words), env=self._environ(), stdout=line, stderr=line) as process:
            os.close(line)
            written = b""
            with suppress(OSError):  # the end of what a terminal has
                while part := os.read(screen, 1 << 16):
                    written += part
        os.close(screen)
        assert process.returncode in expected, written
        return written.decode().replace("\r\n", "\n")

    @contextmanager
    def typed(self, *words: str) -> Generator[tuple[int, int, subprocess.Popen[bytes]]]:
        """Run a command whose keyboard and screen are a terminal: its ends for a person and for a program, and the process."""
        person, program = pty.openpty()
        termios.tcsetwinsize(program, (24, 80))
        command = self._command(words)
        with subprocess.Popen(command, env=self._environ(), stdin=program, stdout=program, stderr=program) as process:
            try:
                yield person, program, process
            finally:
                process.kill()
        os.close(person)
        os.close(program)

    def _command(self, words: tuple[str, ...]) -> list[str]:
        where = (
            ["--job", JOB, "--redis-url", self._server.url] if words[0] in {"dead-letters", "predict", "trace"} else []
        )
        return [sys.executable, "-P", "-m", "cluster_serving.node.cli", *words, *where]

    def _environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR"}}
        own = {"CLUSTER_SERVING_HOME": str(self._home / "state"), "CLUSTER_SERVING_MODEL_PATH": f"/{'long/' * 40}"}
        return kept | own | {"TERM": "xterm-256color"}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, redis_server: PrivateRedis) -> Iterator[Shell]:
    home = tmp_path_factory.mktemp("tables")
    reason = Reason("InferenceFailed", MESSAGE, "Traceback: \x1bc", "1-1", "node-\x1bc", "", 5000, deliveries=1)
    config = {"modelPath": str(MODELS / "affine.py"), "jobName": JOB, "resultTimeToLive": 600}
    with running_node(home, redis_server, **config), redis_server.client() as client:
        letter = {"dead_letter": reason.encode(), "uri": "u\x1bc" * 40, "string:\x1bc": '"\x1bc"'}
        client.xadd(keys.dead_key(JOB), letter, id="5-0")
        with (
            InputQueue(port=redis_server.port, name=JOB) as queue,
            OutputQueue(port=redis_server.port, name=JOB) as output,
        ):
            queue.enqueue("long", x=np.ones(4, np.float32))
            wait_until(lambda: output.query("long") != "[]", "the record is answered")
        yield Shell(home, redis_server)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_table_has_80_columns_on_a_terminal_and_no_escapes_of_others(words: tuple[str, ...], shell: Shell) -> None:
    shown = shell.on_terminal(*words)

    lines = COLOURS.sub("", shown).splitlines()
    assert all(line.isprintable() for line in lines), shown
    assert all(cell_len(line) <= 80 for line in lines if not line.startswith(SENTENCES)), shown


@pytest.mark.parametrize(
    "words",
    [
        ("stop", f"{JOB}-"),
        ("status", f"{JOB}-"),
        ("logs", JOB),
        ("shutdown", f"{JOB}-"),
        ("dump", f"{JOB}-"),
        ("restart", f"{JOB}-"),
        ("dead-letters", "show", "9-0"),
        ("dead-letters", "purge", "9-0"),
        ("trace", "no\x1bsuch"),
    ],
    ids=lambda words: " ".join(words[:2]).replace(JOB, "JOB"),
)
def test_sentence_has_no_escapes_of_others(words: tuple[str, ...], shell: Shell) -> None:
    shown = shell.on_terminal(*words, expected=set(ExitCode) - {ExitCode.OK, ExitCode.USAGE})

    assert "\\x1b" in shown
    assert all(line.isprintable() for line in shown.splitlines()), shown


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_table_is_whole_and_plain_in_a_pipe(words: tuple[str, ...], shell: Shell) -> None:
    printed = shell.piped(*words)

    assert all(line.isprintable() for line in printed.splitlines())
    assert "…" not in printed
    if words != ("config",):
        assert ESCAPED in printed or words == ("trace", "long")
    if words[0] == "dead-letters":
        assert MESSAGE.replace("\x9b", "\\x9b").replace("\u202e", "\\u202e").rstrip() in printed


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_json_is_one_document(words: tuple[str, ...], shell: Shell) -> None:
    assert json.loads(shell.piped(*words, "--json"))


def test_top_shows_the_jobs_and_the_workers_of_one_until_q(shell: Shell) -> None:
    shown = b""

    with shell.typed("top", "--interval", "0.2") as (person, program, process):

        def screen() -> bytes:
            """The last one that is whole."""
            nonlocal shown
            if select.select([person], [], [], 0)[0]:
                shown += os.read(person, 1 << 16)
            return b"".join(shown.rsplit(b"q: end", 2)[-2:-1])

        wait_until(lambda: b"rec/s" in screen(), "the table is shown")
        assert b"worker 0" not in screen()
        os.write(person, b"\r")
        wait_until(lambda: b"worker 0" in screen(), "the workers are shown")
        os.write(person, b"\x7f")
        wait_until(lambda: b"choose a job" in (now := screen()) and b"worker 0" not in now, "the table is shown again")
        os.write(person, b"q")
        wait_until(lambda: screen() and process.poll() is not None, "it has ended")

        assert process.returncode == 0
        assert termios.tcgetattr(program)[3] & termios.ECHO  # what is typed later is shown again
