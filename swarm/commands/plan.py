"""Command `swarm plan`."""

from pathlib import Path

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.client.servers.process.number import POSITIVE, Number
from cluster_serving.node.commands.plot_option import check_plot, plot_option
from cluster_serving.swarm.commands.options import json_option

_GB, _GBIT = 1e9, 1e9 / 8


@click.command(cls=Command, context_settings=SETTINGS, short_help="Tell how many machines a rate needs.")
@click.argument("profile", type=click.Path(dir_okay=False, path_type=Path), default=Path("profile.json"))
@click.option("--rate", type=POSITIVE, required=True, metavar="R", help="Records a second.")
@click.option(
    "--p99", "p99_ms", type=POSITIVE, required=True, metavar="MS", help="Milliseconds that 99 of 100 answers may take."
)
@click.option("--cores", type=click.IntRange(1, 64), default=8, metavar="N", help="Cores of a node; 8.")
@click.option("--memory", "memory_gb", type=POSITIVE, default=32.0, metavar="GB", help="Memory of a node; 32.")
@click.option(
    "--network", "network_gbit", type=POSITIVE, default=10.0, metavar="GBIT", help="Network of a machine, Gbit/s; 10."
)
@click.option("--http", "over_http", is_flag=True, help="Callers speak HTTP: count frontends too.")
@click.option(
    "--survive",
    type=click.Choice(["none", "host", "zone"]),
    default="host",
    help="Keep the objective after this loss; host.",
)
@click.option("--zones", type=click.IntRange(2, 100), default=3, metavar="N", help="Zones of the machines; 3.")
@click.option(
    "--outage",
    "outage_s",
    type=Number(0),
    default=30.0,
    metavar="S",
    help="Seconds without nodes that Redis holds; 30.",
)
@click.option("--price", type=Number(0), metavar="P", help="Price of a core for an hour.")
@click.option(
    "--records", type=click.IntRange(100), default=6000, metavar="N", help="Records of each simulation, at least; 6000."
)
@click.option("--seed", type=int, default=0, metavar="N", help="Seed of the simulation; 0.")
@plot_option
@json_option("an object with the numbers of machines, latency, limits and curve")
def plan(
    profile: Path,
    rate: float,
    p99_ms: float,
    cores: int,
    memory_gb: float,
    network_gbit: float,
    over_http: bool,
    survive: str,
    zones: int,
    outage_s: float,
    price: float | None,
    records: int,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Tell how many nodes, Redis servers and frontends a rate needs, and which part fails first.

    PROFILE is what `swarm profile` has measured; profile.json. The numbers come from a simulation of each record on its way. The
    same profile, options and seed give the same plan.
    """
    import msgspec
    from rich.console import Console

    from cluster_serving.client.servers.process.exit_codes import Fault
    from cluster_serving.client.servers.process.table import output_width
    from cluster_serving.swarm.plan.planning import Demand, planned
    from cluster_serving.swarm.plan.profile import Profile
    from cluster_serving.swarm.plan.text import lines

    check_plot(plot)
    costs = Profile.read(profile)
    if over_http and costs.frontend is None:
        raise Fault(f"{profile} has no frontend: measure it where the extra http is installed")
    demand = Demand(
        rate=rate,
        p99_s=p99_ms / 1000,
        cores=cores,
        memory=_GB * memory_gb,
        network=_GBIT * network_gbit,
        over_http=over_http,
        survive=survive,
        zones=zones,
        outage_s=outage_s,
        price=price,
        records=records,
        seed=seed,
    )
    with Console(stderr=True).status("simulating") as status:
        found = planned(costs, demand, lambda step: status.update(f"simulating: {step}"))
    if plot is not None:
        from cluster_serving.swarm.plan.picture import draw

        draw(demand, found, f"{found.nodes:,} nodes, {found.redis_servers:,} Redis", plot)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        click.echo("\n".join(lines(costs, demand, found, output_width())))
