"""A process that quantises a model to INT8 with NNCF, apart from the worker: NNCF takes memory and time, and may hang.

    <directory>/model.xml, .bin     the model in float32
    <directory>/input<port>.npy     its calibration inputs: items x the shape of a call
    <directory>/labels.npy          labels of the items, if there are any: items x records of a call
    <directory>/task.json           `Task`
    <directory>/int8.xml, .bin      result: an ordinary IR, which needs no NNCF
    <directory>/done.json           `Done`

The float32 weights stay in the IR as whole numbers of 8 bits, beside the ranges of the activations.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cluster_serving.client.servers.process.parent import die_with_parent
from cluster_serving.node.engines.agreement import by_metric, same_arg_max
from cluster_serving.node.models.base import Array, ModelError

# OpenVINO and NNCF report their use over the network if the first package is there (models/openvino.py). NNCF imports the other
# two if they are there, for models that never come here, which takes four times as long.
_ABSENT = ("openvino_telemetry", "torch", "tensorflow")
_MOST_TO_VALIDATE = 150  # by accuracy control, which runs them once or twice for each layer
_EXACT = {"INFERENCE_PRECISION_HINT": "f32"}
_WITH_WEIGHTS = frozenset(
    {
        "Convolution",
        "GroupConvolution",
        "ConvolutionBackpropData",
        "GroupConvolutionBackpropData",
        "MatMul",
    }
)
_TO_CONSTANT = frozenset({"FakeQuantize", "Convert", "Multiply", "Subtract", "Reshape", "Transpose"})
_TO_SOFTMAX = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Convert", "Select"})
# Activations with negative values: the documentation of NNCF advises the preset MIXED.
_SIGNED = frozenset({"Gelu", "Swish", "HSwish", "Mish", "Elu", "PRelu"})


class Task(msgspec.Struct, frozen=True):
    """Task of the process.

    `outputs`: name and port of each output. `is_exact`: the CPU adds products of 8 bits without overflow. `metric`:
    `accuracyMetric`, or empty. `most_drop`: share of the records that may differ, so that layers are taken back until no more do.
    None: no layer is taken back.
    """

    outputs: list[tuple[str, int]]
    is_exact: bool
    metric: str = ""
    most_drop: float | None = None


class Done(msgspec.Struct, frozen=True):
    """Names of the operations with weights that were quantised, and of the operations left in float32."""

    quantised: list[str]
    left: list[str]
    is_transformer: bool


def quantise(directory: Path) -> None:
    """Carry out the task in a directory."""
    import nncf

    from cluster_serving.node.models.openvino import ov

    nncf.set_log_level(logging.ERROR)
    task = msgspec.json.decode((directory / "task.json").read_bytes(), type=Task)
    model = ov.Core().read_model(directory / "model.xml")
    inputs = [np.load(directory / f"input{port}.npy", mmap_mode="r") for port in range(len(model.inputs))]

    def item(index: int) -> dict[int, Array]:
        return {port: np.ascontiguousarray(array[index]) for port, array in enumerate(inputs)}

    is_transformer = _has_attention(model)
    is_signed = is_transformer or any(op.get_type_name() in _SIGNED for op in model.get_ops())
    items = len(inputs[0])
    common: dict[str, Any] = {
        "preset": nncf.QuantizationPreset.MIXED if is_signed else nncf.QuantizationPreset.PERFORMANCE,
        "model_type": nncf.ModelType.TRANSFORMER if is_transformer else None,
        "subset_size": items,
    }
    advanced = nncf.AdvancedQuantizationParameters(
        overflow_fix=nncf.OverflowFix.FIRST_LAYER if task.is_exact else nncf.OverflowFix.ENABLE
    )
    calibration = nncf.Dataset(range(items), item)
    if task.most_drop is None:
        quantised = nncf.quantize(model, calibration, advanced_parameters=advanced, **common)
    else:
        validation = _Validation(directory, task, item, ov.Core().compile_model(model, "CPU", _EXACT))
        quantised = nncf.quantize_with_accuracy_control(
            model,
            calibration,
            nncf.Dataset(range(min(items, _MOST_TO_VALIDATE))),
            validation,
            max_drop=task.most_drop,
            advanced_quantization_parameters=advanced,
            advanced_accuracy_restorer_parameters=nncf.AdvancedAccuracyRestorerParameters(num_ranking_workers=1),
            **common,
        )
    ov.save_model(quantised, directory / "int8.xml", compress_to_fp16=False)
    done = Done(*_sorted(quantised), is_transformer)
    (directory / "done.json").write_bytes(msgspec.json.encode(done))


class _Validation:
    """Share of the items that agree with the model in float32, for NNCF."""

    def __init__(self, directory: Path, task: Task, item: Callable[[int], Any], reference: Any) -> None:
        self._item = item
        self._outputs = task.outputs
        self._judge = by_metric(task.metric) if task.metric else same_arg_max
        labels = directory / "labels.npy"
        self._labels = np.load(labels) if labels.exists() else None
        self._reference = reference.create_infer_request()
        self._expected: dict[int, dict[str, Array]] = {}

    def __call__(self, compiled: Any, indices: Iterable[int]) -> tuple[float, list[float]]:
        request = compiled.create_infer_request()
        shares: list[float] = []
        for index in indices:
            labels = None if self._labels is None else self._labels[index]
            if index not in self._expected:
                self._expected[index] = self._run(self._reference, index)
            agree = self._judge(self._expected[index], self._run(request, index), labels)
            shares.append(float(agree.mean()) if len(agree) else 1.0)
        return float(np.mean(shares)), shares

    def _run(self, request: Any, index: int) -> dict[str, Array]:
        results = request.infer(self._item(index))
        return {name: np.array(results[port]) for name, port in self._outputs}


def _sorted(model: Any) -> tuple[list[str], list[str]]:
    """Return the names of the operations with constant weights: with weights of 8 bits, and with float32 weights."""
    quantised: list[str] = []
    left: list[str] = []
    for op in model.get_ops():
        if op.get_type_name() in _WITH_WEIGHTS:
            *above, weights = _chain(op, 1, _TO_CONSTANT)
            if weights.get_type_name() == "Constant":
                # Weights that are reshaped, as of grouped convolutions, stay floats in the file, with their ranges.
                in_int8 = weights.get_element_type().type_name in ("i8", "u8") or any(
                    node.get_type_name() == "FakeQuantize" for node in above
                )
                (quantised if in_int8 else left).append(str(op.get_friendly_name()))
    return quantised, left


def _has_attention(model: Any) -> bool:
    """Return whether the model multiplies the result of a Softmax, as attention does."""
    for op in model.get_ops():
        kind = op.get_type_name()
        if kind == "ScaledDotProductAttention":
            return True
        if kind == "MatMul":
            *_, source = _chain(op, 0, _TO_SOFTMAX)
            if source.get_type_name() == "Softmax":
                return True
    return False


def _chain(op: Any, port: int, passed: frozenset[str]) -> Iterator[Any]:
    """Yield the producers of an input, from the nearest to the first that is not `passed`."""
    node = op.input_value(port).get_node()
    yield node
    while node.get_type_name() in passed:
        node = node.input_value(0).get_node()
        yield node


def main() -> None:
    """Quantise the model in the directory of the command line. The last line of standard error tells why not."""
    die_with_parent()
    for name in _ABSENT:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        quantise(Path(sys.argv[1]))
    except ModelError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
