"""Measurements of a stand, and the state of the stand when something fails under the load."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.client.servers.process.exit_codes import ModelFault
from cluster_serving.client.wire.tensors import decode_tensor
from cluster_serving.node.config.choice import Shape
from cluster_serving.node.config.loading import Config
from cluster_serving.node.config.objective import Objective
from cluster_serving.node.job.redis_errors import RedisUnavailable
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.models.detect import detect
from cluster_serving.node.topology.share import Share
from cluster_serving.node.tuning.candidates import Candidate
from cluster_serving.node.tuning.errors import Refused
from cluster_serving.node.tuning.inputs import records
from cluster_serving.node.tuning.stand import Stand
from support.models import MODELS
from support.private_redis import PrivateRedis

ONE = Shape(1, 1)
SECONDS = 0.05
IMAGE = TensorSpec("image", "float32", (None, 3, 8, 8))
FAILS_AT_WILL = """
from pathlib import Path

class Model:
    inputs = outputs = [("x", "float32", (None, 2))]

    def predict(self, batch):
        if Path(__file__).with_name("fails").exists():
            raise ValueError("at will")
        return batch
"""


def stand(model: Path, server: PrivateRedis) -> Stand:
    config = Config(model_path=str(model), job_name="stand", redis_url=server.url, log_level="error")
    return Stand(config, detect(config.model_path), Share().budget, Objective(), lambda: None)


def test_shape_is_measured_again_after_a_record_failed(tmp_path: Path, redis_server: PrivateRedis) -> None:
    model, fails = tmp_path / "model.py", tmp_path / "fails"
    model.write_text(FAILS_AT_WILL)

    with stand(model, redis_server) as tried:
        tried.open(ONE, 4)
        fails.touch()
        with pytest.raises(Refused, match="at will"):
            tried.measure(Candidate(ONE, 4), SECONDS)
        fails.unlink()
        measured = tried.measure(Candidate(ONE, 2), SECONDS)
        with redis_server.client() as client:
            [limits] = client.scan_iter("*limits_stand.tune*")
            client.zadd(limits.replace(b"limits", b"slow"), {"a record": 1})  # as the writer does every ten seconds

    assert measured.rate > 0
    with redis_server.client() as client:
        assert list(client.scan_iter("*stand.tune*")) == []


def test_redis_that_goes_away_ends_the_measuring(own_redis: PrivateRedis) -> None:
    with stand(MODELS / "affine.py", own_redis) as tried:
        tried.open(ONE, 4)
        own_redis.stop(signal.SIGKILL)

        with pytest.raises(RedisUnavailable, match="Redis at"):
            tried.measure(Candidate(ONE, 4), SECONDS)
    own_redis.start()  # its fixture stops it


def test_images_of_the_user_are_sent_as_they_are(tmp_path: Path) -> None:
    cv2: Any = pytest.importorskip("cv2")
    pixels = np.arange(3 * 8 * 8, dtype=np.uint8).reshape(8, 8, 3)
    assert cv2.imwrite(str(tmp_path / "a.png"), pixels)

    sent = records(Config(calibration_data=str(tmp_path)), [IMAGE])

    assert sent == [[b"image:image", (tmp_path / "a.png").read_bytes()]]


def test_a_call_is_one_record_with_its_arrays_as_they_are(tmp_path: Path) -> None:
    inputs = [TensorSpec("x", "float32", (None, 3), None), TensorSpec("rate", "int64", (), None)]
    np.savez(tmp_path / "call.npz", x=np.zeros((5, 3), np.float32), rate=np.int64(8))

    [made_up] = records(Config(), inputs, calls=True)
    [own] = records(Config(calibration_data=str(tmp_path / "call.npz")), inputs, calls=True)

    assert [decode_tensor(value).shape for value in made_up[1::2]] == [(1, 3), ()]
    assert [decode_tensor(value).shape for value in own[1::2]] == [(5, 3), ()]


def test_samples_that_do_not_fit_are_a_fault(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.zeros((4, 5), np.float32))

    with pytest.raises(ModelFault, match=r"^calibrationData .*rows\.npy: "):
        records(Config(calibration_data=str(tmp_path / "rows.npy")), [IMAGE])
