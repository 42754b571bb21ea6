"""Check of a request's results, for protocols without partial answers."""

from collections.abc import Sequence

from cluster_serving.client.errors import RecordFailed
from cluster_serving.client.wire.result import Result
from cluster_serving.frontend.http.errors import STATUS_OF_RECORD, BadRequest


def check_all(results: Sequence[Result]) -> None:
    """Check that every row has a result, and that all rows have the same outputs.

    Raises:
        RecordFailed: a row failed. The error is of the first failed row.
        BadRequest: rows have different outputs, from a user's `postprocess` or from a change of the model in between.
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
