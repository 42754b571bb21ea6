"""Answers of a running job to the records of `predict`, over Redis or over a frontend."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from cluster_serving.client.errors import ErrorCode, InvalidValue, RecordFailed
from cluster_serving.client.http.frontend import Frontend
from cluster_serving.client.http.reply import parse_prediction, server_timing_ms
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.threads.input_queue import InputQueue
from cluster_serving.node.commands.records_given import BadRecord, Record, client_inputs, json_instance
from cluster_serving.node.commands.served_model import inputs_of, model_of, serving_nodes

if TYPE_CHECKING:
    from cluster_serving.node.commands.job_in_redis import Reached
    from cluster_serving.node.config.config import Config

_EXIT_CODES = {
    ErrorCode.INVALID_INPUT: ExitCode.USAGE,
    ErrorCode.DEADLINE_EXCEEDED: ExitCode.TIMED_OUT,
    "ResultTimeout": ExitCode.TIMED_OUT,
    "HTTP 400": ExitCode.USAGE,
    "HTTP 404": ExitCode.NOT_RUNNING,
}


def exit_code_of(code: str) -> ExitCode:
    """Return the exit code of a command for the error code of a record."""
    return _EXIT_CODES.get(code, ExitCode.FAILED)


class Answer(msgspec.Struct, frozen=True):
    """Answer to one record.

    Attributes:
        record: name of the record.
        job: name of the job.
        total_ms: milliseconds from the call to the answer, as the caller saw them.
        stages_ms: milliseconds of each stage, of which the total is the sum. Empty without a receipt.
        outputs: value of each output by name, as in `Result.outputs`.
        value: JSON value of a filter or of the user's `postprocess`, or None.
        error: code and message, or None.
    """

    record: str
    job: str
    total_ms: float
    stages_ms: dict[str, float]
    outputs: dict[str, Any]
    value: Any = None
    error: tuple[str, str] | None = None

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of a command that got this answer."""
        return ExitCode.OK if self.error is None else exit_code_of(self.error[0])

    @property
    def failure(self) -> str:
        """One line about the error."""
        code, message = self.error or ("", "")
        return f"{self.record}: {' '.join(message.splitlines())} ({code})"


def over_redis(reached: "Reached", records: Iterable[Record], timeout_s: float) -> Iterator[Answer]:
    """Send records one by one over the queue of a job, and yield the answers.

    Args:
        reached: job, and connection to its Redis.
        records: records, each read after the answer to the record before.
        timeout_s: seconds that an answer may take.

    Raises:
        NotStarted: no node serves the job.
        ClusterServingError: an error of `InputQueue.as_completed`, but for a value that cannot be sent.
    """
    inputs = inputs_of(serving_nodes(reached))
    given = iter(records)
    name, begun_s = "", 0.0

    def sent() -> Iterator[tuple[str, dict[str, Any]]]:
        nonlocal name, begun_s
        for record in given:
            name = record.name
            values = client_inputs(record, inputs)
            begun_s = time.perf_counter()
            yield record.name, values

    with _queue(reached.config, reached.job, timeout_s) as queue:
        while True:
            try:
                for result in queue.as_completed(sent(), timeout_s, window=1):
                    total_ms = 1000 * (time.perf_counter() - begun_s)
                    stages = _with_rest(result.stages, "client", total_ms)
                    yield Answer(
                        result.uri, reached.job, total_ms, stages, result.outputs, result.filtered, result.error
                    )
                return
            except (BadRecord, InvalidValue) as error:  # the next call of `as_completed` goes on behind this record
                yield _unsent(name, reached.job, error)


def over_http(frontend: Frontend, name: str | None, records: Iterable[Record], timeout_s: float) -> Iterator[Answer]:
    """Send records one by one to a frontend, and yield the answers.

    Args:
        frontend: the frontend.
        name: name of the model. Default: the only model.
        records: records, each read after the answer to the record before.
        timeout_s: seconds that an answer may take.

    Raises:
        NotStarted, Fault, ClusterServingError: the errors of `model_of` and of `Frontend.ask`.
    """
    model = model_of(frontend, name, timeout_s)
    for record in records:
        try:
            request = {"instances": [json_instance(record, model.inputs)]}
        except BadRecord as error:
            yield _unsent(record.name, model.name, error)
            continue
        begun_s = time.perf_counter()
        try:
            reply = frontend.ask(model.path, timeout_s, request)
        except RecordFailed as error:
            total_ms = 1000 * (time.perf_counter() - begun_s)
            yield Answer(record.name, model.name, total_ms, {}, {}, error=(error.code, error.reason))
            continue
        total_ms = 1000 * (time.perf_counter() - begun_s)
        # JSON tells no dtypes: where the frontend does not tell the outputs either, most are float32.
        value = parse_prediction(frontend.prediction(reply), np.float64 if model.outputs else np.float32)
        arrays = _outputs(value, model.outputs)
        stages = _with_rest(server_timing_ms(reply.server_timing), "client", total_ms)
        yield Answer(record.name, model.name, total_ms, stages, arrays, None if arrays else value)


def _unsent(record: str, job: str, error: BadRecord | InvalidValue) -> Answer:
    """Return the answer to a record that could not be sent."""
    reason = error.reason if isinstance(error, BadRecord) else str(error)
    return Answer(record, job, 0.0, {}, {}, error=(ErrorCode.INVALID_INPUT, reason))


def _queue(config: "Config", job: str, timeout_s: float) -> InputQueue:
    secrets = (config.redis_password, config.sentinel_password)
    password, sentinel_password = (secret.get_secret_value() if secret else None for secret in secrets)
    return InputQueue(
        name=job,
        url=config.redis_url.strip(),
        username=config.redis_username,
        password=password,
        db=config.redis_db or 0,
        ssl=config.redis_secure_enabled,
        ssl_ca_certs=config.redis_secure_trust_store_path or None,
        ssl_certfile=config.redis_cert_file,
        ssl_keyfile=config.redis_key_file,
        sentinel_username=config.sentinel_username,
        sentinel_password=sentinel_password,
        timeout_s=config.redis_timeout / 1000,
        patience_s=timeout_s,
        deadline_s=timeout_s,
    )


def _outputs(value: Any, specs: Sequence[TensorSpec]) -> dict[str, Any]:
    """Return the outputs in a prediction by name, in the dtypes of the model, which JSON does not tell.

    Empty: the prediction is the value of a filter.
    """
    values: list[Any]
    if isinstance(value, np.ndarray):
        values = [value]
    elif isinstance(value, list) and any(isinstance(part, np.ndarray) for part in value):
        values = value
    else:
        return {}
    if len(specs) != len(values):
        return {f"output {at}": part for at, part in enumerate(values)}
    return {
        spec.name: part.astype(spec.dtype) if isinstance(part, np.ndarray) and spec.is_numeric else part
        for spec, part in zip(specs, values, strict=True)
    }


def _with_rest(stages: Mapping[str, float], name: str, total_ms: float) -> dict[str, float]:
    """Return the stages and the rest of the total under a name. Without stages, nothing is returned."""
    # A stage ends on another clock, with whole milliseconds at its begin, so that the sum may be larger than the total.
    return {**stages, name: max(0.0, total_ms - sum(stages.values()))} if stages else {}
