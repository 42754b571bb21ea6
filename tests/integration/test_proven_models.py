"""Reference models keep their rows together after the first records."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.in_process import Serving

MODELS = Path(__file__).resolve().parents[3] / "shared" / "models"
CASES: list[dict[str, Any]] = json.loads((MODELS / "cases.json").read_text()) if MODELS.is_dir() else []
SAMPLE = {"squeezenet-onnx", "mtcnn-rnet-caffe", "bigdl-lenet-int8", "bigdl-zoo-text", "bigdl-lstm"}

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason=f"the model fixtures are not at {MODELS}")


@pytest.mark.parametrize("case", [case for case in CASES if case["id"] in SAMPLE], ids=lambda case: case["id"])
def test_rows_of_a_reference_model_ride_together(case: dict[str, Any]) -> None:
    inputs = {each["name"]: np.load(MODELS / each["file"]) for each in case["inputs"]}
    rows = range(len(next(iter(inputs.values()))))

    with Serving(MODELS / case["dir"], slot_bytes=64 << 20) as serving:
        serving.results([{name: array[row] for name, array in inputs.items()} for row in rows])

    assert serving.proof is not None
    assert serving.proof.described().startswith("checked: ")
