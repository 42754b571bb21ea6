"""Result of `bench` as text for people."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from cluster_serving.client.servers.process.table import Cell, Table, facts
from cluster_serving.node.commands.load_text import duration, number
from cluster_serving.node.commands.stages_text import stages_table
from cluster_serving.node.load.compare import Compared
from cluster_serving.node.load.result import FEWEST_ROUNDS, Result, Terms
from cluster_serving.node.load.windows import FEWEST, Window

_COLOURS = {"better": "green", "worse": "red"}
_LATE_MS = 10.0
_TEXT = 300


def live_line(window: Window) -> str:
    """Return the figures of a window as one line."""
    parts = [
        f"{number(window.rate)} requests/s",
        f"p50 {duration(window.p50_s) if window.took_s.size else '-'}",
        f"{window.under_way:,} under way",
    ]
    if window.failed:
        parts.append(f"{sum(window.failed.values()):,} failed")
    return "   ".join(parts)


def page(result: Result, before: Result | None, width: int) -> Iterator[str]:
    """Yield the lines about a result, and about its comparison with an earlier result, in `width` columns."""
    yield from facts(dict(_facts(result))).lines(width)
    if result.latency_ms is not None:
        found = result.latency_ms
        columns = {"p50": found.p50, "p90": found.p90, "p99": found.p99, "p99.9": found.p99_9, "max": found.max}
        table = Table("latency", *columns, "mean", numbers=(*columns, "mean"))
        table.add("ms", *(f"{value:,.2f}" for value in (*columns.values(), found.mean)))
        yield ""
        yield from table.lines(width)
    if result.stages_ms:
        means = {name: stage.mean for name, stage in result.stages_ms.items()}
        yield ""
        yield from stages_table(means, sum(means.values())).lines(width)
    if result.failed:
        table = Table("error", "requests", numbers={"requests"})
        for each in result.failed:
            table.add(each.code, f"{each.count:,}")
            table.add_below(" ".join(each.message.split())[:_TEXT])
        yield ""
        yield from table.lines(width)
    yield ""
    yield from wrap(result.limit.sentence, width)
    if before is not None:
        yield ""
        yield from comparison_table(result.comparison or ()).lines(width)
        for sentence in _honest(before, result):
            yield from wrap(sentence, width)


def comparison_table(found: Sequence[Compared]) -> Table:
    """Return a table with a row for each figure of two results."""
    numbers = ("before", "now", "now/before", "95 % interval")
    table = Table("figure", *numbers, "", numbers=numbers, wide={"figure"})
    for each in found:
        interval = f"{_share(each.low)} - {_share(each.high)}" if each.low or each.high else ""  # of one round: none
        verdict = (each.verdict, _COLOURS.get(each.verdict, ""))
        table.add(each.figure, _digits(each.before), _digits(each.now), _share(each.ratio), interval, verdict)
    return table


def _facts(result: Result) -> Iterator[tuple[str, Cell]]:
    terms = result.terms
    yield "job", f"{terms.job} over {'Redis' if terms.over == 'queue' else terms.over}"
    yield "records", terms.records
    load = f"{terms.connections:,} under way, each answer lets the next request go"
    if terms.rate is not None:
        load = f"{terms.rate:,g} a second by the clock ({terms.arrivals})"
    processes = result.sending.processes
    yield "load", f"{load}, by {processes} process{'es' * (processes > 1)}"
    settled = "stable" if result.stable else "not stable, so the next run may differ"
    if len(result.windows) < FEWEST * len(result.rounds):
        settled = "too short to tell whether it is stable"
    rounds = f" in {len(result.rounds)} rounds" if len(result.rounds) > 1 else ""
    yield "measured", f"{result.seconds:.1f} s{rounds}, after {result.settling_s:.1f} s; {settled}"
    rates = [window["rate_per_s"] for window in result.windows]
    yield (
        "requests/s",
        f"{_digits(result.rate_per_s)}, in single windows {_digits(min(rates))} to {_digits(max(rates))}",
    )
    if result.goodput_per_s is not None:
        share = result.goodput_per_s / result.rate_per_s if result.rate_per_s else 0.0
        yield (
            "goodput/s",
            f"{_digits(result.goodput_per_s)} within {terms.deadline_ms:g} ms, {share:.1%} of the answers",
        )
    failed = sum(each.count for each in result.failed)
    yield "failed", f"{failed:,} of {failed + result.answered:,}"
    if terms.rate is not None and result.unanswered:
        yield "unanswered", f"{result.unanswered:,} at the end, the oldest for {duration(result.oldest_ms / 1000)}"
    if terms.rate is not None and result.sending.late_ms > _LATE_MS:
        yield "sent late", f"by up to {duration(result.sending.late_ms / 1000)}, which counts as latency"


def _honest(before: Result, now: Result) -> Iterator[str]:
    """Yield lines about the worth of a comparison."""
    fields = [name for name in Terms.__struct_fields__ if getattr(before.terms, name) != getattr(now.terms, name)]
    if fields:
        yield f"The loads differ ({', '.join(fields)}), so the figures may not be comparable."
    if before.machine != now.machine:
        yield "The machines of the load differ, so the figures may not be comparable."
    if min(len(before.rounds), len(now.rounds)) < FEWEST_ROUNDS:
        yield "One run may differ from the next by much, so nothing is sure: give both loads --rounds 5."
    elif not (before.stable and now.stable):
        yield "A load was not stable, so the intervals are too narrow."


def _share(value: float | None) -> str:
    return "inf" if value is None else f"{value:.3f}"


def _digits(value: float) -> str:
    """Return three digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
