"""Picture of a result: rate and latency window by window, and the latency that so many requests exceed."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cluster_serving.client.servers.process.whole_file import whole_file
from cluster_serving.node.load.measure import Measured

_INCHES = (8.0, 8.0)
_DPI = 120
_EXCEEDED = (1.0, 0.1, 0.01, 0.001, 0.0001)
_POINTS = 200


def draw(rounds: Sequence[Measured], title: str, path: Path) -> None:
    """Write a PNG file. The counted windows of the rounds have an answer at least.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    windows = [window for measured in rounds for window in measured.windows]
    counted = [window for measured in rounds for window in measured.counted]
    figure = Figure(figsize=_INCHES, layout="constrained")
    rates, over_time, exceeded = figure.subplots(3)
    ends_s = np.cumsum([window.seconds for window in windows])
    rates.plot(ends_s, [window.rate for window in windows], marker="o")
    rates.set(title=title, xlabel="seconds", ylabel="requests/s", ylim=(0, None))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        values = [1000 * np.quantile(each.took_s, share) if each.took_s.size else np.nan for each in windows]
        over_time.plot(ends_s, values, marker="o", label=name)
    over_time.set(xlabel="seconds", ylabel="latency (ms)", ylim=(0, None))
    over_time.legend()
    for window, end_s in zip(windows, ends_s, strict=True):
        if any(window is each for each in counted):
            for axes in (rates, over_time):
                axes.axvspan(end_s - window.seconds, end_s, alpha=0.1)
    took_ms = 1000 * np.concatenate([window.took_s for window in counted])
    shares = np.geomspace(1, max(1 / took_ms.size, _EXCEEDED[-1]), _POINTS)
    exceeded.plot(shares, np.quantile(took_ms, 1 - shares))
    exceeded.set(xlabel="requests that took longer", ylabel="latency (ms)", xscale="log", yscale="log")
    exceeded.set_xticks(_EXCEEDED, [f"{100 * share:g} %" for share in _EXCEEDED])
    exceeded.yaxis.set_major_formatter("{x:g}")
    exceeded.invert_xaxis()
    for axes in (rates, over_time, exceeded):
        axes.grid(alpha=0.3)
    with whole_file(path) as stream:
        figure.savefig(stream, format="png", dpi=_DPI)
