"""Commands that the runbook tells to type, which parse, and the variables that it names, which are in a stack file."""

import re
import shlex
from pathlib import Path

import click
import pytest

from cluster_serving.swarm.cli import swarm
from cluster_serving.swarm.stack import PACKAGED

_TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "swarm.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"^```\w*\n(.*?)^```", _TEXT, re.MULTILINE | re.DOTALL)
_COMMANDS = sorted(set(re.findall(r"cluster-serving swarm (.+)", "".join(_BLOCKS))))


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_command_of_the_runbook_parses(command: str) -> None:
    name, *arguments = shlex.split(command, comments=True)
    found = swarm.get_command(click.Context(swarm), name)

    assert found is not None
    assert found.make_context(name, arguments).params


def test_the_runbook_has_commands_of_each_kind() -> None:
    kinds = {command.split()[0] for command in _COMMANDS}

    assert kinds >= {"render", "deploy", "status", "scale", "update-model", "logs", "rm"}


def test_the_variables_of_the_runbook_are_in_a_stack_file() -> None:
    files = "".join(path.read_text(encoding="utf-8") for path in PACKAGED.glob("*.yml"))
    named = set(re.findall(r"CLUSTER_SERVING_[A-Z_]+", _TEXT)) - {"CLUSTER_SERVING_STACK"}  # an option of every command

    assert named
    assert not {name for name in named if f"${{{name}:-" not in files}
