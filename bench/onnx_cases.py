"""Cases of ONNX's own backend test suite, with the answers that ONNX Runtime gives by itself.

The cases come with the package `onnx`: a model, inputs and expected outputs. A case counts if ONNX Runtime loads the model, and
answers the inputs as expected.
"""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import numpy_helper

Array = NDArray[Any]

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")
_FATAL = 4


class Case(NamedTuple):
    """A case: a model, values of its inputs by name, expected outputs in the model's order, and the tolerance of the suite."""

    kind: str
    name: str
    model: bytes
    inputs: dict[str, Any]
    expected: list[Any]
    rtol: float
    atol: float


def cases() -> Iterator[Case]:
    """Yield every case, in the same order each time."""
    from onnx.backend.test.case.node import collect_testcases
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, of computing expected outputs
        generated: list[Any] = collect_testcases(None)
    for case in generated:
        graph = case.model.graph
        for at, (inputs, outputs) in enumerate(case.data_sets):
            names = [value.name for value in graph.input]
            values = dict(zip(names, map(_value, inputs), strict=False))
            expected = [_value(each) for each in outputs]
            number = f"#{at}" if at else ""
            model = case.model.SerializeToString()
            yield Case("node", case.name + number, model, values, expected, case.rtol, case.atol)
    for kind in KINDS[1:]:
        found: list[Any] = load_model_tests(kind=kind)
        for case in found:
            folder = Path(case.model_dir)
            model = (folder / "model.onnx").read_bytes()
            graph = onnx.load_from_string(model).graph
            for at, data in enumerate(sorted(folder.glob("test_data_set_*"))):
                values = {
                    value.name: content
                    for value, content in zip(graph.input, _files(data, "input", graph.input), strict=False)
                }
                number = f"#{at}" if at else ""
                expected = _files(data, "output", graph.output)
                yield Case(kind, case.name + number, model, values, expected, case.rtol, case.atol)


def answered_by_runtime(case: Case) -> list[Any] | None:
    """Return the outputs that ONNX Runtime gives. None: ONNX Runtime does not pass the case."""
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL
    try:
        session = ort.InferenceSession(case.model, options, providers=["CPUExecutionProvider"])
        outputs: Any = session.run(None, case.inputs)
    except Exception:  # its errors have no common base class
        return None
    alike = len(outputs) == len(case.expected) and all(
        is_same(found, expected, case.rtol, case.atol) for found, expected in zip(outputs, case.expected, strict=True)
    )
    return outputs if alike else None


def is_same(found: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-5) -> bool:
    """Return whether two outputs have the same form, dtype and values. Text and whole numbers are compared exactly."""
    if isinstance(expected, (list, tuple)) or isinstance(found, (list, tuple)):
        try:
            pairs = list(zip(found, expected, strict=True))
        except (TypeError, ValueError):
            return False
        return all(is_same(one, other, rtol, atol) for one, other in pairs)
    if isinstance(expected, Mapping):
        alike = isinstance(found, Mapping) and list(found) == list(expected)
        return alike and all(is_same(found[key], expected[key], rtol, atol) for key in expected)
    if expected is None or found is None:
        return found is expected
    a, b = np.asarray(found), np.asarray(expected)
    if a.shape != b.shape:
        return False
    if not {a.dtype.kind, b.dtype.kind}.isdisjoint("OUST"):
        return list(map(_text, a.reshape(-1).tolist())) == list(map(_text, b.reshape(-1).tolist()))
    if a.dtype != b.dtype:
        return False
    return bool(np.array_equal(a, b) or (a.dtype.kind in "fc" and np.allclose(a, b, rtol, atol, equal_nan=True)))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _value(value: Any) -> Any:
    match value:
        case onnx.TensorProto():
            return numpy_helper.to_array(value)
        case onnx.SequenceProto():
            return numpy_helper.to_list(value)
        case onnx.OptionalProto():
            return numpy_helper.to_optional(value)
        case np.generic() | int() | float():
            return np.asarray(value)
        case _:
            return value


def _files(folder: Path, kind: str, values: Any) -> list[Any]:
    found: list[Any] = []
    for at in range(len(list(folder.glob(f"{kind}_*.pb")))):
        content, declared = (folder / f"{kind}_{at}.pb").read_bytes(), values[at].type
        if declared.HasField("sequence_type"):
            found.append(_value(onnx.SequenceProto.FromString(content)))
        elif declared.HasField("optional_type"):
            found.append(_value(onnx.OptionalProto.FromString(content)))
        else:
            found.append(_value(onnx.TensorProto.FromString(content)))
    return found


def sendable(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a case as a program sends them."""
    return {name: value if isinstance(value, np.ndarray) else {"sequence": value} for name, value in inputs.items()}
