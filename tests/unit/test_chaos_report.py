import json

import pytest

from cluster_serving.node.chaos.history import Verdict
from cluster_serving.node.chaos.report import as_json, show
from cluster_serving.node.chaos.run import ChaosReport

VERDICTS = [Verdict("every record has one outcome", 1200), Verdict("no answer is wrong", 1200, 2, "u-7: \x1b[2J\x9b")]
REPORT = ChaosReport(7, VERDICTS, {"records sent": 12_000, "settled after s": 1.5}, ["no Redis was paused"], "/kept")


def test_report_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show(REPORT)

    assert capsys.readouterr().out.splitlines() == [
        "      check                            of  failed  the first one",
        "pass  every record has one outcome  1,200",
        "FAIL  no answer is wrong            1,200       2  u-7: \\x1b[2J\\x9b",
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
        "figures": REPORT.figures,
        "checks": [
            {"check": "every record has one outcome", "count": 1200, "failed": 0, "first": ""},
            {"check": "no answer is wrong", "count": 1200, "failed": 2, "first": "u-7: \x1b[2J\x9b"},
        ],
        "notes": ["no Redis was paused"],
        "directory": "/kept",
    }
