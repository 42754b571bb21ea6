"""Keras models, whole ones, are served by TensorFlow; weights alone and files that bring code are refused."""

import gc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cluster_serving.node.models.base import Backend, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.detect import detect, load
from support.lazily import Lazily

keras: Any = Lazily("cluster_serving.node.models.keras", "keras")
layers: Any = Lazily("cluster_serving.node.models.keras", "keras.layers")
FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)
IDS = np.array([[1, 2], [3, 1]], np.int64)


def load_from(path: Path, **options: Any) -> Backend:
    return load(detect(str(path)), LoadOptions(**options))


def failure(path: Path, **options: Any) -> str:
    with pytest.raises(ModelError) as caught:
        load_from(path, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def save(model: Any, path: Path) -> Path:
    """Write a model, or its weights alone if the file is called so."""
    with warnings.catch_warnings():
        # Keras calls HDF5 legacy, and numpy what Keras does to save an array.
        warnings.simplefilter("ignore")
        if path.name.endswith(".weights.h5"):
            model.save_weights(path)
        else:
            model.save(path)
    return path


@pytest.fixture(scope="module")
def several() -> Any:
    """Image [N,3] and ids [N,2] of int64 to twice [N,3] and total [N,1]; dropout and normalization do nothing when serving."""
    image = layers.Input((3,), name="image")
    ids = layers.Input((2,), name="ids", dtype="int64")
    inner = layers.BatchNormalization(epsilon=0)(layers.Dropout(0.9)(image))
    twice = layers.Rescaling(2.0, name="twice")(inner)
    rows = layers.Embedding(4, 1, embeddings_initializer="ones")(ids)
    total = layers.GlobalAveragePooling1D(name="total")(rows)
    return keras.Model([image, ids], [twice, total])


@pytest.mark.parametrize("name", ["several.keras", "several.h5", "SEVERAL.HDF5"])
def test_several_inputs_and_outputs(several: Any, tmp_path: Path, name: str) -> None:
    save(several, tmp_path / name.lower()).rename(tmp_path / name)
    backend = load_from(tmp_path)

    assert backend.inputs == (TensorSpec("image", "float32", (None, 3)), TensorSpec("ids", "int64", (None, 2)))
    assert backend.outputs == (TensorSpec("twice", "float32", (None, 3)), TensorSpec("total", "float32", (None, 1)))
    for rows in (2, 1):
        outputs = backend.run({"image": FLOATS[:rows], "ids": IDS[:rows]})
        assert list(outputs) == ["twice", "total"]
        np.testing.assert_array_equal(outputs["twice"], FLOATS[:rows] * 2)
        np.testing.assert_array_equal(outputs["total"], np.ones((rows, 1)))


def test_the_model_can_be_converted_after_its_garbage_is_collected(several: Any, tmp_path: Path) -> None:
    backend: Any = load_from(save(several, tmp_path / "model.keras"))
    gc.collect()

    # Raises where a variable is gone; OpenVINO asks for them.
    assert backend.convertible().variables


def test_a_renamed_file_is_known_by_its_content(several: Any, tmp_path: Path) -> None:
    save(several, tmp_path / "several.keras").rename(tmp_path / "several.h5")

    assert len(load_from(tmp_path).inputs) == 2


def test_sequential_with_a_fixed_batch(tmp_path: Path) -> None:
    model = keras.Sequential([layers.Input(batch_shape=(4, 3), name="x"), layers.Rescaling(2.0, name="twice")])
    backend = load_from(save(model, tmp_path / "model.keras"))

    assert backend.inputs == (TensorSpec("x", "float32", (4, 3)),)
    assert backend.outputs == (TensorSpec("twice", "float32", (4, 3)),)
    np.testing.assert_array_equal(backend.run({"x": np.ones((4, 3), np.float32)})["twice"], np.full((4, 3), 2))


def test_inputs_and_outputs_in_dicts(tmp_path: Path) -> None:
    takes = {"b": layers.Input((3,), name="b"), "a": layers.Input((None,), name="a")}
    gives = {"z": layers.Rescaling(2.0)(takes["b"]), "y": layers.Rescaling(3.0)(takes["a"])}
    backend = load_from(save(keras.Model(takes, gives), tmp_path / "model.keras"))

    assert {each.name: each.shape for each in backend.inputs} == {"a": (None, None), "b": (None, 3)}
    outputs = backend.run({"a": FLOATS[:, :1], "b": FLOATS})
    np.testing.assert_array_equal(outputs["z"], FLOATS * 2)
    np.testing.assert_array_equal(outputs["y"], FLOATS[:, :1] * 3)


def test_a_layer_with_several_outputs(tmp_path: Path) -> None:
    """The outputs' names are those of their layers, here one for both."""
    x = layers.Input((3, 1), name="x")
    outputs = layers.LSTM(2, return_state=True)(x)
    backend = load_from(save(keras.Model(x, outputs), tmp_path / "model.keras"))

    assert [each.name for each in backend.outputs] == ["output1", "output2", "output3"]
    assert [each.shape for each in backend.run({"x": FLOATS[..., np.newaxis]}).values()] == [(2, 2)] * 3


@pytest.mark.parametrize("taken", ["float32", "bfloat16"])
def test_bfloat16_is_float32_outside(tmp_path: Path, taken: str) -> None:
    twice = layers.Rescaling(2.0, name="twice", dtype="mixed_bfloat16")
    model = keras.Sequential([layers.Input((3,), name="x", dtype=taken), twice])
    backend = load_from(save(model, tmp_path / "model.keras"))

    assert backend.inputs == (TensorSpec("x", "float32", (None, 3)),)
    assert backend.outputs == (TensorSpec("twice", "float32", (None, 3)),)
    found = backend.run({"x": FLOATS})["twice"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, FLOATS * 2)


def test_text(tmp_path: Path) -> None:
    words = layers.Input((), name="words", dtype="string")
    found = layers.StringLookup(vocabulary=["a", "née"], name="found")(words)
    backend = load_from(save(keras.Model(words, found), tmp_path / "model.keras"))

    assert backend.inputs == (TensorSpec("words", "str", (None,), takes_bytes=True),)
    assert backend.run({"words": np.array(["née", "b", "a"], object)})["found"].tolist() == [2, 0, 1]


@pytest.mark.parametrize("name", ["model.weights.h5", "legacy.h5"])
def test_weights_alone_are_no_model(several: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "legacy.h5":  # as Keras 2 wrote them
        with h5py.File(path, "w") as file:
            file.attrs["layer_names"] = ["dense"]
    else:
        save(several, path)

    assert "holds weights and no model" in failure(path)


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_python_code_is_run_only_if_that_is_allowed(tmp_path: Path, name: str) -> None:
    x = layers.Input((3,), name="x")
    double: Callable[[Any], Any] = lambda value: value * 2  # noqa: E731 - a lambda is what is tested
    path = save(keras.Model(x, layers.Lambda(double, output_shape=(3,), name="y")(x)), tmp_path / name)

    assert "holds Python code of its own, as of a Lambda layer" in failure(path)
    np.testing.assert_array_equal(load_from(path, allow_pickle=True).run({"x": FLOATS})["y"], FLOATS * 2)


def test_a_class_that_is_not_here(tmp_path: Path) -> None:
    class Mine(layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return inputs

    x = layers.Input((3,), name="x")
    path = save(keras.Model(x, Mine()(x)), tmp_path / "model.keras")

    assert "needs a class of its author's" in failure(path)


def test_a_model_that_was_never_built(tmp_path: Path) -> None:
    path = save(keras.Sequential([layers.Dense(2)]), tmp_path / "model.keras")

    assert "does not know the shapes of its inputs" in failure(path)


def test_a_shape_that_the_configuration_knows(tmp_path: Path) -> None:
    x = layers.Input((None,), name="x")
    path = save(keras.Model(x, layers.Rescaling(2.0)(x)), tmp_path / "model.keras")

    assert load_from(path, inputs=("x float32 [N,5]",)).inputs == (TensorSpec("x", "float32", (None, 5)),)


def test_files_that_are_truncated_or_something_else(several: Any, tmp_path: Path) -> None:
    path = save(several, tmp_path / "model.keras")

    path.write_bytes(path.read_bytes()[:-30])
    assert failure(path).endswith(
        "is truncated, or it is no Keras model (.keras or HDF5): save it again with model.save."
    )
    path.write_bytes(b"")
    assert "is truncated" in failure(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "no model")
    assert "is a zip archive without a Keras model in it" in failure(path)


def test_a_damaged_part(several: Any, tmp_path: Path) -> None:
    path = save(several, tmp_path / "model.keras")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)

    text = failure(path)
    assert "cannot be loaded by Keras" in text
    assert text.endswith("copy it again, or save the model again.")


def test_truncated_hdf5(several: Any, tmp_path: Path) -> None:
    path = save(several, tmp_path / "model.h5")
    path.write_bytes(path.read_bytes()[:-1000])

    assert "is truncated" in failure(path)
    assert "save it again with model.save" in failure(path)


def test_hdf5_of_keras_2(tmp_path: Path) -> None:
    """Its configuration speaks of `batch_input_shape` and has no module names."""
    model = keras.Sequential([layers.Input((3,), name="x"), layers.Dense(1, name="dense", kernel_initializer="ones")])
    path = save(model, tmp_path / "model.h5")
    config = (
        '{"class_name": "Sequential", "config": {"name": "sequential", "layers": ['
        '{"class_name": "InputLayer", "config": {"batch_input_shape": [null, 3], "dtype": "float32", "sparse": false, '
        '"ragged": false, "name": "x"}}, '
        '{"class_name": "Dense", "config": {"name": "dense", "trainable": true, "dtype": "float32", "units": 1, '
        '"activation": "linear", "use_bias": true}}]}}'
    )
    with h5py.File(path, "r+") as file:
        file.attrs["model_config"] = config
        file.attrs["keras_version"] = "2.4.0"

    backend = load_from(path)

    assert backend.inputs[0].shape == (None, 3)
    np.testing.assert_array_equal(backend.run({backend.inputs[0].name: FLOATS})["dense"], FLOATS.sum(1, keepdims=True))
