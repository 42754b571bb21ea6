"""Commands: what each does, its arguments and options, as its `--help` tells them; and the exit codes."""

import re
from collections.abc import Iterator

import click

from cluster_serving.client.servers.process.exit_codes import INTERRUPTED, MEANINGS
from cluster_serving.node.cli import main

_PROGRAM = "cluster-serving"
_TOP = """# Commands

`cluster-serving COMMAND --help` tells the same. `eval "$(cluster-serving completion bash)"` lets the shell complete commands, names
of jobs, keys of settings and ids. The original's names work too: `cluster-serving-init`, `cluster-serving-start -c config.yaml`,
`cluster-serving-stop`, `cluster-serving-restart`, `cluster-serving-shutdown`, `cluster-serving-cli`, `cluster-serving-http`.
"""


def commands_page() -> str:
    """Return the page."""
    context = click.Context(main, info_name=_PROGRAM)
    names = [*main.functions, *(name for name in main.list_commands(context) if name not in main.functions)]
    commands = {name: command for name in names if (command := main.get_command(context, name)) is not None}
    table = [
        f"| [`{name}`](#{_anchor(f'{_PROGRAM} {name}')}) | {_first(command)} |" for name, command in commands.items()
    ]
    sections = [text for name, command in commands.items() for text in _sections(command, f"{_PROGRAM} {name}")]
    codes = [f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items()]
    return (
        "\n".join(
            [
                _TOP,
                "| command | |",
                "|---|---|",
                *table,
                "",
                "## Exit codes",
                "",
                "They mean the same for every command. `doctor` says with 2 that the examination could not be made.",
                "",
                "| code | meaning |",
                "|---|---|",
                *codes,
                f"| {INTERRUPTED} | Ctrl-C |",
                "",
                *sections,
            ]
        ).rstrip("\n")
        + "\n"
    )


def _sections(command: click.Command, name: str, level: int = 2) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    hidden: list[click.Command] = []
    shown: dict[str, click.Command] = {}
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None:
                (hidden.append(found) if found.hidden else shown.update({each: found}))
    default = hidden[0] if hidden else command  # of `doctor`: the examination
    arguments = " ".join(_arguments(default, context))
    yield f"{'#' * level} `{name}`\n"
    usage = f"{name} {'COMMAND' if shown and not hidden else f'[OPTIONS] {arguments}'}".rstrip()
    yield f"```\n{usage}\n```\n"
    yield _prose(default.help or "")
    options = list(_options(default, context))
    if options:
        yield "\n".join(["| option | |", "|---|---|", *options, ""])
    if name == f"{_PROGRAM} frontend":
        yield "Every [setting of the frontend](settings.md#frontend) is an option too.\n"
    for each, found in shown.items():
        yield from _sections(found, f"{name} {each}", level + 1)


def _arguments(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            yield parameter.make_metavar(context)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            record = parameter.get_help_record(context)
            if record is not None:
                yield f"| `{_cell(record[0])}` | {_cell(record[1])} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _first(command: click.Command) -> str:
    return _cell((command.help or "").split("\n\n")[0])


def _prose(text: str) -> str:
    """Return the help of a command as Markdown. A paragraph that begins with click's mark, a backspace, keeps its lines."""
    parts: list[str] = []
    for part in text.strip().split("\n\n"):
        if part.lstrip().startswith("\b"):
            parts.append("```\n" + part.lstrip().removeprefix("\b").strip("\n") + "\n```")
        else:
            parts.append(_code(" ".join(part.split())))
    return "\n\n".join(parts) + "\n"


def _code(text: str) -> str:
    """Return the text with its flags and capitals of placeholders as code, where they are not yet."""
    return re.sub(r"(?<![`\w-])(--[a-z][a-z-]*)(?![`\w-])", r"`\1`", text)


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")
