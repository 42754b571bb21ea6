"""Calibration data in a job's directory: settings that come and go, and files that go with them."""

import errno
import resource
import stat
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.node.calibration.folder import CalibrationFolder, write_records
from cluster_serving.node.engines.calibration import samples
from cluster_serving.node.job.directory import Job, NodeRecord
from cluster_serving.node.lifecycle.options import StartOptions
from cluster_serving.node.processing.options import ImageOptions

RECORD = NodeRecord("j", "n", 1, None, [], "redis", None, 4.0, 1)
RECORDS = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job.of("j", {"CLUSTER_SERVING_HOME": str(tmp_path)})
    made.create()
    return made


def written(folder: CalibrationFolder, kept: Path) -> Path:
    data = folder.new()
    write_records(data, {"x": RECORDS}, kept)
    return data


def test_the_settings_are_added_and_taken_back_whatever_stands_around_them(job: Job) -> None:
    folder = CalibrationFolder(job)
    own = ("precision=bf16", "calibrationData=own.npz")
    before = StartOptions(settings=own)

    applied = folder.applied(before, folder.new(), "auto")
    later = StartOptions(settings=("batchSize=4",)).over(applied)

    assert applied.settings[2] == "precision=auto"
    assert folder.taken_back(applied) == before
    assert folder.taken_back(later).settings == (*own, "batchSize=4")
    assert folder.taken_back(before) == before


def test_a_precision_that_was_set_later_stays_and_nothing_else_goes(job: Job) -> None:
    folder = CalibrationFolder(job)
    applied = folder.applied(StartOptions(settings=("postProcessing=topN(1)",)), folder.new(), "auto")
    later = StartOptions(settings=("engine=native", "precision=f32")).over(applied)

    assert folder.taken_back(later).settings == ("postProcessing=topN(1)", "engine=native", "precision=f32")


def test_only_data_that_the_job_names_stay_with_what_was_made_of_them(job: Job, tmp_path: Path) -> None:
    folder, store = CalibrationFolder(job), job.proof_directory(str(tmp_path))
    store.mkdir()
    with folder.held():
        used, unused = written(folder, store / "aa"), written(folder, store / "bb")
        for name in ("aa-model-native-f32.json", "bb-model-native-f32.json", ".bb-model-int8-01.lock"):
            (store / name).touch()
        (store / "bb-model-int8-01").mkdir()
        (store / ".int8-x").mkdir()  # of a process that was killed
        job.record(replace(RECORD, flags=folder.applied(StartOptions(), used, "int8").argv()))
        folder.remove_unused()

        assert used.exists()
        assert not unused.parent.exists()
        assert [path.name for path in store.iterdir()] == ["aa-model-native-f32.json"]


def test_a_full_disk_is_told_with_the_file_and_leaves_nothing(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    (mine / "my-model").mkdir(parents=True)
    monkeypatch.chdir(mine)
    folder = CalibrationFolder(job)
    data, kept = folder.new(), job.proof_directory("") / "aa"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with folder.held():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # files can be made, and nothing written
        try:
            with pytest.raises(OSError) as caught:  # noqa: PT011 - its file is looked at below
                write_records(data, {"x": RECORDS}, kept)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        folder.remove_unused()

        assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(data))
        assert not data.parent.exists()
        assert [*mine.iterdir()] == [mine / "my-model"]


@pytest.mark.parametrize("content", ["", "my", "{mine}/my"])
def test_a_damaged_path_of_what_was_kept_removes_nothing(
    content: str, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    (mine / "my-model").mkdir(parents=True)
    monkeypatch.chdir(mine)
    folder = CalibrationFolder(job)
    with folder.held():
        data = written(folder, job.proof_directory("") / "aa")
        (data.parent / "kept").write_text(content.format(mine=mine))
        folder.remove_unused()

        assert not data.parent.exists()
        assert [*mine.iterdir()] == [mine / "my-model"]


def test_the_records_are_for_their_owner_and_for_calibration_data(job: Job) -> None:
    """An input may have any name."""
    folder = CalibrationFolder(job)
    with folder.held():
        data = folder.new()
        write_records(data, {"file": RECORDS}, job.directory / "aa")

    assert stat.S_IMODE(data.stat().st_mode) == 0o600
    assert stat.S_IMODE(data.parent.stat().st_mode) == 0o700
    found = samples(data, [TensorSpec("file", "float32", (None, 2))], ImageOptions(), 10)
    assert found["file"].tolist() == RECORDS.tolist()


def test_one_process_at_a_time(job: Job) -> None:
    with CalibrationFolder(job).held(), pytest.raises(Fault, match="another calibrate of job j is under way"):
        CalibrationFolder(job).held().__enter__()
