"""Command `swarm profile`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.number import Number
from cluster_serving.node.commands.output_place import check_place


@click.command(cls=Command, context_settings=SETTINGS, short_help="Measure what a record costs, for a plan.")
@click.argument("words", nargs=-1, metavar="[RECORD]...", type=click.UNPROCESSED)
@click.option("-c", "--config-path", metavar="PATH", help="Config file; default: config.yaml.")
@click.option("--model-path", metavar="PATH", help="Directory of the model (modelPath).")
@click.option("-t", "--threads", type=click.IntRange(1), default=1, metavar="N", help="Threads of one worker; 1.")
@click.option("--seconds", type=Number(0.5), default=2.0, metavar="S", help="Seconds of each of four loads; 2.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("profile.json"),
    metavar="FILE",
    help="Profile to write; profile.json.",
)
def profile(
    words: Sequence[str],
    config_path: str | None,
    model_path: str | None,
    threads: int,
    seconds: float,
    output: Path,
) -> None:
    """Measure what a record costs each process, and write the profile for `swarm plan`.

    A node with one worker, its Redis and a frontend are started on the side, and get records one by one and many at a time. CPU
    time counts, so a machine of the kind of the nodes gives the best profile. A RECORD is what predict takes. Without a RECORD,
    records are made up.
    """
    from cluster_serving.client.servers.process.installed import require

    require(["psutil", "redis"], "node", "The node that is measured is")
    check_place(output)
    from rich.console import Console

    from cluster_serving.client.servers.process.signals import Signals
    from cluster_serving.node.lifecycle.options import StartOptions
    from cluster_serving.swarm.plan.measuring import profile as measured
    from cluster_serving.swarm.plan.text import of_full_machine

    given: dict[str, Any] = {"config_path": config_path, "model_path": model_path}
    config = StartOptions(**given).load()[0].config
    config.check_model_path()
    interrupted = "Interrupted; everything that was started has been ended."
    with Signals().heard(interrupted), Console(stderr=True).status("starting a node") as status:
        found, factor = measured(config, words, threads, seconds, status.update)
    for sentence in of_full_machine(factor):
        say(sentence)
    found.write(output)
    say(f"Wrote {output}.")
