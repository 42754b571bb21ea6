"""Caffe networks load with their inputs and outputs, and say what is wrong with broken ones."""

import struct
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from cluster_serving.node.models.base import LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.caffe import CaffeBackend
from cluster_serving.node.models.caffe.prototxt import read_network
from cluster_serving.node.models.detect import detect, load

Blobs = dict[str, list[NDArray[np.float32]]]

RANDOM = np.random.default_rng(3)
INPUTS = """
name: "two"  # two inputs, two outputs
input: "image" input_shape { dim: 8 dim: 3 dim: 6 dim: 5 }
input: "mask" input_shape { dim: 8 dim: 2 dim: 6 dim: 5 }
"""
CONVOLUTION = """
layer {
  name: "conv" type: "Convolution" bottom: "image" top: "conv"
  convolution_param { num_output: 2 kernel_size: 1 weight_filler { type: "xavier" } }
}
"""
SUM = (
    'layer { name: "sum" type: "Eltwise" bottom: "conv" bottom: "mask" top: "sum" eltwise_param { operation: SUM } }\n'
)
TURNED = "layer <name: 'turned', type: 'Power'; bottom: \"conv\" top: 'tur' 'ned' power_param { scale: -1 }>\n"
TWO = INPUTS + CONVOLUTION + SUM + TURNED
RELU = 'layer { name: "relu" type: "ReLU" bottom: "data" top: "relu" }\n'
DATA = 'input: "data" input_dim: 1 input_dim: 3 input_dim: 4 input_dim: 4\n'
KERNEL = RANDOM.standard_normal((2, 3, 1, 1), np.float32)
BIAS = RANDOM.standard_normal(2, np.float32)
WEIGHTS: Blobs = {"conv": [KERNEL, BIAS]}


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def caffemodel(blobs: Blobs) -> bytes:
    """NetParameter.layer = 100; LayerParameter: name 1, blobs 7; BlobProto: data 5, shape 7; BlobShape.dim 1."""
    layers = b""
    for name, arrays in blobs.items():
        layer = field(1, name.encode())
        for array in arrays:
            shape = field(1, b"".join(map(varint, array.shape)))
            layer += field(7, field(5, struct.pack(f"<{array.size}f", *array.ravel())) + field(7, shape))
        layers += field(100, layer)
    return field(1, b"net") + layers


def load_from(tmp_path: Path, prototxt: str, blobs: Blobs | None = None, inputs: tuple[str, ...] = ()) -> CaffeBackend:
    (tmp_path / "net.prototxt").write_text(prototxt)
    (tmp_path / "net.caffemodel").write_bytes(caffemodel(blobs or {}))
    backend = load(detect(str(tmp_path)), LoadOptions(inputs=inputs))
    assert isinstance(backend, CaffeBackend)
    return backend


def failure(tmp_path: Path, prototxt: str, blobs: Blobs | None = None) -> str:
    with pytest.raises(ModelError) as caught:
        load_from(tmp_path, prototxt, blobs)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert str(tmp_path) in text
    return text


def test_two_inputs_and_two_outputs(tmp_path: Path) -> None:
    """The batch changes between runs; results stay as they were."""
    backend = load_from(tmp_path, TWO, WEIGHTS)
    assert backend.inputs == (
        TensorSpec("image", "float32", (None, 3, None, None)),
        TensorSpec("mask", "float32", (None, 2, None, None)),
    )
    assert backend.outputs == (
        TensorSpec("sum", "float32", (None, 2, None, None)),
        TensorSpec("turned", "float32", (None, 2, None, None)),
    )
    earlier: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
    for rows, height, width in ((2, 6, 5), (3, 6, 5), (1, 9, 40)):
        image = RANDOM.standard_normal((rows, 3, height, width), np.float32)
        mask = RANDOM.standard_normal((rows, 2, height, width), np.float32)
        convolved = np.einsum("nchw,kc->nkhw", image, KERNEL[:, :, 0, 0]) + BIAS[:, np.newaxis, np.newaxis]

        outputs = backend.run({"image": image, "mask": mask})

        assert list(outputs) == ["sum", "turned"]
        earlier += [(outputs["sum"], convolved + mask), (outputs["turned"], -convolved)]
    for given, expected in earlier:
        np.testing.assert_allclose(given, expected, atol=1e-5)


def test_a_run_leaves_its_input_as_it_was(tmp_path: Path) -> None:
    """Also if the first layer works in place: inputs are views of memory that is used again."""
    backend = load_from(tmp_path, DATA + RELU.replace('top: "relu"', 'top: "data"'))
    rows = RANDOM.standard_normal((2, 3, 4, 4), np.float32)
    before = rows.copy()

    for _ in range(2):
        np.testing.assert_array_equal(backend.run({"data": rows})["relu"], before.clip(min=0))
        np.testing.assert_array_equal(rows, before)


@pytest.mark.parametrize("written", ["tëst", r"t\303\253st", r"t\xC3\xabst"])
def test_names_beyond_ascii_and_a_byte_order_mark(tmp_path: Path, written: str) -> None:
    relu = RELU.replace('"data"', f'"{written}"').replace('name: "relu"', f'name: "re{written}"')
    backend = load_from(tmp_path, "\ufeff" + DATA.replace("data", written) + relu)

    assert [spec.name for spec in backend.inputs] == ["tëst"]
    assert [spec.name for spec in backend.outputs] == ["retëst"]


def test_threads(tmp_path: Path) -> None:
    before = cv2.getNumThreads()
    try:
        load_from(tmp_path, DATA + RELU)
        assert cv2.getNumThreads() == LoadOptions().threads
    finally:
        cv2.setNumThreads(before)


DENSE = (
    'layer { name: "dense" type: "InnerProduct" bottom: "data" top: "dense" inner_product_param { num_output: 2 } }\n'
)
RESHAPE = (
    'layer { name: "flat" type: "Reshape" bottom: "data" top: "flat" reshape_param { shape { dim: 0 dim: 48 } } }\n'
)
WHOLE = 'layer { name: "flat" type: "Reshape" bottom: "data" top: "flat" reshape_param { shape { dim: 1 dim: -1 } } }\n'
POOL = 'layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: MAX global_pooling: true } }\n'
ROW = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 7 } } }\n'


@pytest.mark.parametrize(
    ("prototxt", "inputs", "outputs"),
    [
        (DATA + POOL, (None, 3, None, None), (None, 3, 1, 1)),
        (DATA + DENSE, (None, 3, 4, 4), (None, 2)),
        (DATA + RESHAPE, (None, 3, 4, 4), (None, 48)),
        (DATA + WHOLE, (1, 3, None, None), (1, None)),
        (ROW + RELU, (None, 7), (None, 7)),
        ('input: "data" input_dim: [1, 7]' + RELU, (None, 7), (None, 7)),
    ],
)
def test_which_dimensions_are_free(
    tmp_path: Path, prototxt: str, inputs: tuple[int | None, ...], outputs: tuple[int | None, ...]
) -> None:
    """A batch is not if an output mixes its rows."""
    blobs: Blobs = {"dense": [np.ones((2, 48), np.float32), np.zeros(2, np.float32)]}

    backend = load_from(tmp_path, prototxt, blobs)

    assert [spec.shape for spec in backend.inputs] == [inputs]
    assert [spec.shape for spec in backend.outputs] == [outputs]


@pytest.mark.parametrize(
    "layer",
    [
        'layer { name: "in" type: "Input" top: "data" input_param { shape: { dim: 1 dim: 3 dim: 4 dim: 4 } } }\n',
        'layer { name: "in" type: "DummyData" top: "data" dummy_data_param { shape { dim: 1 dim: 3 dim: 4 dim: 4 } } }\n',
        'layer { name: "in" type: "MemoryData" top: "data" top: "label" '
        "memory_data_param { batch_size: 9 channels: 3 height: 4 width: 4 } }\n",
        'layers { name: "in" type: MEMORY_DATA top: "data" top: "label" '
        "memory_data_param { batch_size: 9 channels: 3 height: 4 width: 4 } }\n",
    ],
)
def test_layers_that_are_inputs(tmp_path: Path, layer: str) -> None:
    relu = RELU.replace("layer", "layers").replace('"ReLU"', "RELU") if layer.startswith("layers") else RELU
    backend = load_from(tmp_path, layer + relu)
    rows = RANDOM.standard_normal((2, 3, 4, 4), np.float32)

    assert backend.inputs == (TensorSpec("data", "float32", (None, 3, None, None)),)
    np.testing.assert_array_equal(backend.run({"data": rows})["relu"], rows.clip(min=0))


def test_layers_for_training_are_left_out(tmp_path: Path) -> None:
    training = """
        input: "label" input_dim: 1 input_dim: 1 input_dim: 1 input_dim: 1
        layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN } data_param { source: "x" } }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "relu" bottom: "label" top: "loss" include: { phase: TRAIN } }
        layer { name: "noise" type: "Noise" bottom: "relu" top: "noise" exclude { phase: TEST } }
        layer { name: "test" type: "Power" bottom: "relu" top: "test" include { phase: TEST } }
        layer { name: "relu" type: "ReLU" bottom: "test" top: "last" exclude { phase: TRAIN } }
    """
    backend = load_from(tmp_path, DATA + RELU + training)

    assert [spec.name for spec in backend.inputs] == ["data"]
    assert [spec.name for spec in backend.outputs] == ["relu_1"]


def test_a_layer_with_several_outputs(tmp_path: Path) -> None:
    cut = 'layer { name: "cut" type: "Slice" bottom: "data" top: "first" top: "rest" slice_param { axis: 1 slice_point: 1 } }'
    silent = """
        layer { name: "silent" type: "ReLU" bottom: "data" top: "silent" }
        layer { name: "no" type: "Silence" bottom: "silent" }
    """
    backend = load_from(tmp_path, DATA + cut + silent)
    rows = RANDOM.standard_normal((2, 3, 4, 4), np.float32)

    outputs = backend.run({"data": rows})

    assert [spec.name for spec in backend.outputs] == list(outputs) == ["first", "rest"]
    np.testing.assert_array_equal(np.concatenate(list(outputs.values()), axis=1), rows)


def test_a_detector_takes_one_row(tmp_path: Path) -> None:
    """The output of a detector has a row for each object found."""
    detector = """
        input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
        layer { name: "boxes" type: "Pooling" bottom: "data" top: "boxes" pooling_param { pool: AVE kernel_size: 8 } }
        layer { name: "prior" type: "PriorBox" bottom: "boxes" bottom: "data" top: "prior"
                prior_box_param { min_size: 4 variance: [0.1, 0.1, 0.2, 0.2] } }
        layer { name: "place" type: "Reshape" bottom: "data" top: "flat" reshape_param { shape { dim: 0 dim: -1 } } }
        layer { name: "four" type: "Slice" bottom: "flat" top: "loc" top: "conf" top: "unused"
                slice_param { axis: 1 slice_point: [4, 6] } }
        layer { name: "found" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "prior" top: "found"
                detection_output_param { num_classes: 2 share_location: true background_label_id: 0 keep_top_k: 5
                                         nms_param { nms_threshold: 0.5 top_k: 10 } code_type: CENTER_SIZE } }
    """  # fmt: skip
    backend = load_from(tmp_path, detector)

    assert [spec.batch for spec in backend.inputs] == [1]
    assert backend.outputs == (TensorSpec("found", "float32", None),)
    assert backend.run({"data": np.ones((1, 3, 8, 8), np.float32)})["found"].shape[-1] == 7


@pytest.mark.parametrize("stated", ["", "input_dim: 1 input_dim: 3 input_dim: 4 input_dim: 4\n"])
def test_the_configuration_may_state_the_shape(tmp_path: Path, stated: str) -> None:
    backend = load_from(tmp_path, 'input: "data"\n' + stated + POOL, inputs=("data float32 [N,3,9,8]",))

    assert backend.inputs == (TensorSpec("data", "float32", (None, 3, 9, 8)),)
    assert backend.outputs == (TensorSpec("pool", "float32", (None, 3, 1, 1)),)


def test_a_free_size_is_tried_in_that_of_the_definition(tmp_path: Path) -> None:
    backend = load_from(tmp_path, DATA + RELU, inputs=("data float32 [N,3,?,8]",))

    assert backend.inputs == (TensorSpec("data", "float32", (None, 3, None, 8)),)


def test_a_shape_that_nobody_states(tmp_path: Path) -> None:
    text = failure(tmp_path, 'input: "data"\n' + RELU)

    assert "does not state the shape of its input 'data'" in text
    assert "modelInputs" in text


@pytest.mark.parametrize(
    ("prototxt", "reason"),
    [
        ("", "it has no layers."),
        ('net: "train_val.prototxt" base_lr: 0.01', "it has no layers; it is a solver's file."),
        (TWO[:-3], "it ends inside of the message that begins on line 11."),
        (TWO[:-6], "it ends in the middle of a field, on line 11."),
        (TWO[: TWO.rindex("'")], "line 11 has a string without an end."),
        ("'" + 50 * "x" + "'", f'line 1 has "\'{39 * "x"}" where a name or a value should be.'),
        ("<net><layers/></net>", "line 1 has '<' where a name or a value should be."),
        ('layer { name: "a" type: "ReLU" }}', "line 1 has '}' where a name or a value should be."),
        ("input_dim: [1, 2", "it ends in the middle of a field, on line 1."),
        ("a {" * 5000, "recursion depth"),
        (RELU, "it has no input that a layer reads; it needs a layer of type Input, which states its shape."),
        (DATA.replace("3", "x") + RELU, "the dimensions 1 x 4 4 of an input are not all numbers."),
        (DATA + "layers { layer { name: 'a' type: 'relu' } bottom: 'data' top: 'a' }", "without name or type; "),
        (
            'layer { name: "db" type: "Data" top: "data" top: "label" include { phase: TRAIN } }\n'
            'layer { name: "db" type: "Data" top: "data" top: "label" include { phase: TEST } }\n' + RELU,
            "its layer 'db' (Data) reads files for training; serve the deploy definition.",
        ),
    ],
)
def test_definitions_that_cannot_be_served(tmp_path: Path, prototxt: str, reason: str) -> None:
    text = failure(tmp_path, prototxt)

    assert text.startswith(f"{tmp_path / 'net.prototxt'} is no Caffe network that can be served: ")
    assert reason in text


def test_bytes_that_are_no_definition(tmp_path: Path) -> None:
    load_from(tmp_path, DATA + RELU)
    (tmp_path / "net.prototxt").write_bytes(bytes(range(256)))

    with pytest.raises(ModelError, match="is no Caffe network that can be served: line 2 has"):
        load(detect(str(tmp_path)), LoadOptions())


def test_every_unknown_layer_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    unknown = 'layer { name: "a" type: "Dummy" bottom: "relu" top: "a" } layer { name: "b" type: "Loss" bottom: "a" top: "b" }'

    level = cv2.utils.logging.getLogLevel()

    assert failure(tmp_path, DATA + RELU + unknown).endswith("does not know: 'a' of type Dummy, 'b' of type Loss.")
    assert capfd.readouterr() == ("", "")
    assert cv2.utils.logging.getLogLevel() == level


@pytest.mark.parametrize(
    ("blobs", "layer"),
    [
        ({}, "'conv' (Convolution)"),
        ({"conv": [RANDOM.standard_normal((2, 4, 1, 1), np.float32), BIAS]}, "'conv' (Convolution)"),
        ({"conv": [RANDOM.standard_normal((5, 3, 1, 1), np.float32), BIAS]}, "'conv' (Convolution)"),
        ({"conv": [KERNEL, BIAS], "slope": []}, "'slope' (PReLU)"),
    ],
)
def test_weights_of_another_network(
    tmp_path: Path, blobs: Blobs, layer: str, capfd: pytest.CaptureFixture[str]
) -> None:
    prelu = 'layer { name: "slope" type: "PReLU" bottom: "sum" top: "slope" }\n'

    text = failure(tmp_path, TWO + prelu, blobs)

    assert f"the layer {layer} does not run with the weights in {tmp_path / 'net.caffemodel'}" in text
    assert capfd.readouterr() == ("", "")


def test_a_bottom_that_no_layer_gives(tmp_path: Path) -> None:
    text = failure(tmp_path, DATA + RELU + RELU.replace('"data"', '"dta"'))

    assert "the layer 'relu_1' (ReLU) does not run" in text
    assert text.endswith('Can\'t find output blob "dta".')


def test_a_value_that_caffe_does_not_have(tmp_path: Path) -> None:
    text = failure(tmp_path, DATA + RELU + POOL.replace("MAX", "MEDIAN"))

    assert text.endswith("the layer 'pool' (Pooling) has a field or a value that is not of Caffe.")


@pytest.mark.parametrize("content", [b"", b"garbage" * 10, caffemodel(WEIGHTS)[:-5]])
def test_weights_that_are_broken(tmp_path: Path, content: bytes) -> None:
    load_from(tmp_path, TWO, WEIGHTS)
    (tmp_path / "net.caffemodel").write_bytes(content)

    with pytest.raises(
        ModelError, match=r"net\.caffemodel (is empty|was cut short or holds no weights of Caffe): copy it"
    ):
        load(detect(str(tmp_path)), LoadOptions())


def test_an_opencv_without_caffe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cv2.dnn, "readNetFromCaffe")

    assert failure(tmp_path, DATA + RELU).endswith("has dropped Caffe; pip install 'opencv-python-headless<5'.")


def test_names_and_strings_of_the_text_format() -> None:
    network = read_network("""
        input: 'a\\'b' input_shape: < dim: [1, 2] >
        layer: { name: "x" 'y', type: "Re\\LU"; bottom: "a'b" top: "}" } # }
        layer: { name: "\\tx\\n\\\\" type: "ReLU" bottom: "a'b" }
    """)

    assert network.inputs == {"a'b": (1, 2)}
    assert [layer[:4] for layer in network.layers] == [
        ("xy", "ReLU", ("a'b",), ("}",)),
        ("\tx\n\\", "ReLU", ("a'b",), ()),
    ]
