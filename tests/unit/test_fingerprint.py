"""The hash of a model's files."""

import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.fingerprint import fingerprint, size

SAVED_MODEL = {
    "saved_model.pb": b"graph",
    "fingerprint.pb": b"print",
    "variables/variables.index": b"index",
    "variables/variables.data-00000-of-00001": b"data",
    "assets/words.txt": b"words",
}

# For each format the model, all its files, and files beside it that are none of it.
CASES = [
    ("tensorflowSavedModel", "", None, SAVED_MODEL, {"config.yaml": b"x", "node.log": b"x"}),
    ("keras", "net.keras", None, {"net.keras": b"net"}, {"other.h5": b"x", "config.yaml": b"x"}),
    ("openvino", "net.xml", "net.bin", {"net.xml": b"<net/>", "net.bin": b"weights"}, {"other.bin": b"x"}),
    ("caffe", "net.prototxt", "w.caffemodel", {"net.prototxt": b"net", "w.caffemodel": b"w"}, {"labels.txt": b"x"}),
    ("bigdl", "net.model", "net.bin", {"net.model": b"net", "net.bin": b"w"}, {"labels.txt": b"x"}),
    (
        "tensorflowCheckpoint",
        "net-5.meta",
        "net-5.index",
        {"net-5.meta": b"m", "net-5.index": b"i", "net-5.data-00000-of-00002": b"a", "net-5.data-00001-of-00002": b"b"},
        {"net-4.data-00000-of-00001": b"x", "net-4.index": b"x", "checkpoint": b"x"},
    ),
    (
        "tensorflowFrozenModel",
        "net.pb",
        None,
        {"net.pb": b"graph", "graph_meta.json": b"{}"},
        {"other.json": b"x"},
    ),
    (
        "python",
        "model.py",
        None,
        {"model.py": b"load('weights.npz')", "layers.py": b"pass", "weights.npz": b"weights"},
        {"node.log": b"x", ".model.py.swp": b"x", "__pycache__/model.pyc": b"x"},
    ),
    ("pytorch", "net.pt", None, {"net.pt": b"zip", "classes.py": b"pass"}, {"other.txt": b"x"}),
]
IDS = [case[0] for case in CASES]


def fill(root: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def model_at(root: Path, kind: str, definition: str, weights: str | None) -> Detected:
    return Detected(kind, str(root / definition), str(root / weights) if weights else None)


@pytest.mark.parametrize(("kind", "definition", "weights", "files", "others"), CASES, ids=IDS)
def test_it_is_that_of_the_files_wherever_they_lie_and_in_whatever_order_they_came(
    tmp_path: Path,
    kind: str,
    definition: str,
    weights: str | None,
    files: dict[str, bytes],
    others: dict[str, bytes],
) -> None:
    fill(tmp_path / "here", files)
    fill(tmp_path / "there", dict(reversed([*files.items(), *others.items()])))
    here = fingerprint(model_at(tmp_path / "here", kind, definition, weights))
    there = fingerprint(model_at(tmp_path / "there", kind, definition, weights))

    assert re.fullmatch(r"sha256:[0-9a-f]{16}", here)
    assert there == here
    assert size(model_at(tmp_path / "there", kind, definition, weights)) == sum(map(len, files.values()))


@pytest.mark.parametrize(("kind", "definition", "weights", "files", "others"), CASES, ids=IDS)
def test_one_changed_byte_of_any_file_changes_it(
    tmp_path: Path,
    kind: str,
    definition: str,
    weights: str | None,
    files: dict[str, bytes],
    others: dict[str, bytes],
) -> None:
    fill(tmp_path, files | others)
    model = model_at(tmp_path, kind, definition, weights)
    found = {fingerprint(model)}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content + b"!")
        found.add(fingerprint(model))
        (tmp_path / name).write_bytes(content)

    assert len(found) == 1 + len(files)


def test_a_new_name_changes_it(tmp_path: Path) -> None:
    fill(tmp_path, {"a.keras": b"net", "b.keras": b"net"})

    assert fingerprint(Detected("keras", f"{tmp_path}/a.keras")) != fingerprint(
        Detected("keras", f"{tmp_path}/b.keras")
    )


def test_bytes_that_move_from_one_file_to_another_change_it(tmp_path: Path) -> None:
    fill(tmp_path / "a", {"net.xml": b"12", "net.bin": b"3"})
    fill(tmp_path / "b", {"net.xml": b"1", "net.bin": b"23"})

    assert fingerprint(model_at(tmp_path / "a", "openvino", "net.xml", "net.bin")) != fingerprint(
        model_at(tmp_path / "b", "openvino", "net.xml", "net.bin")
    )


@pytest.mark.parametrize("location", ["net.weights", "w" * 200, "parts/net.weights"])
def test_the_external_data_of_onnx_count_by_the_name_in_the_file(tmp_path: Path, location: str) -> None:
    weights = numpy_helper.from_array(np.arange(64, dtype=np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64])],
        [weights],
    )
    model = helper.make_model(graph)
    (tmp_path / location).parent.mkdir(exist_ok=True)
    onnx.save_model(model, str(tmp_path / "net.onnx"), save_as_external_data=True, location=location, size_threshold=0)
    detected = Detected("onnx", str(tmp_path / "net.onnx"))
    before = fingerprint(detected)
    fill(tmp_path, {"other.data": b"x"})
    beside = fingerprint(detected)
    content = bytearray((tmp_path / location).read_bytes())
    content[0] ^= 1
    (tmp_path / location).write_bytes(content)

    assert beside == before
    assert fingerprint(detected) != before


@pytest.mark.parametrize("location", [b"../outside", b"/etc/hostname", b"a\0b", b"gone", b"n" * 127])
def test_what_only_looks_like_external_data_is_left_alone(tmp_path: Path, location: bytes) -> None:
    fill(tmp_path, {"outside": b"x", "net/net.onnx": b"\x0a\x08location\x12" + bytes([len(location)]) + location})
    model = Detected("onnx", str(tmp_path / "net" / "net.onnx"))
    before = fingerprint(model)
    fill(tmp_path, {"outside": b"y"})

    assert fingerprint(model) == before


def test_an_empty_file_has_a_fingerprint_too(tmp_path: Path) -> None:
    fill(tmp_path, {"net.onnx": b""})

    assert fingerprint(Detected("onnx", str(tmp_path / "net.onnx"))).startswith("sha256:")


def test_a_file_that_went_away_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"net\.onnx cannot be read: No such file"):
        fingerprint(Detected("onnx", str(tmp_path / "net.onnx")))


def test_files_that_cannot_be_read_count_nothing(tmp_path: Path) -> None:
    assert size(model_at(tmp_path, "onnx", "net.onnx", None)) == 0


def test_links_lead_to_the_content(tmp_path: Path) -> None:
    fill(tmp_path / "a", {"net.keras": b"net"})
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "net.keras").symlink_to(tmp_path / "a" / "net.keras")
    copied = shutil.copytree(tmp_path / "a", tmp_path / "c")

    assert fingerprint(Detected("keras", f"{tmp_path}/b/net.keras")) == fingerprint(
        Detected("keras", f"{copied}/net.keras")
    )
