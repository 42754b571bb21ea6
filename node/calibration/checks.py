"""Checks whether a job can be calibrated on its live records, before any record is looked at."""

from cluster_serving.client.servers.process.exit_codes import Fault, ModelFault
from cluster_serving.client.servers.process.installed import require
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.node.config.loading import Config
from cluster_serving.node.engines.agreement import percent, records_needed
from cluster_serving.node.engines.precision import possible
from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.calibration_data import MOST_RECORDS
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.fingerprint import fingerprint
from cluster_serving.node.models.runtime import Runtime


def check_settings(config: Config) -> None:
    """Check the configuration of the job, and the packages of this machine.

    Raises:
        Fault: the job cannot be calibrated. The message says why.
    """
    require(["nncf", "openvino"], "int8", "NNCF, which quantises models, is")
    if config.record_encrypted:
        raise Fault(
            "recordEncrypted is true: encrypted records are never sampled; calibrate by calibrationData instead"
        )
    if config.model_encrypted:
        raise Fault("modelEncrypted is true: a model in INT8 is written to the disk, which an encrypted model never is")


def check_model(config: Config, model: Detected, beat: Heartbeat) -> None:
    """Check that the job serves the model of the configuration, and that INT8 of the model can be proven row by row.

    Args:
        config: configuration of the job.
        model: model of the configuration.
        beat: heartbeat of the node of this machine.

    Raises:
        Fault: the job cannot be calibrated. The message says why.
    """
    try:
        possible(model.backend, Runtime(config.engine, "int8"), bfloat16=False)
        model_hash = fingerprint(model)
    except ModelError as error:
        raise ModelFault(str(error)) from error
    if model_hash != beat.model_hash:
        raise Fault(f"the job serves another model than there is at {config.model_path}: restart it first")
    if beat.already_batched:
        raise Fault(
            f"each record is a call of the model by itself (batching {beat.batching}), and INT8 is proven row by row"
        )
    if not beat.inputs:
        raise Fault("the model does not state its inputs: set modelInputs, as in image float32 [N,3,224,224]")
    for spec in beat.inputs:
        if spec.batch_axis is None or not spec.is_numeric:
            lack = "no batch dimension" if spec.batch_axis is None else "no numbers"
            raise Fault(f"the model's input {spec.describe()} has {lack}, and INT8 is proven on rows of numbers")


def check_records(records: int, config: Config, beat: Heartbeat, whence: str) -> None:
    """Check that records are enough to prove `accuracyAgreement`.

    Args:
        records: number of records.
        config: configuration of the job.
        beat: heartbeat of the node of this machine.
        whence: beginning of the message: where the records are from.

    Raises:
        Fault: there are too few records.
    """
    batch = next((spec.batch for spec in beat.inputs if spec.batch), 1)
    needed = records_needed(config.accuracy_agreement, batch)
    if needed is None or records < needed:
        mend = f"to prove accuracyAgreement, {percent(config.accuracy_agreement)}, takes {needed}"
        if needed is None or needed > MOST_RECORDS:
            mend += f", and at most {MOST_RECORDS} are read: set accuracyAgreement lower"
        raise Fault(f"{whence}, and {mend}")
