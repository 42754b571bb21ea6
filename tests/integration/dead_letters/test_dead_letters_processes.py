"""`dead-letters` as a process: on a terminal, in a pipe, interrupted, with secrets in its environment."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

import pytest

from cluster_serving.client import keys
from support.dead_letters import Letters
from support.wait import wait_until

CTRL_D = "\x04"
COMMAND = [sys.executable, "-m", "cluster_serving.node.cli", "dead-letters"]


def test_secrets_and_the_content_of_encrypted_records_are_not_shown(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, salt, content = "geheimer-als-geheim", "salziger-als-salz", "what nobody may read"
    record = [b"uri", b"u", b"string:x", json.dumps(content).encode()]
    letter_id = letters.put(record, message=f"bad key {secret}: {salt}")
    environ = {"RECORD_ENCRYPTED": "true", "RECORD_SECRET": secret, "RECORD_SALT": salt}
    environ = {f"CLUSTER_SERVING_{name}": value for name, value in environ.items()}
    # In processes of their own: what is hidden once stays hidden.
    shown = [
        subprocess.run(
            [*COMMAND, *words, *letters.where], env=os.environ | environ, capture_output=True, text=True, check=True
        )
        for words in (("list",), ("show", letter_id), ("export", "--all", "-o-"))
    ]

    assert [secret in each.stdout or salt in each.stdout for each in shown] == [False] * 3
    assert all("bad key ***: ***" in each.stdout for each in shown)
    assert [content in each.stdout for each in shown[:2]] == [False] * 2


def test_a_pipe_that_closes_early_is_no_fault(letters: Letters) -> None:
    letters.put_named(*map(str, range(3000)))
    for words in (["list", "-n", "3000"], ["export", "--all", "-o", "-"]):
        with subprocess.Popen(
            [*COMMAND, *words, *letters.where], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline()
            process.stdout.close()

            assert process.stderr.read() == b""


class Terminal:
    """A command on a terminal."""

    def __init__(self, words: Sequence[str]) -> None:
        self._near, far = pty.openpty()
        self._process = subprocess.Popen([*COMMAND, *words], stdin=far, stdout=far, stderr=far, start_new_session=True)
        os.close(far)
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """Read until this is shown."""
        while text not in self.shown:
            self.shown += os.read(self._near, 4096).decode()

    def answer(self, text: str) -> int:
        """Type something; how the command ended."""
        os.write(self._near, text.encode())
        code = self._process.wait(120)
        with suppress(OSError):  # the end: nobody has the terminal open any more
            while part := os.read(self._near, 4096):
                self.shown += part.decode()
        os.close(self._near)
        return code


def test_all_is_asked_for_on_a_terminal(letters: Letters) -> None:
    letters.put_named("a", "b")
    answers: list[tuple[str, int]] = []
    for answer in ("n\n", CTRL_D, "y\n"):
        terminal = Terminal(["purge", "--all", *letters.where])
        terminal.wait_for("[y/N]")
        code = terminal.answer(answer)
        answers.append((terminal.shown, code))
        left = len(letters.listed())
        assert left == (0 if answer == "y\n" else 2)

    assert [code for _, code in answers] == [1, 1, 0]
    assert all(f"Delete 2 dead letters of job {letters.job} for ever?" in shown for shown, _ in answers)
    assert all("Aborted!" in shown and "Traceback" not in shown for shown, _ in answers[:2])


@pytest.mark.usefixtures("unmeasured")
def test_an_interrupted_replay_says_how_far_it_came(letters: Letters) -> None:
    total = 100_000
    script = "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'dead_letter', '{}', 'uri', i) end"
    letters.redis.eval(script, 1, keys.dead_key(letters.job), total)
    with subprocess.Popen(
        [*COMMAND, "replay", "--all", *letters.where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: letters.redis.xlen(letters.job) > 0, "the replay is under way")
        process.send_signal(2)
        stdout, stderr = process.communicate(timeout=120)
    done, left = letters.redis.xlen(letters.job), letters.redis.xlen(keys.dead_key(letters.job))
    letters.redis.delete(letters.job, keys.dead_key(letters.job))

    assert 0 < done < total
    assert done + left == total
    # The one under way when it was interrupted may have been done without an answer.
    assert any(stdout.startswith(f"{count} dead letter") for count in (done, done - 1))
    assert "Aborted!" in stderr
    assert "Traceback" not in stderr
