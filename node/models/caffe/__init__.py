"""Caffe networks (`.prototxt` + `.caffemodel`), run by the dnn module of OpenCV 4."""

import os
from bisect import bisect_left
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np

from cluster_serving.node.models.base import Array, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.caffe.prototxt import Network, Shape, read_network
from cluster_serving.node.models.detect import Detected

_SPATIAL = 2  # the first axis after the batch and the channels
_GROWTH = 32  # the product of the strides of the usual networks, so that the arrays of every layer become larger
# Layers that give a row for each object found, for any number of input rows.
_DETECTORS = ("DetectionOutput", "Proposal")


class CaffeBackend:
    """A network of OpenCV."""

    def __init__(self, net: "_Net", inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._net = net

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the network once on `batch`, which is copied. The results are new."""
        return self._net.run(batch)


def load(detected: Detected, options: LoadOptions) -> CaffeBackend:
    """Load a definition with its weights, and run the network on zeros, because OpenCV finds most faults only in a run.

    Heights and widths are free if the network also runs at a larger size. The batch is free if every output has as many rows as
    the batch. Otherwise, as with a detector, the network takes a single row.

    Args:
        detected: place of the two files.
        options: the threads that OpenCV may use in the process. Configured shapes of inputs go before shapes of the definition.
            OpenCV computes in float32.

    Raises:
        ModelError: a file is broken, the two files do not belong together, a layer is unknown to OpenCV, or a shape is missing.
    """
    if not hasattr(cv2.dnn, "readNetFromCaffe"):
        raise ModelError(
            f"{detected.definition} cannot be loaded: OpenCV {cv2.__version__} has dropped Caffe; "
            "pip install 'opencv-python-headless<5'."
        )
    cv2.setNumThreads(options.threads)
    files = _Files(detected)
    declared = options.declared(list(files.network.inputs))
    shapes = {
        name: _shape_to_try(files.path, name, shape, declared.get(name)) for name, shape in files.network.inputs.items()
    }
    with _quiet():
        try:
            net = _Net(files.network, files.weights)
            results = net.run(_zeros(shapes))
        except cv2.error as error:
            raise ModelError(_explain(files, shapes, error)) from error
        return _backend(net, shapes, declared, results)


class _Files:
    """A definition that has been read, and the path of its weights."""

    def __init__(self, detected: Detected) -> None:
        self.path = detected.definition
        self.weights = detected.weights or Path()
        try:
            self.network: Network = read_network(self.path.read_bytes().decode("utf-8-sig", errors="surrogateescape"))
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{self.path} is no Caffe network that can be served: {error}.") from error
        if not self.weights.stat().st_size:
            raise ModelError(f"{self.weights} is empty: copy it again.")


class _Net:
    """OpenCV's network of a definition, and the names of its outputs.

    Raises:
        cv2.error: OpenCV refuses a file, or refuses a layer during a run.
    """

    def __init__(self, network: Network, weights: Path) -> None:
        # The definition is a file in memory, because OpenCV copies buffers, and weights may have half a gigabyte.
        with os.fdopen(os.memfd_create("prototxt"), "wb") as definition:
            definition.write(network.text().encode(errors="surrogateescape"))
            definition.flush()
            self._net = cv2.dnn.readNetFromCaffe(f"/proc/self/fd/{definition.fileno()}", str(weights))
        layers = {layer.name: layer for layer in network.layers}
        self._inputs = tuple(network.inputs)
        self._last: Sequence[str] = [
            name for name in self._net.getUnconnectedOutLayersNames() if layers[name].type.lower() != "silence"
        ]
        # A single array has the name of its layer. Several arrays have names of their own.
        self._outputs = [tops if len(tops := layers[name].tops) > 1 else (name,) for name in self._last]
        self.follows_batch = not any(layers[name].type in _DETECTORS for name in self._last)
        self.has_one_size = any(layer.type.replace("_", "").lower() == "innerproduct" for layer in network.layers)

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        for name in self._inputs:
            self._net.setInput(batch[name], name)
        results = self._net.forwardAndRetrieve(self._last)
        # A pooling layer gives the places of the maxima after its top.
        return {
            name: array
            for names, arrays in zip(self._outputs, results, strict=True)
            for name, array in zip(names, arrays, strict=False)
        }

    def can_run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Return the results, or none if the network does not run on the arrays."""
        try:
            return self.run(batch)
        except cv2.error:
            return {}

    def lacks(self, layer: str) -> bool:
        """Return whether OpenCV does not know the type of a layer."""
        try:
            self._net.getLayer(layer)
        except cv2.error as error:
            return "Can't create layer" in error.err
        return False


def _backend(
    net: _Net, shapes: dict[str, Shape], declared: dict[str, TensorSpec], results: dict[str, Array]
) -> CaffeBackend:
    """Build the backend. Runs on more rows and on more pixels show the free dimensions."""
    doubled = net.can_run(_zeros(shapes, rows=2)) if net.follows_batch else {}
    batch = None if doubled and all(len(array) == 2 for array in doubled.values()) else 1
    larger: dict[str, Shape] = {}  # with more height and width, unless the configuration fixes height and width
    for name, shape in shapes.items():
        stated = declared.get(name)
        fixed = stated.shape if stated else None
        larger[name] = tuple(
            dim + _GROWTH if at >= _SPATIAL and (not fixed or fixed[at] is None) else dim
            for at, dim in enumerate(shape)
        )
    grown = {} if net.has_one_size or larger == shapes else net.can_run(_zeros(larger))
    inputs = [
        TensorSpec(name, "float32", (batch, *_free(shape, larger[name] if grown else shape)))
        for name, shape in shapes.items()
    ]
    outputs = [
        TensorSpec(name, "float32", (batch, *_free(array.shape, grown[name].shape if grown else array.shape)))
        if net.follows_batch
        else TensorSpec(name, "float32", None)
        for name, array in results.items()
    ]
    return CaffeBackend(net, tuple(inputs), tuple(outputs))


def _free(shape: Shape, other: Shape) -> tuple[int | None, ...]:
    """Return a row's shape, with `None` for the dimensions that differ between the two shapes."""
    return tuple(dim if dim == changed else None for dim, changed in zip(shape[1:], other[1:], strict=True))


def _zeros(shapes: dict[str, Shape], rows: int = 1) -> dict[str, Array]:
    return {name: np.zeros((rows, *shape[1:]), np.float32) for name, shape in shapes.items()}


def _shape_to_try(path: Path, name: str, stated: Shape | None, declared: TensorSpec | None) -> Shape:
    """Return the configured shape of an input for one row, completed from the definition."""
    wanted = stated if declared is None else declared.shape or stated
    if wanted:
        known = stated if stated is not None and len(stated) == len(wanted) else wanted
        row = [dim or other or 0 for dim, other in zip(wanted[1:], known[1:], strict=True)]
        if min(row, default=1) > 0:
            return (1, *row)
    raise ModelError(
        f"{path} does not state the shape of its input {name!r}: add an input_shape with all its dimensions, or set "
        f"modelInputs, as in {name} float32 [N,3,224,224]."
    )


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """Silence the log of OpenCV, because OpenCV also logs the errors that it raises."""
    level = cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    try:
        yield
    finally:
        cv2.utils.logging.setLogLevel(level)


def _explain(files: _Files, shapes: dict[str, Shape], error: cv2.error) -> str:
    """Return a sentence for an error of OpenCV on zeros of the shapes. The error itself names neither file nor layer."""
    if "ReadProtoFromBinary" in error.err:
        return f"{files.weights} was cut short or holds no weights of Caffe: copy it again."
    layers = files.network.layers

    def fails(count: int) -> bool:
        try:
            _Net(files.network.first(count), files.weights).run(_zeros(shapes))
        except cv2.error:
            return True
        return False

    reason = " ".join(error.err.replace(">", " ").split())
    if "Can't create layer" in reason:
        net = _Net(files.network, files.weights)
        unknown = ", ".join(f"{layer.name!r} of type {layer.type}" for layer in layers if net.lacks(layer.name))
        return f"{files.path} has layers that OpenCV {cv2.__version__} does not know: {unknown}."
    # The first layer with which the network fails. With all layers, the network is known to fail.
    layer = layers[bisect_left(range(1, len(layers)), True, key=fails)]
    if "ReadProtoFromText" in error.err:
        return f"{files.path}: the layer {layer.name!r} ({layer.type}) has a field or a value that is not of Caffe."
    return (
        f"{files.path}: the layer {layer.name!r} ({layer.type}) does not run with the weights in {files.weights}; "
        f"are the two files of the same network? OpenCV says: {reason}."
    )
