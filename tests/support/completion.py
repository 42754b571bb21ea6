"""Words that a shell offers for a command line."""

from click.testing import CliRunner

from cluster_serving.node.cli import main


def completed(words: str) -> list[tuple[str, str]]:
    """The words that zsh is offered for the last one of these, each with its help."""
    environ = {
        "_CLUSTER_SERVING_COMPLETE": "zsh_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": f"{len(words.split(' ')) - 1}",
    }
    offered = CliRunner(env=environ).invoke(main, prog_name="cluster-serving", catch_exceptions=False)
    assert not offered.stderr
    lines = offered.stdout.splitlines()
    return [(word, about) for kind, word, about in zip(lines[::3], lines[1::3], lines[2::3], strict=False) if kind]
