"""Options that take a number: every one refuses NaN, infinity, and what no timer takes."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.client.servers.process.number import POSITIVE, Number
from cluster_serving.node.cli import main


def numbers(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Parameter]]:
    """Return the options and arguments that are floats, of a command and all below it, each with its command line."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from numbers(below, (*words, name))
    for parameter in command.params:
        if isinstance(parameter.type, click.types.FloatParamType):
            yield (*words, parameter.opts[0]), parameter


def test_every_option_that_is_a_number_refuses_what_is_none() -> None:
    found = dict(numbers(main))

    assert {("bench", "--rate"), ("swarm", "plan", "--memory"), ("swarm", "deploy", "--timeout")} <= found.keys()
    for words, parameter in found.items():
        assert isinstance(parameter.type, Number), " ".join(words)
        for text in ("nan", "inf", "-inf", "1e30"):
            with pytest.raises(click.BadParameter):
                parameter.type.convert(text, parameter, None)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["bench", "--rate", "nan"], "Invalid value for '--rate': nan is not a number."),
        (["top", "--interval", "inf"], "Invalid value for '--interval': inf is more than 1,000,000."),
        (["predict", "--timeout", "1e30"], "Invalid value for '--timeout': 1e30 is more than 1,000,000."),
        (["start", "--timeout", "-5"], "Invalid value for '--timeout': -5.0 is not in the range x>0."),
        (["logs", "--since", "0001-01-01T00:00+01:00"], "is neither a time back"),
    ],
)
def test_a_number_that_is_none_is_named(words: list[str], told: str) -> None:
    result = CliRunner().invoke(main, words)

    assert result.exit_code == ExitCode.USAGE
    assert told in result.output


def test_bounds() -> None:
    assert POSITIVE.convert("1000000", None, None) == 1_000_000
    assert Number(0, 1).convert("0", None, None) == 0
    with pytest.raises(click.BadParameter, match=r"0\.0 is not in the range x>0"):
        POSITIVE.convert("0", None, None)
