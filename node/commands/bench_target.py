"""Target of `bench`: the job or frontend, with the records to send. One record is sent first, as `predict` would."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.http.frontend import Frontend
from cluster_serving.client.servers.process.exit_codes import Fault, NotStarted
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.commands.job_in_redis import Where, reach
from cluster_serving.node.commands.predict_answers import Answer, over_http, over_redis
from cluster_serving.node.commands.records_given import BadRecord, Record, client_inputs, json_instance, records
from cluster_serving.node.commands.served_model import inputs_of, model_of, serving_nodes
from cluster_serving.node.load.messages import HttpTarget, QueueTarget
from cluster_serving.node.tuning.errors import TuningError
from cluster_serving.node.tuning.inputs import made_up

_MOST_RECORDS, _MOST_BYTES = 1000, 64 << 20
_HTTP_CONNECTIONS = 64
_HTTP_OPEN_CONNECTIONS, _QUEUE_OPEN_CONNECTIONS = 1000, 100_000


class Aim(NamedTuple):
    """Target of a load.

    Attributes:
        target: address and requests, for the sending processes.
        job: name of the job, or of the model of the frontend.
        over: `queue`, or the URL of the frontend.
        records: the first record and the number of records, for people.
        connections: most requests under way of a closed loop, where the command line gives none.
        open_connections: the same, of an open loop.
        workers: number of workers of the job. 0: not known.
    """

    target: QueueTarget | HttpTarget
    job: str
    over: str
    records: str
    connections: int
    open_connections: int
    workers: int


def queue_aim(where: Where, words: Sequence[str], timeout_s: float) -> Aim:
    """Return the queue of a job.

    Raises:
        NotStarted: no node serves the job.
        BadRecord: a record cannot be read, or the model does not take it.
        Fault, ClusterServingError: the first record failed.
    """
    with reach(where) as reached:
        nodes = serving_nodes(reached)
        inputs = inputs_of(nodes)
        first, given = _records(words, inputs, calls=any(node.already_batched for node in nodes))
        _check(over_redis(reached, [first], timeout_s))
        encoded = _encoded(given, lambda record: encode_record("-", client_inputs(record, inputs))[2:])
        workers = sum(node.workers for node in nodes)
        # A batch of each worker runs, the next batch waits, and one more is being filled.
        connections = sum((2 * node.workers + 1) * node.batch_size for node in nodes) or _HTTP_CONNECTIONS
        target = QueueTarget(reached.config.redis_settings(), reached.job, encoded)
        return Aim(target, reached.job, "queue", _told(first, encoded), connections, _QUEUE_OPEN_CONNECTIONS, workers)


def http_aim(url: str, api_key: str | None, name: str | None, words: Sequence[str], timeout_s: float) -> Aim:
    """Return a model of a frontend.

    Raises:
        NotStarted: the frontend cannot be reached, or does not have the model.
        BadRecord: a record cannot be read, or the model does not take it.
        Fault, ClusterServingError: the first record failed.
    """
    frontend = Frontend(url, api_key)
    try:
        model = model_of(frontend, name, timeout_s)
        first, given = _records(words, model.inputs, calls=False)
        _check(over_http(frontend, model.name, [first], timeout_s))
    except ConnectionLost as error:
        raise NotStarted(str(error)) from error
    encoded = _encoded(
        given, lambda record: [json.dumps({"instances": [json_instance(record, model.inputs)]}).encode()]
    )
    target = HttpTarget(url, model.path, api_key, [body for (body,) in encoded])
    return Aim(
        target, model.name, frontend.describe(), _told(first, encoded), _HTTP_CONNECTIONS, _HTTP_OPEN_CONNECTIONS, 0
    )


def _records(words: Sequence[str], inputs: Sequence[TensorSpec], *, calls: bool) -> tuple[Record, Iterator[Record]]:
    """Return the first record, and all records."""
    if words:
        given = records(words)
    else:
        try:
            made = list(made_up(inputs, calls=calls))
        except TuningError as error:
            raise BadRecord(f"{error}, or name a RECORD") from error
        given = (Record("made up", record) for record in made)
    first = next(given, None)
    if first is None:
        raise BadRecord("there is no record in the input")
    return first, chain([first], given)


def _check(answers: Iterator[Answer]) -> None:
    """Raise the error of the answer to the first record, with the exit code that `predict` has."""
    for answer in answers:
        if answer.error is not None:
            fault = Fault(answer.failure)
            fault.exit_code = answer.exit_code
            raise fault


def _encoded(given: Iterator[Record], encode: Callable[[Record], list[bytes]]) -> list[list[bytes]]:
    """Return the first records, encoded, as many as the memory of several sending processes may hold."""
    found: list[list[bytes]] = []
    size = 0
    for record in islice(given, _MOST_RECORDS):
        found.append(encode(record))
        size += sum(map(len, found[-1]))
        if size >= _MOST_BYTES:
            break
    return found


def _told(first: Record, encoded: Sequence[object]) -> str:
    return first.name if len(encoded) == 1 else f"{first.name}, {len(encoded)} records"
