"""Instances of a JSON request to the fields of native records, checked before any record is enqueued."""

from functools import lru_cache
from typing import Any

from cluster_serving.client.errors import CodecError
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.binding import bind
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.job import Job
from cluster_serving.frontend.values.json_values import Fields, JsonInput

_MAX_INPUTS = 1024
_LARGEST_KEPT = 4096  # characters of names: a plan for longer names is made each time, and not kept


def encode_instance(instance: Any, job: Job) -> Fields:
    """Return the fields of one record: `field, value, ...`, without `uri`.

    Args:
        instance: value of each input, as described in `json_values.py`. Values are bound as in `client/wire/binding.py`.
        job: job of the model.

    Raises:
        BadRequest: the instance does not follow the grammar, or does not fit the model. The message names the input.
    """
    if not isinstance(instance, dict):
        wanted = ", ".join(spec.describe() for spec in job.inputs) or "one or more tensors"
        raise BadRequest(f"it is not a JSON object that has a value for each input: {wanted}")
    if len(instance) > _MAX_INPUTS:
        raise BadRequest(f"it has {len(instance)} inputs; at most {_MAX_INPUTS} are taken")
    node = job.described
    names = tuple(instance)
    plan = _kept_plan if sum(map(len, names)) <= _LARGEST_KEPT else _plan
    fields: Fields = []
    try:
        for name, taker in plan(node.inputs, node.raw, node.already_batched, names):
            fields += taker.fields(instance[name])
    except CodecError as error:
        raise BadRequest(str(error)) from error
    return fields


def _plan(
    inputs: tuple[TensorSpec, ...], raw: bool, calls: bool, names: tuple[str, ...]
) -> list[tuple[str, JsonInput]]:
    """Return the input for the value of each name in a record.

    Raises:
        CodecError: the names do not fit the inputs.
    """
    if names and raw:
        return [(name, JsonInput(None, name)) for name in names]
    if names and not inputs:
        axis = None if calls else 0
        return [(name, JsonInput(TensorSpec(name, "float32", None, axis), name)) for name in names]
    places, by_order = bind(names, inputs)
    bound = [(names[place], spec) for place, spec in zip(places, inputs, strict=True)]
    # Values bound by order keep their names, so that the node sees the order too.
    return [(name, JsonInput(spec, name if by_order else spec.name)) for name, spec in bound]


_kept_plan = lru_cache(maxsize=1024)(_plan)
