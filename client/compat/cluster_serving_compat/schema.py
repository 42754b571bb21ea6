"""Values of a record in the original's Arrow form."""

from typing import Any

import pyarrow as pa

from cluster_serving.client.wire.original.base64_text import from_base64
from cluster_serving.client.wire.original.encode import encode_record

__all__ = ["encode_image", "get_field_and_data"]


def get_field_and_data(key: str, value: Any) -> tuple[Any, Any]:
    """Return the Arrow field and the Arrow array of one input.

    Raises:
        InvalidValue: the value cannot be sent.
    """
    batch = pa.ipc.open_stream(from_base64(encode_record({key: value}), key)).read_next_batch()
    return batch.schema.field(0), batch.column(0)


def encode_image(img: Any) -> str:
    """Return the base64 text of an image as JPEG.

    Args:
        img: path of an image file, or an array (height, width, BGR) uint8.

    Raises:
        InvalidValue: the image cannot be read.
    """
    _, column = get_field_and_data("image", img if isinstance(img, str) else {"image": img})
    return str(column[0].as_py())
