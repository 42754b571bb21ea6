"""Jobs that cannot be calibrated on their live records, and the sentence that says why."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.node.calibration.checks import check_model, check_records, check_settings
from cluster_serving.node.config.loading import Config
from cluster_serving.node.models.detect import Detected, detect
from cluster_serving.node.models.fingerprint import fingerprint

X = TensorSpec("x", "float32", (None, 3))


@pytest.fixture
def model(tmp_path: Path) -> Detected:
    (tmp_path / "model.onnx").write_bytes(b"a model")
    return detect(str(tmp_path / "model.onnx"))


def beat_of(model: Detected, **changes: Any) -> Heartbeat:
    beat = Heartbeat(
        job="j",
        node="n",
        state="ready",
        started_ms=1,
        model="m",
        model_hash=fingerprint(model),
        backend="onnx",
        engine="native",
        inputs=(X,),
        outputs=(),
        raw=False,
        already_batched=False,
        batch_size=32,
    )
    return replace(beat, **changes)


@pytest.mark.skipif(find_spec("nncf") is None, reason="nncf is not installed")
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"record_encrypted": True}, "recordEncrypted is true: encrypted records are never sampled"),
        ({"model_encrypted": True}, "modelEncrypted is true: a model in INT8 is written to the disk"),
    ],
)
def test_nothing_that_is_encrypted_is_sampled(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(Fault, match=reason):
        check_settings(Config(**settings))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_hash": "sha256:other"}, "the job serves another model than there is at here: restart it first"),
        ({"already_batched": True, "batching": "none"}, r"a call of the model by itself \(batching none\)"),
        ({"inputs": ()}, "the model does not state its inputs: set modelInputs"),
        ({"inputs": (X, TensorSpec("t", "str", (None, 1)))}, "input t str .* has no numbers"),
        ({"inputs": (TensorSpec("s", "float32", (3,), None),)}, "input s float32 .* has no batch dimension"),
    ],
)
def test_a_model_that_cannot_be_proven_row_by_row(model: Detected, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Fault, match=reason):
        check_model(Config(model_path="here"), model, beat_of(model, **changes))


def test_a_model_of_numbers_in_rows_is_fine(model: Detected) -> None:
    check_model(Config(), model, beat_of(model))


@pytest.mark.parametrize(
    ("agreement", "records", "reason"),
    [
        (0.99, 597, "takes 598$"),
        (0.995, 1000, "takes 1196$"),
        (0.999, 2000, "takes 5990, and at most 2000 are read: set accuracyAgreement lower"),
    ],
)
def test_too_few_records(model: Detected, agreement: float, records: int, reason: str) -> None:
    with pytest.raises(Fault, match=f"^sent, and to prove accuracyAgreement, .*{reason}"):
        check_records(records, Config(accuracy_agreement=agreement), beat_of(model), "sent")


def test_a_model_for_a_fixed_batch_takes_whole_batches(model: Detected) -> None:
    fixed = beat_of(model, inputs=(TensorSpec("x", "float32", (8, 3)),))

    check_records(608, Config(), fixed, "sent")
    with pytest.raises(Fault, match="takes 608"):
        check_records(607, Config(), fixed, "sent")
