"""The user's own `preprocess` and `postprocess`, around any model: `processing: steps.py:Steps` in config.yaml.

    from pathlib import Path
    import cv2
    import numpy as np

    class Steps:
        def load(self):                     # optional: called once in each worker, before anything else
            self.names = Path(__file__).with_name("names.txt").read_text().split()

        def preprocess(self, record):       # {"photo": bytes, "prompt": "a cat"} -> {"image": array, "length": 5}
            photo = cv2.imdecode(np.frombuffer(record["photo"], np.uint8), cv2.IMREAD_COLOR)
            photo = cv2.resize(photo, (224, 224))[:, :, ::-1] / 255
            return {"image": photo.transpose(2, 0, 1), "length": len(record["prompt"])}

        def postprocess(self, outputs):     # {"probability": array} -> anything that JSON can say
            best = outputs["probability"].argmax()
            return {"name": self.names[best], "probability": outputs["probability"][best]}

One of the two methods is enough. Both are called once for each record, never for a batch, and what they raise is the answer of
that record alone.

`preprocess` gets what the client sent, under the client's names: a tensor as a (read-only) array, a sparse one too, an image as
the bytes of its file, text as a str or nested lists of them. It returns a value for each input of the model by name, without the
batch dimension, or just the value where the model has one input. Values are checked and converted as those of a client are.

`postprocess` gets the record's outputs as arrays without the batch dimension; those of a record that is a batch by itself whole.
It returns a dict of arrays and nothing else, which are sent as a model's outputs are; or anything that JSON can say, numbers and
arrays of numpy included: the result's `value`.
"""

from pathlib import Path
from typing import Any, TypeGuard, cast

import msgspec
import numpy as np

from cluster_serving.node.models.base import Array, ModelError
from cluster_serving.node.models.user_code import execute, faults_in, faults_of, place_of, public_classes

_MODULE = "_cluster_serving_processing"


class Processing:
    """An object of the user's class; `path` is its file."""

    def __init__(self, steps: Any, path: Path) -> None:
        self._steps = steps
        self._path = path
        self.has_preprocess = callable(getattr(steps, "preprocess", None))
        self.has_postprocess = callable(getattr(steps, "postprocess", None))

    def preprocess(self, record: dict[str, Any]) -> Any:
        """Call the user's method.

        Raises:
            UserFault: it failed.
        """
        with faults_in("preprocess", self._path):
            return self._steps.preprocess(record)

    def postprocess(self, outputs: dict[str, Array]) -> dict[str, Array] | bytes:
        """Call the user's method.

        Returns:
            A dict of arrays, or JSON.

        Raises:
            UserFault: it failed, or returned what JSON cannot say.
        """
        with faults_in("postprocess", self._path):
            answer: object = self._steps.postprocess(outputs)
            if _is_outputs(answer):
                return answer
            return msgspec.json.encode(answer, enc_hook=_builtin)


def load(setting: str) -> Processing:
    """Execute the user's file and make the object.

    Args:
        setting: `/path/to/file.py:Class`.

    Raises:
        ModelError: the file fails, or its class is not as it should be; the message says where.
    """
    file, _, name = setting.rpartition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise ModelError(f"processing is {setting}, and there is no file {path}.")
    with faults_of(path):
        module = execute(path, _MODULE)
        steps_class = getattr(module, name, None)
        if not isinstance(steps_class, type):
            names = ", ".join(each.__name__ for each in public_classes(module)) or "none"
            raise ModelError(f"processing is {setting}, and {path} has no class {name}; its classes: {names}.")
        steps: Any = steps_class()
        prepare = getattr(steps, "load", None)
        if prepare is not None:
            prepare()
        processing = Processing(steps, path)
    if not (processing.has_preprocess or processing.has_postprocess):
        raise ModelError(
            f"{place_of(steps_class, path)}: class {name} has neither preprocess(self, record) nor "
            "postprocess(self, outputs)."
        )
    return processing


def _is_outputs(answer: object) -> TypeGuard[dict[str, Array]]:
    if not isinstance(answer, dict) or not answer:
        return False
    items = cast("dict[object, object]", answer).items()
    return all(isinstance(key, str) and isinstance(value, np.ndarray) for key, value in items)


def _builtin(value: Any) -> Any:
    """What numpy has, in Python's own types."""
    match value:
        case np.generic():
            return value.item()
        case np.ndarray():
            return value.tolist()
        case _:
            raise TypeError(f"a {type(value).__name__} cannot be sent: return numbers, text, lists, dicts or arrays")
