"""A BigDL model that cannot be served is refused while it loads, in one sentence that says what to do."""

import struct
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.node.models.base import LoadOptions, ModelError
from cluster_serving.node.models.detect import Detected, detect, load
from support.bigdl import QUANTIZED, ModelFile

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)
KERAS = "com.intel.analytics.zoo.pipeline.api.keras."


def failure(path: Path, **options: Any) -> str:
    with pytest.raises(ModelError) as caught:
        load(detect(str(path)), LoadOptions(**options))
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


@pytest.fixture
def file() -> ModelFile:
    return ModelFile()


@pytest.fixture
def split(tmp_path: Path, file: ModelFile) -> tuple[Path, Path]:
    """A definition, and its weights in a file of their own."""
    definition, weights = tmp_path / "split.model", tmp_path / "split.bin"
    file.save(definition, file.module("Sequential", file.linear(WEIGHT, name="fc")), weights)
    return definition, weights


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (b"", "is empty: copy or save the model again"),
        (b"\xac\xed\x00\x05sr\x00", "is a Java object stream, as save() writes it: save the model with saveModule()"),
        (b"PK\x03\x04 an archive", "is no BigDL model, or only a part of one"),
        (b"\x08\x01", "is no BigDL model, or only a part of one"),
    ],
)
def test_a_file_of_another_kind(tmp_path: Path, content: bytes, advice: str) -> None:
    path = tmp_path / "net.model"
    path.write_bytes(content)

    assert advice in failure(path)


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_a_truncated_file(tmp_path: Path, file: ModelFile, kept: float) -> None:
    path = file.save(tmp_path / "net.model", file.module("Sequential", file.linear(np.ones((40, 30)))))
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])

    assert "is no BigDL model, or only a part of one: copy it again" in failure(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"gone\.model cannot be read: No such file"):
        load(Detected("bigdl", str(tmp_path / "gone.model")), LoadOptions())


def test_layers_that_are_not_served_are_all_named_with_their_classes(tmp_path: Path, file: ModelFile) -> None:
    root = file.module(
        "Sequential",
        file.module("SpatialFooBar", name="conv_x"),
        file.module("com.intel.analytics.bigdl.nn.ops.Sum", name="op"),
        file.module("Recurrent", attributes={"topology": file.module("OddCell", name="cell")}, name="rnn"),
    )
    text = failure(file.save(tmp_path / "net.model", root))

    assert "the layer 'conv_x' is a com.intel.analytics.bigdl.nn.SpatialFooBar, which is not served" in text
    assert "the layer 'op' is a com.intel.analytics.bigdl.nn.ops.Sum, which is not served" in text
    assert "'rnn'" in text
    assert "com.intel.analytics.bigdl.nn.OddCell" in text


def test_many_unknown_layers_are_counted(tmp_path: Path, file: ModelFile) -> None:
    root = file.module("Sequential", *(file.module("Odd", name=f"odd{at}") for at in range(9)))

    assert failure(file.save(tmp_path / "net.model", root)).endswith("; and 4 more.")


def test_an_unknown_layer_in_a_keras_shell(tmp_path: Path, file: ModelFile) -> None:
    shell = file.module(KERAS + "layers.Exotic", file.module("Exotic", name="inside"), name="outside")
    root = file.module(KERAS + "models.Sequential", file.module("Sequential", shell))

    assert "the layer 'inside' is a com.intel.analytics.bigdl.nn.Exotic, which is not served" in failure(
        file.save(tmp_path / "net.model", root)
    )


def test_a_keras_layer_that_holds_nothing(tmp_path: Path, file: ModelFile) -> None:
    path = file.save(tmp_path / "net.model", file.module(KERAS + "layers.Lambda", name="mine"))

    assert f"the layer 'mine' is a {KERAS}layers.Lambda, which is not served" in failure(path)


def test_a_graph_with_control_flow(tmp_path: Path, file: ModelFile) -> None:
    path = file.save(tmp_path / "net.model", file.module("DynamicGraph", name="loop"))

    assert "the layer 'loop' (com.intel.analytics.bigdl.nn.DynamicGraph) has control flow" in failure(path)


@pytest.mark.parametrize(
    ("taken", "said"), [("b", "is a graph with a cycle"), ("gone", "is a graph without its node 'gone'")]
)
def test_a_graph_that_leads_nowhere(tmp_path: Path, file: ModelFile, taken: str, said: str) -> None:
    nodes = [
        file.module("Tanh", name="a", predecessors=[taken]),
        file.module("Tanh", name="b", predecessors=["a"]),
        file.module("Input", name="x"),
    ]
    path = file.save(tmp_path / "net.model", file.graph(*nodes, inputs=["x"], outputs=["b"]))

    assert said in failure(path)


def test_a_layer_that_lacks_what_its_class_needs(tmp_path: Path, file: ModelFile) -> None:
    root = file.module(
        "Sequential",
        file.module("Linear", name="bare"),
        file.module("Select", name="which", attributes={"dimension": 2}),
        file.module("Select", name="odd", attributes={"dimension": "2", "index": 1}),
        file.module("Transpose", name="swap", attributes={"size": 1, "permutation_0": [1, 2, 3]}),
    )
    text = failure(file.save(tmp_path / "net.model", root))

    assert "the layer 'bare' (com.intel.analytics.bigdl.nn.Linear) has no weights" in text
    assert "the layer 'which' (com.intel.analytics.bigdl.nn.Select) lacks the attribute 'index'" in text
    assert "the layer 'odd' (com.intel.analytics.bigdl.nn.Select) has an attribute 'dimension' of another kind" in text


def test_weights_that_do_not_fit_their_layer(tmp_path: Path, file: ModelFile) -> None:
    numbers = {"nInputPlane": 3, "nOutputPlane": 4, "kernelW": 1, "kernelH": 1}
    root = file.module("SpatialConvolution", name="c", attributes=numbers, parameters=file.weights(np.ones(7)))

    assert "the layer 'c' (com.intel.analytics.bigdl.nn.SpatialConvolution) cannot be built:" in failure(
        file.save(tmp_path / "net.model", root)
    )


@pytest.mark.parametrize(
    ("size", "stride", "offset"), [((2, 3), (3, 1), 2), ((2, 3), (-3, 1), 6), ((2, 3), (3, 1), 0), ((2,), (3, 1), 1)]
)
def test_a_weight_outside_of_its_storage(
    tmp_path: Path, file: ModelFile, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> None:
    parameters = [file.tensor(file.storage(WEIGHT), size, stride, offset)]
    path = file.save(tmp_path / "net.model", file.module("Linear", name="fc", parameters=parameters))

    assert "is damaged: a weight of the layer 'fc'" in failure(path)


def test_a_definition_without_some_of_its_weights(tmp_path: Path, file: ModelFile) -> None:
    path = file.save(tmp_path / "net.model", file.module("Linear", name="fc", parameters=[file.tensor(7, (2, 3))]))

    assert "lacks weights for the layer 'fc'" in failure(path)


def test_weights_that_end_in_mid_number(tmp_path: Path, file: ModelFile) -> None:
    root = file.module("Linear", parameters=file.weights(WEIGHT))
    root.attr["global_storage"].nameAttrListValue.attr["0"].tensorValue.storage.float_data.append(bytes(7))

    assert "is damaged: a weight ends in the middle of a number" in failure(
        file.save(tmp_path / "net.model", root, tmp_path / "other")
    )


def test_int8_weights_without_all_codes(tmp_path: Path, file: ModelFile) -> None:
    weight = file.tensor(file.storage([1, 1, 0, 0], bytes(5)), (2, 3), offset=0, kind=QUANTIZED)
    root = file.module("com.intel.analytics.bigdl.nn.quantized.Linear", name="fc", attributes={"weight": weight})

    assert "a weight of the layer 'fc' of int8 and shape [2, 3] has 5 codes" in failure(
        file.save(tmp_path / "net.model", root)
    )


def test_the_weights_are_missing(split: tuple[Path, Path]) -> None:
    definition, weights = split
    weights.unlink()

    text = failure(definition)
    assert "holds no weights: put the file that saveModule() wrote them to beside it, as split.bin" in text


def test_a_weight_file_of_another_kind(split: tuple[Path, Path]) -> None:
    _, weights = split
    weights.write_bytes(b"an OpenVINO file, say, and long enough")

    assert "is no file of BigDL weights" in failure(weights.parent / "split.bin")


@pytest.mark.parametrize("damage", ["shortened", "changed"])
def test_a_damaged_weight_file(split: tuple[Path, Path], damage: str) -> None:
    _, weights = split
    content = bytearray(weights.read_bytes())
    if damage == "changed":
        content[25] ^= 0xFF
    weights.write_bytes(content if damage == "changed" else content[:-3])

    assert "is damaged (its checksum or its lengths are wrong)" in failure(weights)


def test_the_weight_file_of_another_model(split: tuple[Path, Path], tmp_path: Path, file: ModelFile) -> None:
    _, weights = split
    ModelFile().save(tmp_path / "unused", file.module("Sequential"), weights)

    assert "split.bin lacks weights for the layer 'fc' of" in failure(tmp_path / "split.bin")


def test_a_weight_file_whose_lengths_lie(split: tuple[Path, Path]) -> None:
    """The checksum fits, as the file was damaged before it was written."""
    _, weights = split
    body = struct.pack(">iiiii", 3721, 1, 1000, 0, 2**30)
    weights.write_bytes(body + struct.pack(">i", 16) + md5(body, usedforsecurity=False).digest())

    assert "is damaged" in failure(weights)
