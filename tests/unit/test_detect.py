"""Detection of the model that a path holds."""

import sys
from pathlib import Path

import msgspec
import pytest

from cluster_serving.client.extras import install_command
from cluster_serving.node.models.base import LoadOptions, ModelError
from cluster_serving.node.models.detect import Detected, detect, load

ONLY_ONE = (
    "Only one model is allowed to exist in model folder, "
    "please check your model folder to keep just one model in the directory"
)
NONE = "There is no model detected in your directory. Please refer to document for supported model types."
NO_PATH = "Your model path provided in config is empty, please check your model path."
INVALID = "Invalid model type, please check your model directory"


def fill(directory: Path, *names: str) -> str:
    for name in names:
        (directory / name).write_bytes(b"content")
    return str(directory)


def message(model_path: str, model_type: str | None = None) -> str:
    with pytest.raises(ModelError) as caught:
        detect(model_path, model_type)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_onnx_with_external_data_and_other_files_beside_it(tmp_path: Path) -> None:
    path = fill(tmp_path, "net.onnx", "net.onnx.data", "weights.bin", "labels.txt", ".net.onnx", "notonnx")

    assert detect(path) == Detected("onnx", f"{tmp_path}/net.onnx")


def test_openvino_with_the_weights_of_the_same_stem(tmp_path: Path) -> None:
    path = fill(tmp_path, "net.xml", "net.bin", "a.bin")

    assert detect(path) == Detected("openvino", f"{tmp_path}/net.xml", f"{tmp_path}/net.bin")


def test_python_and_an_extension_in_capitals(tmp_path: Path) -> None:
    assert detect(fill(tmp_path, "net.PY")) == Detected("python", f"{tmp_path}/net.PY")


def test_subdirectories_are_not_searched(tmp_path: Path) -> None:
    (tmp_path / "inner.onnx").mkdir()
    fill(tmp_path / "inner.onnx", "net.onnx")

    assert message(str(tmp_path)).startswith(NONE)


@pytest.mark.parametrize("host", ["", "localhost"])
def test_a_file_url(tmp_path: Path, host: str) -> None:
    directory = tmp_path / "my model"
    directory.mkdir()
    fill(directory, "net.onnx")

    assert detect(f"file://{host}{tmp_path}/my%20model").definition == directory / "net.onnx"


@pytest.mark.parametrize("named", ["net.xml", "net.bin"])
def test_a_model_file_itself_among_others(tmp_path: Path, named: str) -> None:
    fill(tmp_path, "net.xml", "net.bin", "net.onnx", "other.xml")

    assert detect(str(tmp_path / named)) == Detected("openvino", f"{tmp_path}/net.xml", f"{tmp_path}/net.bin")


def test_a_model_type_chooses_among_several(tmp_path: Path) -> None:
    path = fill(tmp_path, "net.onnx", "net.py", "net.pt")

    assert detect(path, "ONNX").backend == "onnx"
    assert detect(path, "python").backend == "python"
    assert "OpenVINO IR (.xml + .bin)" in message(path, "openvino")


def test_a_model_type_that_does_not_exist(tmp_path: Path) -> None:
    text = message(str(tmp_path), "onx")

    assert text.startswith(f"{INVALID}: the model type 'onx' is none of onnx, openvino, tensorflowsavedmodel, ")


@pytest.mark.parametrize(
    "names",
    [
        ("a.onnx", "b.onnx"),
        ("a.onnx", "a.xml", "a.bin"),
        ("a.py", "b.py"),
        ("a.onnx", "b.pt"),
        ("a.onnx", "net.model"),
        ("saved_model.pb", "z.pb"),
    ],
)
def test_two_models(tmp_path: Path, names: tuple[str, ...]) -> None:
    text = message(fill(tmp_path, *names))

    found = ", ".join(name for name in names if not name.endswith(".bin"))
    assert text.startswith(f"{ONLY_ONE}: {tmp_path} holds {found}; ")


def test_an_empty_directory_and_one_without_a_model(tmp_path: Path) -> None:
    assert message(str(tmp_path)).startswith(f"{NONE} {tmp_path} holds no files; ")
    assert f"{NONE} {tmp_path} holds 0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 2 more; " in message(
        fill(tmp_path, *(f"{number}.txt" for number in range(7)))
    )


@pytest.mark.parametrize("model_path", ["", "  "])
def test_no_path(model_path: str) -> None:
    assert message(model_path).startswith(f"{NO_PATH} Set modelPath")


def test_no_such_path() -> None:
    assert message("/no/such") == "Please check your model path: /no/such does not exist."


@pytest.mark.parametrize("url", ["hdfs://host/model", "s3://bucket/model", "file://host/model"])
def test_a_path_on_another_machine(url: str) -> None:
    assert message(url).startswith(f"{url} is not on this machine")


def test_half_of_an_openvino_model(tmp_path: Path) -> None:
    definition = tmp_path / "definition"
    definition.mkdir()
    weights = tmp_path / "weights"
    weights.mkdir()

    assert "put its weights net.bin beside it" in message(fill(definition, "net.xml", "other.bin"))
    assert "put its weights net.bin beside it" in message(str(definition / "net.xml"))
    assert "put its definition net.xml beside it" in message(fill(weights, "net.bin"))
    assert "put its definition net.xml beside it" in message(str(weights / "net.bin"))


@pytest.mark.parametrize(
    ("names", "kind", "definition", "weights"),
    [
        (("saved_model.pb", "fingerprint.pb", "keras_metadata.pb"), "tensorflowSavedModel", ".", None),
        (("saved_model.pbtxt",), "tensorflowSavedModel", ".", None),
        (
            ("frozen_inference_graph.pb", "graph_meta.json", "a.pb"),
            "tensorflowFrozenModel",
            "frozen_inference_graph.pb",
            None,
        ),
        (("frozen_graph.pb", "a.pb"), "tensorflowFrozenModel", "frozen_graph.pb", None),
        (("net.pb",), "tensorflowFrozenModel", "net.pb", None),
        (
            ("checkpoint", "m.ckpt-5.meta", "m.ckpt-5.index", "m.ckpt-5.data-00000-of-00001"),
            "tensorflowCheckpoint",
            "m.ckpt-5.meta",
            "m.ckpt-5.index",
        ),
        (("net.keras",), "keras", "net.keras", None),
        (("net.h5", "labels.txt"), "keras", "net.h5", None),
        (("net.pt",), "pytorch", "net.pt", None),
        (("net.pt2",), "pytorch", "net.pt2", None),
        (("net.jit",), "pytorch", "net.jit", None),
        (("deploy.prototxt", "net_v1.caffemodel"), "caffe", "deploy.prototxt", "net_v1.caffemodel"),
        (("net.model",), "bigdl", "net.model", None),
        (("net.model", "weights.bin"), "bigdl", "net.model", "weights.bin"),
        (("net.model", "net.bin", "other.bin"), "bigdl", "net.model", "net.bin"),
    ],
)
def test_every_format(tmp_path: Path, names: tuple[str, ...], kind: str, definition: str, weights: str | None) -> None:
    detected = detect(fill(tmp_path, *names))

    assert detected == Detected(kind, str(tmp_path / definition), weights and str(tmp_path / weights))


@pytest.mark.parametrize("named", ["saved_model.pb", "variables/../saved_model.pb"])
def test_the_file_of_a_saved_model_means_its_directory(tmp_path: Path, named: str) -> None:
    (tmp_path / "variables").mkdir()
    fill(tmp_path, "saved_model.pb")

    assert detect(str(tmp_path / named)).definition.samefile(tmp_path)


def test_every_type_that_the_original_had_a_name_for(tmp_path: Path) -> None:
    path = fill(tmp_path, "net.pb", "net.model", "net.pt", "a.prototxt", "a.caffemodel", "net.onnx")
    types = {"tf.frozenModel": "tensorflowFrozenModel", "BigDL": "bigdl", "PyTorch": "pytorch", "Caffe": "caffe"}

    assert {name: detect(path, name).format for name in types} == types


@pytest.mark.parametrize(
    ("names", "half", "missing"),
    [
        (("net.prototxt",), "net.prototxt", "weights net.caffemodel"),
        (("net.caffemodel",), "net.caffemodel", "definition net.prototxt"),
        (("m.meta",), "m.meta", "weights m.index"),
        (("m.index", "m.data-00000-of-00001"), "m.index", "definition m.meta"),
    ],
)
def test_half_of_a_model(tmp_path: Path, names: tuple[str, ...], half: str, missing: str) -> None:
    text = message(fill(tmp_path, *names))

    assert f"{tmp_path}/{half} is half of a model" in text
    assert text.endswith(f"put its {missing} beside it.")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "pytorch_model-00001-of-00002.bin"])
@pytest.mark.parametrize("named", [True, False])
def test_weights_of_hugging_face_alone(tmp_path: Path, name: str, named: bool) -> None:
    folder = tmp_path / "my bert"
    folder.mkdir()
    fill(folder, "config.json", name, "tokenizer.json")

    text = message(str(folder / name if named else folder))

    assert text.startswith(f"{NONE} {folder / name} has weights alone, as Hugging Face keeps them")
    assert text.endswith(f"optimum-cli export onnx --model '{folder}' onnx-model")


def test_half_of_a_saved_model(tmp_path: Path) -> None:
    fill(tmp_path, "fingerprint.pb")

    assert message(str(tmp_path)) == f"{NONE} {tmp_path} is half of a SavedModel: put its saved_model.pb there."


def test_the_latest_of_several_checkpoints(tmp_path: Path) -> None:
    path = fill(tmp_path, "m-5.meta", "m-5.index", "m-10.meta", "m-10.index")
    assert message(path).startswith(f"{ONLY_ONE}: {tmp_path} holds m-10.meta, m-5.meta; ")
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "/where/it/was/m-10"\nall_model_checkpoint_paths: "/where/it/was/m-5"\n'
    )

    assert detect(path) == Detected("tensorflowCheckpoint", f"{tmp_path}/m-10.meta", f"{tmp_path}/m-10.index")


def test_two_models_of_different_kinds_can_be_told_apart(tmp_path: Path) -> None:
    text = message(fill(tmp_path, "net.pt", "net.py"))

    assert text.endswith(" set modelType to python or pytorch, or give the path of the model file itself.")


def test_weights_that_may_be_anybodys(tmp_path: Path) -> None:
    text = message(fill(tmp_path, "net.model", "a.bin", "b.bin"))

    assert text == f"{ONLY_ONE}: {tmp_path}/net.model could go with any of a.bin, b.bin; keep one."


def test_a_model_in_a_subdirectory_is_pointed_at(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        fill(tmp_path / version, "saved_model.pb")

    assert message(str(tmp_path)).endswith(f" Its subdirectory 2 holds one: set modelPath to {tmp_path}/2.")


def test_files_that_belong_to_the_configuration_are_no_models(tmp_path: Path) -> None:
    path = fill(tmp_path, "net.onnx", "mine.py")

    assert detect(path, ignore=[tmp_path / "mine.py"]).format == "onnx"


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    fill(tmp_path, "labels.txt")

    assert message(str(tmp_path / "labels.txt")).startswith(f"{INVALID}: {tmp_path}/labels.txt is not a model file")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").symlink_to(tmp_path / "gone")

    assert message(str(tmp_path)) == f"{tmp_path}/net.onnx cannot be read: No such file or directory"


def test_a_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to("latest")
    fill(tmp_path, "net.onnx")

    assert detect(str(tmp_path)).definition == tmp_path / "net.onnx"

    (tmp_path / "net.onnx").unlink()
    (tmp_path / "net.onnx").symlink_to("net.onnx")

    assert message(str(tmp_path)) == f"{tmp_path}/net.onnx cannot be read: Too many levels of symbolic links"


def test_a_path_that_cannot_be_read(tmp_path: Path) -> None:
    path = f"{tmp_path}/{'x' * 300}"

    assert message(path) == f"{path} cannot be read: File name too long"


def test_what_was_detected_goes_to_another_process(tmp_path: Path) -> None:
    detected = detect(fill(tmp_path, "net.xml", "net.bin"))

    told = msgspec.json.decode(msgspec.json.encode(detected), type=Detected)

    assert told == detected
    assert (told.definition, told.weights) == (tmp_path / "net.xml", tmp_path / "net.bin")


def test_a_package_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cluster_serving.node.models.onnx", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Refusing("onnxruntime", ModuleNotFoundError), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)

    with pytest.raises(ModelError) as caught:
        load(Detected("onnx", f"{tmp_path}/net.onnx"), LoadOptions())

    assert str(caught.value) == (
        f"{tmp_path}/net.onnx needs the package onnxruntime, which is not installed: {install_command('onnx')}"
    )


def test_a_package_that_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cluster_serving.node.models.openvino", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Refusing("openvino", ImportError), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "openvino", raising=False)

    with pytest.raises(
        ModelError, match="needs the package openvino, which cannot be imported here: openvino is refused"
    ):
        load(Detected("openvino", f"{tmp_path}/net.xml", f"{tmp_path}/net.bin"), LoadOptions())


class _Refusing:
    """An import hook that fails for one package."""

    def __init__(self, package: str, error: type[ImportError]) -> None:
        self._package = package
        self._error = error

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self._package:
            raise self._error(f"{name} is refused", name=name)
