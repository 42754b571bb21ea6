import json

import pytest

from cluster_serving.node.chaos.callers.tally import Tally
from cluster_serving.node.chaos.history import Verdict
from cluster_serving.node.chaos.report import as_json, show
from cluster_serving.node.chaos.run import ChaosReport

VERDICTS = [Verdict("every record has one outcome", 1200), Verdict("no answer is wrong", 1200, 2, "u-7: \x1b[2J\x9b")]
CALLERS = {"forks": Tally(1_204, 1_200, wrong=["u"], refused={"ConnectionLost": 2}), "breaks": Tally(8, 6, stopped=1)}
REPORT = ChaosReport(
    7, VERDICTS, CALLERS, {"records sent": 12_000, "settled after s": 1.5}, ["no Redis was paused"], "/kept"
)


def test_report_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show(REPORT)

    assert capsys.readouterr().out.splitlines() == [
        "      check                            of  failed  the first one",
        "pass  every record has one outcome  1,200",
        "FAIL  no answer is wrong            1,200       2  u-7: \\x1b[2J\\x9b",
        "",
        "caller  records  right  wrong  failed  stopped  refused for",
        "forks     1,204  1,200      1       0        0  ConnectionLost 2",
        "breaks        8      6      0       0        1",
        "",
        "figure            value",
        "records sent     12,000",
        "settled after s     1.5",
        "",
        "Note: no Redis was paused.",
        "Logs are kept in /kept",
        "FAILED. Seed 7",
    ]


def test_report_as_json() -> None:
    assert as_json(REPORT).replace("\n", "").isprintable()
    assert json.loads(as_json(REPORT)) == {
        "seed": 7,
        "passed": False,
        "callers": {
            "forks": {
                "records": 1204,
                "right": 1200,
                "wrong": 1,
                "failed": 0,
                "stopped": 0,
                "refused": {"ConnectionLost": 2},
            },
            "breaks": {"records": 8, "right": 6, "wrong": 0, "failed": 0, "stopped": 1, "refused": {}},
        },
        "figures": REPORT.figures,
        "checks": [
            {"check": "every record has one outcome", "count": 1200, "failed": 0, "first": ""},
            {"check": "no answer is wrong", "count": 1200, "failed": 2, "first": "u-7: \x1b[2J\x9b"},
        ],
        "notes": ["no Redis was paused"],
        "directory": "/kept",
    }
