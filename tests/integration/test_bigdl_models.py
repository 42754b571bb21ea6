"""Every BigDL model among the fixtures gives what BigDL itself gave for it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.node.models.base import LoadOptions
from cluster_serving.node.models.bigdl import load
from cluster_serving.node.models.detect import detect

MODELS = Path(__file__).resolve().parents[2].parent / "shared" / "models"
INDEX = MODELS / "cases.json"
CASES: list[dict[str, Any]] = (
    [case for case in json.loads(INDEX.read_text()) if case["format"] == "bigdl"] if INDEX.exists() else []
)

pytestmark = pytest.mark.skipif(not CASES, reason=f"no model fixtures at {MODELS}")


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_model_gives_the_reference_values(case: dict[str, Any]) -> None:
    model = load(detect(str(MODELS / case["dir"])), LoadOptions())
    arrays = [np.load(MODELS / each["file"]) for each in case["inputs"]]
    expected = [np.load(MODELS / each["file"]) for each in case["outputs"]]
    names = [spec.name for spec in model.inputs] or [each["name"] for each in case["inputs"]]

    outputs = model.run(dict(zip(names, arrays, strict=True)))

    assert len(model.outputs) in (0, len(outputs))
    for (name, found), wanted in zip(outputs.items(), expected, strict=True):
        assert found.dtype == np.float32, name
        if case.get("compare") == "argmax":
            np.testing.assert_array_equal(found.argmax(-1), wanted.argmax(-1))
        else:
            np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=0, atol=case["atol"])
