"""Options of a request beside its tensors: the wanted outputs, their form, and the timeout."""

from typing import NamedTuple

from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.v2.request import InferRequest, Parameters, is_size, refuse_shared_memory

_MAX_TIMEOUT_US = 1 << 53


class Wanted(NamedTuple):
    """Form of one wanted output. `classes` is the number of highest values to return, or 0 for all values."""

    name: str
    binary: bool
    classes: int = 0


class Asked(NamedTuple):
    """Options of a request.

    Attributes:
        id: the client's own name for the request, or empty.
        outputs: wanted outputs, or empty for all.
        all_binary: whether outputs are wanted in binary when `outputs` is empty.
        timeout_s: seconds that the request may take, or None.
    """

    id: str
    outputs: tuple[Wanted, ...]
    all_binary: bool
    timeout_s: float | None

    @classmethod
    def of(cls, request: InferRequest) -> "Asked":
        """Return the options of a request. Parameters without a meaning here, such as `priority`, are ignored.

        Raises:
            BadRequest: a parameter is not valid, or an output is asked for twice.
        """
        binary = _flag(request.parameters, "binary_data_output", False, "the request")
        outputs: list[Wanted] = []
        for output in request.outputs or ():
            place = f"output {output.name!r}"
            refuse_shared_memory(output.parameters, place)
            classes = (output.parameters or {}).get("classification", 0)
            if not is_size(classes):
                raise BadRequest(
                    f"{place}: the parameter classification is {str(classes)[:40]}, not a number of classes"
                )
            outputs.append(Wanted(output.name, _flag(output.parameters, "binary_data", binary, place), classes))
        if len({output.name for output in outputs}) < len(outputs):
            raise BadRequest("the request asks for an output twice")
        timeout_us = (request.parameters or {}).get("timeout", 0)
        if not is_size(timeout_us) or timeout_us > _MAX_TIMEOUT_US:
            raise BadRequest(f"the parameter timeout is {str(timeout_us)[:40]}, not a whole number of microseconds")
        # The parameter 0 means no timeout.
        return cls(request.id or "", tuple(outputs), binary, timeout_us / 1e6 if timeout_us else None)


def _flag(parameters: Parameters | None, name: str, default: bool, place: str) -> bool:
    value = (parameters or {}).get(name, default)
    if not isinstance(value, bool):
        raise BadRequest(f"{place}: the parameter {name} is {str(value)[:40]}, not true or false")
    return value
