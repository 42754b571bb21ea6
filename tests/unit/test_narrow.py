"""Numbers that numpy lacks, as ONNX Runtime stores them."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from cluster_serving.node.models.base import LoadOptions
from cluster_serving.node.models.detect import detect, load
from cluster_serving.node.models.narrow import NARROW, pack, unpack

BF16 = NARROW["tensor(bfloat16)"]
VALUES = np.array([[0, -0.0, 1, 1.00390625], [3.0e38, np.inf, -np.inf, 1 / 3]], np.float32)


def test_bfloat16_is_rounded_to_nearest() -> None:
    packed = pack(VALUES, BF16)

    assert packed.tobytes() == VALUES.astype(ml_dtypes.bfloat16).tobytes()
    np.testing.assert_array_equal(
        unpack(packed.tobytes(), (2, 4), BF16), VALUES.astype(ml_dtypes.bfloat16).astype("f4")
    )
    assert np.isnan(unpack(pack(np.array([np.nan], np.float32), BF16).tobytes(), (1,), BF16)).all()


@pytest.mark.parametrize(("name", "low", "high"), [("int4", -8, 7), ("uint4", 0, 15), ("int2", -2, 1), ("uint2", 0, 3)])
@pytest.mark.parametrize("count", [0, 1, 5, 16])
def test_bits_are_packed(name: str, low: int, high: int, count: int) -> None:
    narrow = NARROW[f"tensor({name})"]
    values = np.random.default_rng(3).integers(low, high + 1, count).astype(narrow.dtype)

    stored = pack(values, narrow).tobytes()[: -(-count * narrow.bits // 8)]

    np.testing.assert_array_equal(unpack(stored, (count,), narrow), values)


def cast(path: Path, taken: int, given: int) -> None:
    x, y = (helper.make_tensor_value_info(name, dtype, ["N", 4]) for name, dtype in (("x", taken), ("y", given)))
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=given)], "cast", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


@pytest.mark.parametrize(
    ("number", "given", "expected"),
    [
        (onnx.TensorProto.BFLOAT16, "float32", [[1, -2, 0.333984375, 7]]),
        (onnx.TensorProto.INT4, "int8", [[1, -2, 0, 7]]),
        (onnx.TensorProto.UINT4, "uint8", [[1, 14, 0, 7]]),
        (onnx.TensorProto.FLOAT8E5M2, "uint8", [[60, 192, 53, 71]]),
    ],
)
def test_a_model_gives_and_takes_them(tmp_path: Path, number: int, given: str, expected: list[list[float]]) -> None:
    cast(tmp_path / "to.onnx", onnx.TensorProto.FLOAT, number)
    cast(tmp_path / "from.onnx", number, onnx.TensorProto.FLOAT)
    to, back = (load(detect(str(tmp_path / name)), LoadOptions()) for name in ("to.onnx", "from.onnx"))
    x = np.array([[1, -2, 1 / 3, 7]], np.float32)

    narrow = to.run({"x": x})["y"]

    assert (to.outputs[0].dtype, narrow.dtype.name, back.inputs[0].dtype) == (given, given, given)
    assert narrow.tolist() == expected
    wide = back.run({"x": narrow})["y"]
    assert (wide.dtype.name, wide.shape) == ("float32", (1, 4))
    again = to.run({"x": wide})["y"]
    np.testing.assert_array_equal(again, narrow)
