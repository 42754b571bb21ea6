"""SqueezeNet, raw photos in and probabilities out, gives the reference values on every backend."""

import json
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.node.engines import engine
from cluster_serving.node.engines.precision import has_bfloat16
from cluster_serving.node.engines.trials import Trials
from cluster_serving.node.models.base import LoadOptions, TensorSpec
from cluster_serving.node.models.detect import detect, load
from cluster_serving.node.models.runtime import Runtime
from cluster_serving.node.processing.image import ImageFit
from cluster_serving.node.processing.topn import parse_filter

MODELS = Path(__file__).resolve().parents[2].parent / "shared" / "models"
PHOTOS = ("cat1", "dog1", "fish1")
TOLERANCE = 1e-4

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason=f"no model fixtures at {MODELS}")


@pytest.mark.parametrize("backend", ["onnx", "openvino"])
def test_squeezenet(backend: str) -> None:
    model = load(detect(str(MODELS / f"squeezenet-{backend}")), LoadOptions())
    expected = np.load(MODELS / "squeezenet.expected.npy")
    images = np.load(MODELS / "squeezenet.input.npy")

    probabilities = model.run({"data": images})["prob"]

    assert model.inputs == (TensorSpec("data", "float32", (None, 3, 227, 227)),)
    assert [(spec.name, spec.dtype) for spec in model.outputs] == [("prob", "float32")]
    np.testing.assert_allclose(probabilities.reshape(expected.shape), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("backend", ["onnx", "openvino"])
def test_photos_from_file_to_top_5(backend: str) -> None:
    """The whole path of a record's value: decode, resize, model, filter."""
    model = load(detect(f"file://{MODELS}/squeezenet-{backend}"), LoadOptions())
    fit = ImageFit(model.inputs[0])
    top_5 = parse_filter("topN(5)")
    assert top_5 is not None

    for photo in PHOTOS:
        row = fit((MODELS / "photos" / f"{photo}.jpeg").read_bytes())
        found = top_5(model.run({"data": row[np.newaxis]})["prob"][0])

        reference = json.loads((MODELS / f"squeezenet.{photo}.top5.json").read_text())["top5"]
        assert [index for index, _ in found] == [each["index"] for each in reference]
        np.testing.assert_allclose([value for _, value in found], [each["prob"] for each in reference], atol=TOLERANCE)


@pytest.mark.skipif(not has_bfloat16(), reason="this CPU has no bfloat16")
def test_bfloat16_is_exact_enough_for_photos() -> None:
    """It moves probabilities by 0.013 of the largest one; of random inputs, for which no class stands out, by 0.05."""
    model = detect(str(MODELS / "squeezenet-onnx"))

    loaded = engine.load(model, LoadOptions(), Runtime("auto", "auto"), 1, Trials(str(MODELS / "photos"), 0.02))

    exact, openvino, fast, *_ = loaded.candidates  # INT8 is next, and is refused: three photos prove nothing
    assert (exact.relative_error, exact.refused, openvino.refused, fast.refused) == (0, "", "", "")
    assert openvino.relative_error is not None
    assert fast.relative_error is not None
    assert openvino.relative_error < 1e-4 < fast.relative_error < 0.02
    assert fast.arg_max_agreement == 1
