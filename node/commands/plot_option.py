"""Option of commands that draw a picture of their result."""

from pathlib import Path

import click

from cluster_serving.node.commands.output_place import check_place

plot_option = click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.png", help="Draw a picture (extra plot)."
)


def check_plot(path: Path | None) -> None:
    """Check for the drawing package and a place for the file, before a measurement of several minutes.

    Raises:
        NotInstalled: the drawing package is missing.
        Fault: the file cannot be written there.
    """
    from cluster_serving.client.servers.process.installed import require

    if path is None:
        return
    require(["matplotlib"], "plot", "the drawing package is")
    check_place(path)
