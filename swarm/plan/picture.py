"""Picture of a plan: latency over the rate, the knee, and the rates at which parts fail."""

from pathlib import Path

from cluster_serving.client.servers.process.whole_file import whole_file
from cluster_serving.swarm.plan.planning import Demand, Plan

_INCHES = (8.0, 5.0)
_DPI = 120
_ROOM = 1.3  # of the rates, on the right
_DASHES = ("-.", ":", "--")


def draw(demand: Demand, plan: Plan, title: str, path: Path) -> None:
    """Write a PNG file.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.subplots()
    rates = [point.rate for point in plan.curve]
    axes.plot(rates, [point.p50_ms for point in plan.curve], marker="o", label="p50")
    axes.plot(rates, [point.p99_ms for point in plan.curve], marker="o", label="p99")
    axes.axhline(1000 * demand.p99_s, color="black", linestyle="--", label="objective")
    axes.axvline(demand.rate, color="black", label="wanted rate")
    if plan.knee is not None:
        axes.axvline(plan.knee, color="tab:orange", linestyle=":", label="knee: p99 twice that of a light load")
    most = _ROOM * max(demand.rate, *rates)
    for at, (part, rate) in enumerate((part, rate) for part, rate in plan.limits.items() if rate < most):
        axes.axvline(rate, color="tab:red", linestyle=_DASHES[at % len(_DASHES)], label=f"{part}: full")
    axes.set_yscale("log")
    axes.set_xlim(0, most)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set(title=title, xlabel="records/s", ylabel="latency (ms)")
    axes.grid(alpha=0.3)
    axes.legend()
    with whole_file(path) as stream:
        figure.savefig(stream, format="png", dpi=_DPI)
