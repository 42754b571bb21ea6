import json
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench import report

from cluster_serving.node.load.compare import compared, direction


def rounds(name: str, *values: float) -> list[report.Figures]:
    return [{name: value} for value in values]


def verdict(name: str, a: Sequence[float], b: Sequence[float]) -> str:
    (found,) = compared(rounds(name, *a), rounds(name, *b), 0.05)
    return found.verdict


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("queue.records_per_s", 1),
        ("resnet50.tensor.of_bare", 1),
        ("mlp.queue.poisson.3x.goodput_of_capacity", 1),
        ("queue.floor_ratio", 1),
        ("predict.floor_ratio", -1),
        ("resnet50.tensor.cpu_of_bare", -1),
        ("reader.cpu_us_per_record", -1),
        ("mlp.queue.poisson.0.5x.p99_9_ms", -1),
        ("mlp.queue.poisson.0.5x.p99_of_limit", -1),
        ("ours.failed", -1),
        ("onnx.start_s", -1),
        ("swaps.calls", 0),
        ("swaps.rss_growth", 0),
    ],
)
def test_which_way_is_better_stands_in_a_figures_name(name: str, better: int) -> None:
    assert direction(name) == better


def test_a_change_beyond_what_is_tolerated_is_better_or_worse_by_its_direction() -> None:
    before, after = (100.0, 101.0, 99.0, 100.0, 102.0), (80.0, 81.0, 79.0, 80.0, 82.0)

    assert verdict("records_per_s", before, after) == "worse"
    assert verdict("records_per_s", after, before) == "better"
    assert verdict("p50_ms", before, after) == "better"


def test_rounds_that_scatter_more_than_they_differ_prove_nothing() -> None:
    assert verdict("records_per_s", (60.0, 140.0, 100.0, 80.0, 120.0), (50.0, 130.0, 90.0, 70.0, 110.0)) == "unsure"


def test_what_moves_less_than_is_tolerated_is_the_same() -> None:
    assert verdict("records_per_s", (100.0, 100.5, 101.0), (101.0, 101.5, 102.0)) == "same"


def test_failures_where_there_were_none_are_worse() -> None:
    assert verdict("failed", (0.0, 0.0, 0.0), (3.0, 4.0, 3.0)) == "worse"
    assert verdict("failed", (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)) == "same"


def test_one_round_is_never_sure() -> None:
    assert verdict("records_per_s", (100.0,), (10.0,)) == "unsure"


def test_only_what_all_rounds_of_both_have_is_compared() -> None:
    found = compared([{"a_per_s": 1, "b_per_s": 1}], [{"b_per_s": 2, "c_per_s": 1}], 0.05)

    assert [(each.figure, each.ratio) for each in found] == [("b_per_s", 2)]


def test_a_written_file_keeps_its_rounds_and_an_older_one_is_one_round(tmp_path: Path) -> None:
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    report.write(new, rounds("records_per_s", 1, 2, 4), versions={"x": "1.0"})
    old.write_text('{"records_per_s": 3.0, "mosec.version": "0.9"}')

    assert report.read(new) == rounds("records_per_s", 1, 2, 4)
    assert report.read(old) == rounds("records_per_s", 3)
    assert json.loads(new.read_text())["medians"] == {"records_per_s": 2}


@pytest.mark.parametrize(
    ("b", "code", "told"),
    [
        ('{"rounds": [{"r_per_s": 100}, {"r_per_s": 101}]}', 0, "same"),
        ('{"rounds": [{"r_per_s": 50}, {"r_per_s": 51}]}', 1, "worse"),
        ('{"rounds": [{"other": 50}]}', 2, "no figure in common"),
        ('{"rounds": []}', 2, "b.json holds no figures of a bench"),
        ("[1, 2]", 2, "b.json holds no figures of a bench"),
        ("{", 2, "b.json holds no figures of a bench"),
    ],
)
def test_the_command_says_by_its_exit_code_whether_something_got_worse(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    b: str,
    code: int,
    told: str,
) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    paths[0].write_text('{"rounds": [{"r_per_s": 100}, {"r_per_s": 101}]}')
    paths[1].write_text(b)

    monkeypatch.setattr(sys, "argv", ["bench", "compare", *map(str, paths)])

    with pytest.raises(SystemExit) as ended:
        runpy.run_module("bench", run_name="__main__")

    said = capsys.readouterr()
    assert ended.value.code == code
    assert told in said.out + said.err
    assert all(len(line) <= 80 for line in said.out.splitlines())
