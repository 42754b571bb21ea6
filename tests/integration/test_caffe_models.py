"""Caffe networks made elsewhere give the reference values."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.node.models.base import LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.detect import detect, load

MODELS = Path(__file__).resolve().parents[2].parent / "shared" / "models"
CASES: list[dict[str, Any]] = (
    [case for case in json.loads((MODELS / "cases.json").read_text()) if case["format"] == "caffe"]
    if MODELS.is_dir()
    else []
)

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason=f"no model fixtures at {MODELS}")


@pytest.mark.parametrize("case", [case for case in CASES if case["outputs"]], ids=lambda case: case["id"])
def test_reference_values(case: dict[str, Any]) -> None:
    backend = load(detect(str(MODELS / case["dir"])), LoadOptions())
    batch = {each["name"]: np.load(MODELS / each["file"]) for each in case["inputs"]}

    outputs = backend.run(batch)

    assert [spec.name for spec in backend.inputs] == list(batch)
    assert [spec.name for spec in backend.outputs] == list(outputs) == [each["name"] for each in case["outputs"]]
    for each in case["outputs"]:
        expected = np.load(MODELS / each["file"])
        np.testing.assert_allclose(outputs[each["name"]].reshape(expected.shape), expected, rtol=0, atol=case["atol"])


@pytest.mark.parametrize(
    ("directory", "inputs", "outputs"),
    [
        ("mtcnn-pnet-caffe", (None, 3, None, None), [(None, 4, None, None), (None, 2, None, None)]),
        ("mtcnn-rnet-caffe", (None, 3, 24, 24), [(None, 4), (None, 2)]),
        ("mtcnn-onet-caffe", (None, 3, 48, 48), [(None, 4), (None, 10), (None, 2)]),
        ("squeezenet-caffe", (None, 3, None, None), [(None, 1000, 1, 1)]),
    ],
)
def test_shapes(directory: str, inputs: tuple[int | None, ...], outputs: list[tuple[int | None, ...]]) -> None:
    backend = load(detect(str(MODELS / directory)), LoadOptions())

    assert backend.inputs == (TensorSpec("data", "float32", inputs),)
    assert [spec.shape for spec in backend.outputs] == outputs


def test_layers_of_unknown_types() -> None:
    with pytest.raises(ModelError) as caught:
        load(detect(str(MODELS / "caffe-unsupported-layer")), LoadOptions())

    message = str(caught.value)
    assert message.startswith(str(MODELS / "caffe-unsupported-layer" / "test.prototxt"))
    assert message.endswith("does not know: 'customized' of type Dummy, 'loss' of type SoftmaxWithLoss.")
