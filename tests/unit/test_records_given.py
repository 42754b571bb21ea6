"""Records that `predict` and `bench` are given on the command line."""

import math
from io import BytesIO, TextIOWrapper
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.node.commands.records_given import (
    BadRecord,
    Record,
    client_inputs,
    job_and_records,
    json_instance,
    records,
)
from support.broken_arrays import HUGE, UNCLOSED, npz

JPEG = b"\xff\xd8\xff\xe0" + bytes(30)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with records in it."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for name in ("b.jpg", "a.JPEG"):
        Path("photos", name).write_bytes(JPEG)
    Path("photos", "notes.txt").write_text("of no interest")
    Path("empty").mkdir()
    np.save("row.npy", np.zeros(2))


def test_a_folder_is_its_images_by_name() -> None:
    found = list(records(["photos", "[1]"]))

    assert [one.name for one in found] == ["photos/a.JPEG", "photos/b.jpg", "record 2"]
    assert found[0].value == JPEG


def test_hidden_files_of_a_folder_are_no_images() -> None:
    Path("photos", "._b.jpg").write_bytes(b"resource fork")

    assert [one.name for one in records(["photos"])] == ["photos/a.JPEG", "photos/b.jpg"]


def test_a_record_that_cannot_be_read_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("photos", "aa.jpg").touch()
    Path("rows.jsonl").write_text("[1]\n[1,\n[2]\n")
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"[3\n[3]\n")))

    found = list(records(["photos", "empty", "gone.npy", "w" * 300, "rows.jsonl", "-", "[4]"]))

    assert {one.name: one.fault.partition(":")[0] for one in found} == {
        "photos/a.JPEG": "",
        "photos/aa.jpg": "not an image, .npy, .npz or JSON",
        "photos/b.jpg": "",
        "empty": "no images in it",
        "gone.npy": "cannot be read",
        "w" * 60 + "...": "cannot be read",
        "rows.jsonl:1": "",
        "rows.jsonl:2": "not JSON",
        "rows.jsonl:3": "",
        "line 1": "not JSON",
        "line 2": "",
        "record 7": "",
    }
    for make in client_inputs, json_instance:
        with pytest.raises(BadRecord, match=r"^gone\.npy: cannot be read: No such file"):
            make(found[4], ())


@pytest.mark.parametrize("content", [HUGE, UNCLOSED, npz("x", HUGE), npz("x", UNCLOSED)])
def test_a_damaged_file_of_arrays_does_not_end_the_others(content: bytes) -> None:
    Path("rows.npy").write_bytes(content)

    broken, good = records(["rows.npy", "[4]"])

    assert broken.fault.startswith("a broken file of arrays: ")
    assert not good.fault


LONG = "word " * 100


def test_a_text_that_is_too_long_for_a_path_is_text() -> None:
    given = Record("r", {"text": LONG})

    assert client_inputs(given, ()) == {"text": {"string": LONG}}
    assert json_instance(given, ()) == json_instance(given, [FLOATS]) == {"text": LONG}
    assert job_and_records(None, [LONG, "row.npy"]) == (LONG, ["row.npy"])


def test_whole_numbers_of_64_bits_stay_as_they_are() -> None:
    record = Record("record 1", {"x": [1, 2**63 + 1]})

    assert client_inputs(record, [TensorSpec("x", "uint64", (None, 2))])["x"].tolist() == [1, 2**63 + 1]


FLOATS = TensorSpec("text", "float32", (None, 2))
LISTS, MAPS = (TensorSpec("x", dtype, None, None) for dtype in ("sequence(float32)", "map"))


@pytest.mark.parametrize(
    ("value", "inputs", "told"),
    [
        (5, [LISTS], "input 'x' takes sequence(float32), which is a list in JSON, not 5"),
        (5, [MAPS], "input 'x' takes map, which is a list in JSON, not 5"),
        (
            [2**63, 0.5],
            [TensorSpec("x", "int64", (None, 2))],
            "input 'x' takes int64, and 9.223372036854776e+18 of float64",
        ),
        ({"x": {"path": "no.png"}}, [], "input 'x': cannot read the image 'no.png': No such file or directory"),
        ({"text": LONG}, [FLOATS], f"input 'text': cannot read the image '{LONG[:60]}...': File name too long"),
    ],
)
def test_a_value_that_an_input_does_not_take(value: object, inputs: list[TensorSpec], told: str) -> None:
    with pytest.raises(BadRecord) as caught:
        client_inputs(Record("r", value), inputs)

    assert str(caught.value).startswith(f"r: {told}")
    assert str(caught.value).count("input") == 1


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (np.array([np.nan]), "input 't': JSON has neither NaN nor infinities"),
        ([1, math.inf], "input 't': JSON has neither NaN nor infinities"),
        ({"x": {"path": "no.png"}}, "input 'x': cannot read the image 'no.png': No such file or directory"),
        (np.array([1j]), "input 't': Object of type complex is not JSON serializable"),
    ],
)
def test_a_value_that_json_cannot_hold(value: object, told: str) -> None:
    with pytest.raises(BadRecord) as caught:
        json_instance(Record("r", value), ())

    assert str(caught.value).startswith(f"r: {told}")


@pytest.mark.parametrize(
    ("words", "least", "job", "rest"),
    [
        (["digits", "row.npy"], 0, "digits", 1),
        (["row.npy"], 0, None, 1),
        (["./photos"], 0, None, 1),
        (["photos/"], 0, None, 1),
        (["photos"], 0, "photos", 0),  # a job may have the name of a folder
        (["missing.jpg"], 0, None, 1),
        (["digits"], 0, "digits", 0),
        (["digits"], 1, None, 1),
        (["-"], 0, None, 1),
        ([], 0, None, 0),
    ],
)
def test_the_first_word_is_a_job_or_a_record(words: list[str], least: int, job: str | None, rest: int) -> None:
    found, left = job_and_records(None, words, least)

    assert (found, len(left)) == (job, rest)


def test_a_job_of_its_own_option_leaves_all_words() -> None:
    assert job_and_records("a", ["b", "row.npy"]) == ("a", ["b", "row.npy"])
