"""Contents of a decoded record as they lie in a slot."""

from typing import Any

from numpy.typing import NDArray

from cluster_serving.node.processing.model_input import array_of
from cluster_serving.node.reader.decoding import Record


def arrays(record: Record) -> list[NDArray[Any]]:
    """Arrays of a record of tensors, in the dtypes of the model."""
    assert record.error is None, record.error
    return [array_of(key, content) for key, content in zip(record.signature, record.contents, strict=True)]


def stored(record: Record) -> Record:
    """The record with the bytes that a slot gets. A refused record has none."""
    return record if record.error else record._replace(contents=[array.tobytes() for array in arrays(record)])
