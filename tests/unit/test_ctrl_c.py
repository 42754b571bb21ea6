"""Ctrl-C of a command: its exit code, whatever the command does at the moment."""

import signal
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from cluster_serving.client.servers.process.command import Command
from cluster_serving.client.servers.process.exit_codes import INTERRUPTED, ExitCode


@pytest.mark.parametrize(
    ("program", "package", "told"),
    [
        ("node.cli", "click", "Aborted!\n"),
        ("node.cli", "cluster_serving.node.commands.tune", "\nAborted!\n"),  # by the command line, on a line of its own
        ("frontend", "click", "Aborted!\n"),
    ],
)
@pytest.mark.parametrize("words", [[], ["tune"]])
def test_ctrl_c_during_the_imports_leaves_no_traceback(program: str, package: str, told: str, words: list[str]) -> None:
    source = f"""
import runpy, sys
class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == {package!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupter())
sys.argv = ["program", *{words!r}]
runpy.run_module("cluster_serving.{program}", run_name="__main__")
"""
    result = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout, result.stderr) == (INTERRUPTED, "", told)


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("waits", ["time.sleep(60)", "click.confirm('Sure?', abort=True)"])
def test_ctrl_c_ends_a_command_with_its_exit_code(waits: str) -> None:
    program = f"""
import time
import click
from cluster_serving.client.servers.process.command import Command
@click.command(cls=Command)
def command():
    click.echo("begun")
    {waits}
command()
"""
    words = [sys.executable, "-c", program]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)

    assert (process.returncode, told) == (INTERRUPTED, "\nAborted!\n")


def test_a_no_is_no_ctrl_c() -> None:
    @click.command(cls=Command)
    def command() -> None:
        click.confirm("Sure?", abort=True)

    assert CliRunner().invoke(command, input="n\n").exit_code == ExitCode.FAILED
