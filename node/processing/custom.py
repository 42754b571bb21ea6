"""User code around any model, `preprocess` and `postprocess`: `processing: steps.py:Steps` in config.yaml.

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

        def postprocess(self, outputs):     # {"probability": array} -> any JSON value
            best = outputs["probability"].argmax()
            return {"name": self.names[best], "probability": outputs["probability"][best]}

Either method alone is enough. Both methods are called once for each record, never for a batch. An exception becomes the answer of
its record alone.

`preprocess` receives the client's values under the client's names. A tensor, dense or sparse, is a (read-only) array. An image is
the bytes of the file. Text is a str or nested lists of str. A sequence is a list of arrays. `preprocess` returns a dict with a
value for each input of the model, without the batch dimension. For a model with a single input, the bare value is enough. Returned
values are checked and converted like the values of a client.

`postprocess` receives the record's outputs as arrays without the batch dimension. Outputs of a record that is a batch by itself
keep the batch dimension. `postprocess` returns a dict of arrays only, sent like the outputs of a model, or any JSON value, with
numbers and arrays of numpy allowed. The JSON value becomes the result's `value`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from cluster_serving.node.models.base import Array, ModelError
from cluster_serving.node.models.user_code import execute, faults_in, faults_of, place_of, public_classes

_MODULE = "_cluster_serving_processing"


class Processing:
    """Object of the user's class, and the file (`path`) of the class. `beat` is called before the code runs for a record."""

    def __init__(self, steps: Any, path: Path, beat: Callable[[], None] | None = None) -> None:
        self._steps = steps
        self._path = path
        self._beat = beat or _nothing
        self.has_preprocess = callable(getattr(steps, "preprocess", None))
        self.has_postprocess = callable(getattr(steps, "postprocess", None))

    def preprocess(self, record: dict[str, Any]) -> Any:
        """Call the user's `preprocess`.

        Raises:
            UserFault: `preprocess` failed.
        """
        self._beat()
        with faults_in("preprocess", self._path):
            return self._steps.preprocess(record)

    def postprocess(self, outputs: dict[str, Array]) -> dict[str, Array] | bytes:
        """Call the user's `postprocess`.

        Returns:
            A dict of arrays, or JSON.

        Raises:
            UserFault: `postprocess` failed, or returned a value that cannot be written as JSON, or an array with masked values.
        """
        self._beat()
        with faults_in("postprocess", self._path):
            answer: object = self._steps.postprocess(outputs)
            if isinstance(answer, dict) and answer:
                items = cast("dict[object, object]", answer).items()
                if all(isinstance(key, str) and isinstance(value, np.ndarray) for key, value in items):
                    if masked := next((key for key, value in items if np.ma.is_masked(value)), None):
                        raise ValueError(f"{masked!r} has masked values: fill them, as numpy.ma.filled does")
                    return cast("dict[str, Array]", answer)
            return msgspec.json.encode(answer, enc_hook=_builtin)


def load(setting: str, beat: Callable[[], None] | None = None) -> Processing:
    """Execute the user's file and create the object.

    Args:
        setting: `/path/to/file.py:Class`.
        beat: called before the code runs for a record: a batch of slow records is no sign that a worker hangs.

    Raises:
        ModelError: the file is missing or fails, or the class is missing or has neither method. The message names the place.
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
        processing = Processing(steps, path, beat)
    if not (processing.has_preprocess or processing.has_postprocess):
        raise ModelError(
            f"{place_of(steps_class, path)}: class {name} has neither preprocess(self, record) nor "
            "postprocess(self, outputs)."
        )
    return processing


def _nothing() -> None:
    pass


def _builtin(value: Any) -> Any:
    """Convert numpy values to Python's own types."""
    match value:
        case np.floating():  # the item of a longdouble is itself
            return float(value)
        case np.generic():
            return value.item()
        case np.ndarray():
            return value.tolist()
        case _:
            raise TypeError(f"a {type(value).__name__} cannot be sent: return numbers, text, lists, dicts or arrays")
