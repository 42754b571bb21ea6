"""The results of a request in the protocols that know no partial answer."""

from collections.abc import Sequence

from cluster_serving.client.errors import RecordFailed
from cluster_serving.client.wire.result import Result
from cluster_serving.frontend.errors import STATUS_OF_RECORD, BadRequest


def check_all(results: Sequence[Result]) -> None:
    """Check that every row has a result, with the same outputs as the others.

    Raises:
        RecordFailed: a row failed: the first of them.
        BadRequest: rows have different outputs: a user's `postprocess` may do that, and a change of the model in between.
    """
    for row, result in enumerate(results):
        if result.error is not None:
            code, message = result.error
            failed = RecordFailed(code, f"row {row}: {message}" if len(results) > 1 else message, "")
            failed.http_status = STATUS_OF_RECORD.get(code, 500)
            raise failed
        if result.outputs.keys() != results[0].outputs.keys():
            raise BadRequest(
                f"row 0 has {_named(results[0])}, row {row} has {_named(result)}, and one answer cannot hold both: ask for "
                "them one by one"
            )


def _named(result: Result) -> str:
    return f"the outputs {', '.join(map(repr, result.outputs))}" if result.outputs else "a value of its own"
