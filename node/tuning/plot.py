"""Picture of a report: records a second over batch size, a line for each shape."""

from pathlib import Path

from cluster_serving.client.servers.process.whole_file import whole_file
from cluster_serving.node.config.choice import Shape
from cluster_serving.node.tuning.report import TuningReport

_INCHES = (8.0, 5.0)
_DPI = 120


def draw(report: TuningReport, title: str, path: Path) -> None:
    """Write a PNG file.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.subplots()
    measured = [tried for tried in report.tried if tried.turns and not tried.refused]
    for shape in dict.fromkeys(tried.candidate.shape for tried in measured):
        points = [(one.candidate.batch, one.middle.rate) for one in measured if one.candidate.shape == shape]
        axes.plot(*zip(*points, strict=True), marker="o", label=shape.described())
    choice = report.choice
    best = f"best: {Shape(choice.workers, choice.threads).described()}, batch {choice.batch}"
    axes.plot([choice.batch], [report.chosen.middle.rate], "k*", markersize=16, label=best)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({one.candidate.batch for one in measured}), minor=False)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.yaxis.set_major_formatter("{x:,g}")
    most = max(one.middle.rate for one in measured)
    axes.set(title=title, xlabel="batch size", ylabel="records/s", ylim=(0, 1.1 * most))
    axes.grid(alpha=0.3)
    axes.legend()
    with whole_file(path) as stream:
        figure.savefig(stream, format="png", dpi=_DPI)
