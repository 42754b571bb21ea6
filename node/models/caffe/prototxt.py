"""Network definitions of Caffe (`.prototxt`): the inputs with their shapes, and the layers that take part in serving.

The files are messages in the text format of protocol buffers (`text_format.py`). The fields that matter here are defined in
caffe.proto:

    NetParameter    input, input_dim (as many for each input) or input_shape { dim }, layer (in old files layers)
    layer           name, type, bottom, top, include { phase }, exclude { phase }, input_param { shape { dim } },
                    dummy_data_param { shape { dim } }, memory_data_param { batch_size channels height width }
"""

import json
from collections import Counter
from typing import NamedTuple

from cluster_serving.node.models.caffe.text_format import Message, read_message

Shape = tuple[int, ...]

# Layers that stand for inputs, and layers that read files, which a server does not have. Old files write MEMORY_DATA.
_INPUT_LAYERS = ("input", "memorydata", "dummydata")
_MEMORY_DATA = ("batch_size", "channels", "height", "width")
_FILE_LAYERS = ("data", "imagedata", "hdf5data", "windowdata", "annotateddata")


class Layer(NamedTuple):
    """A layer, the names of its inputs and outputs, and its text in the definition.

    `name` is the name in OpenCV, which numbers layers of the same name.
    """

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    text: str


class Network(NamedTuple):
    """A definition without the parts for training. The shape of an input is `None` if the file does not state it."""

    inputs: dict[str, Shape | None]
    layers: tuple[Layer, ...]

    def first(self, count: int) -> "Network":
        """Return the network of the first `count` layers, with the inputs that the layers read."""
        layers = self.layers[:count]
        read = {bottom for layer in layers for bottom in layer.bottoms}
        return Network({name: shape for name, shape in self.inputs.items() if name in read}, layers)

    def text(self) -> str:
        """Return the text of the definition, without shapes."""
        return "\n".join(
            [f"input: {json.dumps(name, ensure_ascii=False)}" for name in self.inputs]
            + [layer.text for layer in self.layers]
        )


def read_network(source: str) -> Network:
    """Read a definition.

    Raises:
        ValueError: the source is not in the text format, or cannot be served. The message names the fault.
    """
    net = read_message(source)
    found = net.messages("layer", "layers")
    if not found:
        raise ValueError("it has no layers" + ("; it is a solver's file" if net.word("net") else ""))
    inputs = _stated_inputs(net)
    layers: list[Layer] = []
    names: Counter[str] = Counter()
    for message, text in found:
        if not _serves(message):
            continue
        name, kind = message.word("name"), message.word("type")
        if not name or not kind:
            raise ValueError(
                "it has a layer without name or type; upgrade_net_proto_text of Caffe mends old definitions"
            )
        plain_kind = kind.replace("_", "").lower()
        if plain_kind in _FILE_LAYERS:
            raise ValueError(f"its layer {name!r} ({kind}) reads files for training; serve the deploy definition")
        if plain_kind in _INPUT_LAYERS:
            inputs |= _fed_inputs(message, plain_kind)
            continue
        count = names[name]
        names[name] += 1
        unique = f"{name}_{count}" if count else name
        layers.append(Layer(unique, kind, tuple(message.words("bottom")), tuple(message.words("top")), text))
    # An input that no layer reads is a label, or is read by a layer for training.
    network = Network(inputs, tuple(layers)).first(len(layers))
    if not network.inputs:
        raise ValueError("it has no input that a layer reads; it needs a layer of type Input, which states its shape")
    return network


def _serves(layer: Message) -> bool:
    """Return whether a layer is present outside of training."""

    def phases(key: str) -> list[bool]:
        return [rule.word("phase") not in ("TRAIN", "0") for rule, _ in layer.messages(key)]

    included = phases("include")
    return any(included) if included else not any(phases("exclude"))


def _stated_inputs(net: Message) -> dict[str, Shape | None]:
    names = net.words("input")
    shapes = [_dims(shape.words("dim")) for shape, _ in net.messages("input_shape")]
    dims = _dims(net.words("input_dim"))
    if dims and names:
        rank = len(dims) // len(names)
        shapes = [dims[at : at + rank] for at in range(0, rank * len(names), rank)]
    return dict(zip(names, shapes if len(shapes) == len(names) else [None] * len(names), strict=True))


def _fed_inputs(layer: Message, kind: str) -> dict[str, Shape | None]:
    tops = layer.words("top")
    if kind == "memorydata":
        # The second top holds the labels.
        dims = [parameter.word(key) for parameter, _ in layer.messages("memory_data_param") for key in _MEMORY_DATA]
        return {tops[0]: _dims(dims)} if tops else {}
    parameters = layer.messages("input_param" if kind == "input" else "dummy_data_param")
    shapes = [_dims(shape.words("dim")) for parameter, _ in parameters for shape, _ in parameter.messages("shape")]
    if len(shapes) == 1:
        shapes *= len(tops)  # a single shape is for all tops
    return dict(zip(tops, shapes if len(shapes) == len(tops) else [None] * len(tops), strict=True))


def _dims(words: list[str]) -> Shape:
    try:
        return tuple(int(word) for word in words)
    except ValueError as error:
        raise ValueError(f"the dimensions {' '.join(words)} of an input are not all numbers") from error
