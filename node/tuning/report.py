"""Result of a tuning."""

from typing import Any

import msgspec

from cluster_serving.node.config.choice import Choice, Shape
from cluster_serving.node.config.objective import Objective
from cluster_serving.node.models.runtime import TriedRuntime
from cluster_serving.node.tuning.candidates import Candidate, ranked
from cluster_serving.node.tuning.search import Tried


class TuningReport(msgspec.Struct):
    """Measurements of a tuning, and the choice.

    Attributes:
        tried: candidates, cheapest first.
        busiest_load: largest share of a core that the load used.
        runtimes: engines and precisions that the first worker tried, if the configuration left engine or precision open.
        batching: batching of the model for people, as the lanes measured last have found.
    """

    model_hash: str
    choice: Choice
    objective: Objective
    budget: str
    tried: list[Tried]
    took_s: float
    busiest_load: float
    runtimes: tuple[TriedRuntime, ...]
    batching: str

    @property
    def chosen(self) -> Tried:
        """Candidate of the choice."""
        wanted = Candidate(Shape(self.choice.workers, self.choice.threads), self.choice.batch)
        return next(tried for tried in self.tried if tried.candidate == wanted)

    @property
    def fastest(self) -> Tried:
        """Candidate with the best figures. The choice may be a simpler candidate with figures nearly as good."""
        found = {tried.candidate: tried for tried in self.tried if tried.turns and not tried.refused}
        return found[ranked({one: tried.middle for one, tried in found.items()}, self.objective)[0]]

    @property
    def met(self) -> bool:
        """True if the choice meets the objective. If not, the choice is the candidate with the fastest answers."""
        return self.objective.met(self.chosen.middle)


def described(report: TuningReport) -> dict[str, Any]:
    """Return the whole report for JSON."""
    rows: list[dict[str, Any]] = []
    for tried in report.tried:
        (workers, threads), batch = tried.candidate
        row: dict[str, Any] = {"workers": workers, "threads": threads, "batch": batch}
        if tried.turns:
            middle = tried.middle
            row |= {"records_per_s": middle.rate, "p50_ms": middle.p50_ms, "p99_ms": middle.p99_ms}
        rows.append(row | {"turns": [turn.rate for turn in tried.turns], "refused": tried.refused})
    return {
        "chosen": msgspec.to_builtins(report.choice),
        "objective": str(report.objective),
        "met": report.met,
        "budget": report.budget,
        "took_s": round(report.took_s, 1),
        "load_used_of_a_core": round(report.busiest_load, 3),
        "tried": rows,
        "batching": report.batching,
        "runtimes": msgspec.to_builtins(report.runtimes),
    }
