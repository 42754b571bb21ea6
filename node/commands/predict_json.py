"""Answers of `predict` as JSON, an object a line. `docs/how-to/predict.md` describes the object."""

import json
from typing import Any, cast

import numpy as np

from cluster_serving.client.wire.tensors import Array
from cluster_serving.node.commands.predict_answers import Answer

_STATISTICS = ("min", "mean", "max")


def as_json(answer: Answer) -> str:
    """Return an answer as one line of JSON."""
    return json.dumps(
        {
            "record": answer.record,
            "job": answer.job,
            "total_ms": round(answer.total_ms, 3),
            "stages_ms": {name: round(ms, 3) for name, ms in answer.stages_ms.items()},
            "outputs": [
                {"name": name, **statistics(value), "data": plain(value)} for name, value in answer.outputs.items()
            ],
            "value": answer.value,
            "error": {"code": answer.error[0], "message": answer.error[1]} if answer.error else None,
        }
    )


def statistics(value: Any) -> dict[str, Any]:
    """Return dtype, shape, min, mean and max of an array. All are None for another value, the last three without numbers."""
    if not isinstance(value, np.ndarray):
        return dict.fromkeys(("dtype", "shape", *_STATISTICS))
    array = cast(Array, value)
    has_numbers = array.size > 0 and array.dtype.kind in "iufb"
    numbers = (array.min(), array.mean(dtype=np.float64), array.max()) if has_numbers else ()
    found = dict(zip(_STATISTICS, map(float, numbers), strict=False)) or dict.fromkeys(_STATISTICS)
    return {"dtype": str(array.dtype), "shape": list(array.shape), **found}


def plain(value: Any) -> Any:
    """Return arrays as nested lists, also within lists and maps."""
    if isinstance(value, np.ndarray):
        array = cast(Array, value)
        if array.dtype.kind == "f" and array.dtype.itemsize < 8:  # the shortest digits that restore each value
            array = array.astype("U").astype(np.float64)
        return array.tolist()
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value
