"""Records that `predict` and `bench` are given on the command line."""

from pathlib import Path

import numpy as np
import pytest

from cluster_serving.node.commands.records_given import BadRecord, job_and_records, records

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


def test_a_folder_without_images() -> None:
    with pytest.raises(BadRecord, match="empty has no images"):
        list(records(["empty"]))


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
