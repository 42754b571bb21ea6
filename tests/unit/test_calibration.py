"""The user's own data to try runtimes on: read, checked against what the model takes, or refused with the reason."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest

from cluster_serving.node.engines.calibration import labels_of, random_batch, samples
from cluster_serving.node.models.base import Array, ModelError, TensorSpec
from cluster_serving.node.processing.options import ImageOptions
from support.broken_arrays import HUGE, UNCLOSED, npz

X, IDS = TensorSpec("x", "float32", (None, 4)), TensorSpec("ids", "int64", (None, None))
IMAGE = TensorSpec("image", "float32", (None, 3, 6, 8))
ROWS = np.random.default_rng(3).random((5, 4))
OPTIONS = ImageOptions()


def failure(path: Path, *inputs: TensorSpec) -> str:
    with pytest.raises(ModelError) as caught:
        samples(path, inputs, OPTIONS, 256)
    said = str(caught.value)
    assert said.startswith(f"calibrationData {path}: ")
    return said.removeprefix(f"calibrationData {path}: ")


def save_images(folder: Path, *sizes: tuple[int, int]) -> list[Array]:
    """Grey-level ramps of (height, width), as PNGs that sort in this order."""
    folder.mkdir()
    images = [np.full((*size, 3), 40 * (at + 1), np.uint8) for at, size in enumerate(sizes)]
    for at, image in enumerate(images):
        cv2.imwrite(str(folder / f"{at}.PNG" if at else folder / "0.png"), image)
    return images


def test_arrays_by_name_become_what_the_model_takes(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, ids=np.arange(15, dtype=np.int32).reshape(5, 3), x=ROWS)

    found = samples(path, (X, IDS), OPTIONS, 4)

    assert list(found) == ["x", "ids"]
    np.testing.assert_array_equal(found["x"], ROWS[:4].astype(np.float32))
    assert {name: (array.dtype.name, array.shape) for name, array in found.items()} == {
        "x": ("float32", (4, 4)),
        "ids": ("int64", (4, 3)),
    }


def test_text_is_an_array_of_str(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", text=np.array(["a", "bc"]))

    found = samples(tmp_path / "rows.npz", [TensorSpec("text", "str", (None,))], OPTIONS, 9)

    assert found["text"].tolist() == ["a", "bc"]
    assert found["text"].dtype == object


@pytest.mark.parametrize(("inputs", "name"), [([X], "x"), ([], "input")])
def test_one_array_for_one_input(tmp_path: Path, inputs: Sequence[TensorSpec], name: str) -> None:
    np.save(tmp_path / "rows.npy", ROWS.astype(np.float32))

    found = samples(tmp_path / "rows.npy", inputs, OPTIONS, 256)

    np.testing.assert_array_equal(found[name], ROWS.astype(np.float32))


def test_images_are_decoded_as_those_of_records(tmp_path: Path) -> None:
    images = save_images(tmp_path / "photos", (6, 8), (12, 16), (6, 8))
    (tmp_path / "photos" / "labels.txt").write_text("no image")

    found = samples(tmp_path / "photos", [IMAGE], ImageOptions(scale=(0.5,)), 2)["image"]

    assert found.shape == (2, 3, 6, 8)
    np.testing.assert_array_equal(found[:, 0, 0, 0], [image[0, 0, 0] / 2 for image in images[:2]])


@pytest.mark.parametrize(("most_bytes", "rows"), [(1, 1), (79, 1), (80, 2), (10_000, 5)])
def test_as_many_rows_as_fit_in_memory_whatever_the_model_states(tmp_path: Path, most_bytes: int, rows: int) -> None:
    """A row has 16 bytes of x in float32, and 24 of ids in int64, whose shape is free."""
    np.savez(tmp_path / "rows.npz", ids=np.arange(15, dtype=np.int32).reshape(5, 3), x=ROWS)

    found = samples(tmp_path / "rows.npz", (X, IDS), OPTIONS, 256, most_bytes)

    assert {name: len(array) for name, array in found.items()} == {"x": rows, "ids": rows}


@pytest.mark.parametrize(("most_bytes", "rows"), [(1, 1), (2 * 576, 2), (10_000, 3)])
def test_as_many_images_as_fit_in_memory(tmp_path: Path, most_bytes: int, rows: int) -> None:
    save_images(tmp_path / "photos", (6, 8), (6, 8), (6, 8))
    free = TensorSpec("image", "float32", (None, 3, None, None))

    assert samples(tmp_path / "photos", [free], OPTIONS, 256, most_bytes)["image"].shape == (rows, 3, 6, 8)


def test_images_must_have_one_size(tmp_path: Path) -> None:
    save_images(tmp_path / "photos", (6, 8), (12, 16))

    said = failure(tmp_path / "photos", TensorSpec("image", "float32", (None, 3, None, None)))

    assert said == "1.PNG has another size than 0.png: set imageResize"


def test_broken_images_are_named(tmp_path: Path) -> None:
    save_images(tmp_path / "photos", (6, 8))
    (tmp_path / "photos" / "a.jpg").write_bytes(b"no image")

    assert failure(tmp_path / "photos", IMAGE).startswith("a.jpg: not an image, or a broken one")
    assert "takes no image" in failure(tmp_path / "photos", X)
    assert "images for one input" in failure(tmp_path / "photos", IMAGE, X)
    assert failure(tmp_path, IMAGE).startswith("no images in it (.bmp, .jpeg")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"y": ROWS}, "arrays for y, and the model takes x float32 [N,4], ids int64 [N,?]"),
        ({"x": ROWS}, "arrays for x, and the model takes x float32 [N,4], ids int64 [N,?]"),
        ({"x": ROWS, "ids": np.zeros((4, 2))}, "each input must have the same number of rows, and one at least: 'x' 5"),
        ({"x": ROWS[:0], "ids": np.zeros((0, 2))}, "each input must have the same number of rows, and one at least"),
        ({"x": 1.0, "ids": 1}, "each input must have the same number of rows, and one at least"),
        ({"x": ROWS[:, :3], "ids": np.zeros((5, 2))}, "'x' is float64 [5, 3], and the model takes x float32 [N,4]"),
        ({"x": ROWS[:, 0], "ids": np.zeros((5, 2))}, "'x' is float64 [5], and the model takes x float32 [N,4]"),
        ({"x": ROWS, "ids": ROWS}, "input 'ids' takes int64, and 0."),
        ({"x": ROWS.astype(str), "ids": ROWS}, "'x' is <U"),
        (
            {"x": ROWS.astype("M8[s]"), "ids": ROWS},
            "input 'x' takes float32, and values of datetime64[s] do not convert to it",
        ),
        ({"x": np.array([{}] * 5), "ids": ROWS}, "Object arrays cannot be loaded"),
    ],
)
def test_data_that_do_not_fit(tmp_path: Path, arrays: dict[str, Array], said: str) -> None:
    np.savez(tmp_path / "rows.npz", **arrays)  # type: ignore[arg-type]  # its other argument is a bool

    assert failure(tmp_path / "rows.npz", X, IDS).startswith(said)


@pytest.mark.parametrize("content", [HUGE, UNCLOSED])
def test_files_with_a_damaged_header(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.npz").write_bytes(npz("x", content))

    assert failure(tmp_path / "rows.npz", X)


def test_files_that_are_none(tmp_path: Path) -> None:
    for name in ("rows.npy", "rows.npz", "rows.csv"):
        assert failure(tmp_path / name, X) == "No such file or directory"
        (tmp_path / name).write_bytes(b"1,2,3")

    assert "magic string" in failure(tmp_path / "rows.npy", X)
    assert failure(tmp_path / "rows.npz", X) == "not an .npz file, or a truncated .npz file"
    assert failure(tmp_path / "rows.csv", X) == "neither an .npz or .npy file nor a folder of images"
    np.save(tmp_path / "rows.npy", ROWS)
    assert failure(tmp_path / "rows.npy", X, IDS).startswith("one array, and the model takes x float32 [N,4], ids")


def test_what_is_made_up_is_the_same_every_time() -> None:
    inputs = (X, TensorSpec("ids", "int64", (None, 3)))
    first, second = random_batch(inputs, 8), random_batch(inputs, 8)

    assert first is not None
    assert second is not None
    assert {name: array.shape for name, array in first.items()} == {"x": (8, 4), "ids": (8, 3)}
    assert set(first["ids"].ravel()) == {0, 1}
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])
    assert random_batch([IDS], 8) is None


def test_labels_come_beside_the_inputs(tmp_path: Path) -> None:
    path, folder = tmp_path / "rows.npz", tmp_path / "photos"
    np.savez(path, x=ROWS, labels=np.arange(5))
    save_images(folder, (6, 8), (6, 8))
    np.save(folder / "labels.npy", np.array(["cat", "dog"]))

    assert list(samples(path, [X], OPTIONS, 9)) == ["x"]
    for rows, source, expected in ((4, path, [0, 1, 2, 3]), (2, folder, ["cat", "dog"])):
        labels = labels_of(source, [X], rows)
        assert labels is not None
        assert labels.tolist() == expected


def test_an_input_called_labels_is_no_label(tmp_path: Path) -> None:
    spec = TensorSpec("labels", "float32", (None, 4))
    np.savez(tmp_path / "rows.npz", labels=ROWS)

    assert list(samples(tmp_path / "rows.npz", [spec], OPTIONS, 9)) == ["labels"]
    assert labels_of(tmp_path / "rows.npz", [spec], 5) is None


def test_labels_that_are_too_few_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=ROWS, labels=np.arange(4))

    with pytest.raises(ModelError, match=r"rows\.npz: labels has shape \[4\], and there are 5 records$"):
        labels_of(tmp_path / "rows.npz", [X], 5)
