"""Answers of a running job to the records of `predict`, over Redis or over a frontend."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import numpy as np

from cluster_serving.client.errors import ErrorCode, RecordFailed
from cluster_serving.client.http.frontend import Frontend
from cluster_serving.client.keys import node_key
from cluster_serving.client.protocol.absence import Inquiry
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault, NotStarted
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.threads.input_queue import InputQueue
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.node.commands.predict_input import BadRecord, Record, client_inputs, json_instance

if TYPE_CHECKING:
    from cluster_serving.node.commands.job_in_redis import Reached
    from cluster_serving.node.config.config import Config

_TIMING = re.compile(r"(\w+);dur=([0-9.]+)")
_REASON = 400
_EXIT_CODES = {
    ErrorCode.INVALID_INPUT: ExitCode.USAGE,
    ErrorCode.DEADLINE_EXCEEDED: ExitCode.TIMED_OUT,
    "HTTP 400": ExitCode.USAGE,
    "HTTP 404": ExitCode.NOT_RUNNING,
}


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
        return ExitCode.OK if self.error is None else _EXIT_CODES.get(self.error[0], ExitCode.FAILED)


class _Model(msgspec.Struct, frozen=True):
    """Model in the answer to `GET /models`."""

    name: str = msgspec.field(name="modelName")
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def over_redis(reached: "Reached", records: Iterable[Record], timeout_s: float) -> Iterator[Answer]:
    """Send records one by one over the queue of a job, and yield the answers.

    Args:
        reached: job, and connection to its Redis.
        records: records, each read after the answer to the record before.
        timeout_s: seconds that an answer may take.

    Raises:
        NotStarted: no node serves the job.
        BadRecord: a record does not fit the inputs of the model.
        ClusterServingError: an error of `InputQueue.as_completed`.
    """
    inputs = _inputs(reached)
    begun_s = 0.0

    def sent() -> Iterator[tuple[str, dict[str, Any]]]:
        nonlocal begun_s
        for record in records:
            values = client_inputs(record, inputs)
            begun_s = time.perf_counter()
            yield record.name, values

    with _queue(reached.config, reached.job, timeout_s) as queue:
        for result in queue.as_completed(sent(), timeout_s, window=1):
            total_ms = 1000 * (time.perf_counter() - begun_s)
            stages = _with_rest(result.stages, "client", total_ms)
            yield Answer(result.uri, reached.job, total_ms, stages, result.outputs, result.filtered, result.error)


def over_http(frontend: Frontend, name: str | None, records: Iterable[Record], timeout_s: float) -> Iterator[Answer]:
    """Send records one by one to a frontend, and yield the answers.

    Args:
        frontend: the frontend.
        name: name of the model. Default: the only model.
        records: records, each read after the answer to the record before.
        timeout_s: seconds that an answer may take.

    Raises:
        NotStarted: the frontend does not have the model, or has no model.
        BadRecord: a record does not fit the inputs of the model, or the name is missing and there are several models.
        ClusterServingError: an error of `Frontend.ask`.
    """
    try:
        found = frontend.ask("/models" if name is None else f"/models/{quote(name, safe='')}", timeout_s).document
        models = msgspec.convert(found, list[_Model])
    except RecordFailed as error:
        reason = " ".join(error.reason.split())[:_REASON]  # any server may answer with a page of HTML
        raise (NotStarted if error.code == "HTTP 404" else Fault)(reason) from error
    except msgspec.ValidationError as error:
        raise Fault(f"no frontend of Cluster Serving answers there: {error}") from error
    names = sorted({model.name for model in models})
    if not names:
        raise NotStarted("the frontend has no model")
    if len(names) > 1:
        raise BadRecord(f"the frontend has several models, so name one: {', '.join(names)}")
    inputs, outputs = models[-1].inputs, models[-1].outputs
    path = f"/models/{quote(names[0], safe='')}/predict"
    for record in records:
        request = {"instances": [json_instance(record, inputs)]}
        begun_s = time.perf_counter()
        try:
            reply = frontend.ask(path, timeout_s, request)
        except RecordFailed as error:
            total_ms = 1000 * (time.perf_counter() - begun_s)
            yield Answer(record.name, names[0], total_ms, {}, {}, error=(error.code, error.reason))
            continue
        total_ms = 1000 * (time.perf_counter() - begun_s)
        value = frontend.prediction(reply)
        arrays = _outputs(value, outputs)
        stages = {stage: float(ms) for stage, ms in _TIMING.findall(reply.server_timing)}
        within_ms = stages.pop("total", 0.0)
        stages = _with_rest(_with_rest(stages, "frontend", within_ms), "client", total_ms)
        yield Answer(record.name, names[0], total_ms, stages, arrays, None if arrays else value)


def _inputs(reached: "Reached") -> tuple[TensorSpec, ...]:
    """Return the inputs of the model of a job. Empty: the heartbeats do not tell, or the user of Redis may not read them."""
    inquiry = Inquiry(reached.job, reached.config.redis_settings().describe())
    replies = reached.link.exchange(*inquiry.for_reason())
    if any(isinstance(reply, RedisRefused) for reply in replies):
        return ()
    own = [key for key in replies[-1][::2] if key.startswith(node_key(reached.job, "").encode())]
    beats = [beat for key in own if (beat := reached.link.call("GET", key))]
    if not beats:
        raise NotStarted(inquiry.read_reason(replies))
    nodes: list[Heartbeat] = []
    for beat in beats:
        with suppress(msgspec.MsgspecError):  # of another release
            nodes.append(Heartbeat.decode(beat))
    if nodes and not any(node.is_callable for node in nodes):
        states = ", ".join(f"{node.node} is {node.state}" for node in nodes)
        raise NotStarted(f"no node of job {reached.job} is ready: {states}")
    return next((node.inputs for node in nodes if node.is_callable and not node.raw), ())


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
    """Return the outputs in a prediction by name. Empty: the prediction is the value of a filter."""
    if isinstance(value, np.ndarray):
        values = [value]
    elif isinstance(value, list) and any(isinstance(part, np.ndarray) for part in value):
        values = value
    else:
        return {}
    known = len(specs) == len(values)
    return {specs[at].name if known else f"output {at}": part for at, part in enumerate(values)}


def _with_rest(stages: Mapping[str, float], name: str, total_ms: float) -> dict[str, float]:
    """Return the stages and the rest of the total under a name. Without stages, nothing is returned."""
    # A stage ends on another clock, with whole milliseconds at its begin, so that the sum may be larger than the total.
    return {**stages, name: max(0.0, total_ms - sum(stages.values()))} if stages else {}
