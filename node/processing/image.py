"""Encoded images to the rows that a model takes, and back."""

import base64
import binascii
import re
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cluster_serving.node.models.base import Array, TensorSpec

Image = NDArray[np.uint8]  # (height, width, channels), BGR or grey or BGRA

# What Pillow refuses too. OpenCV's own limit is six times higher and read from OPENCV_IO_MAX_IMAGE_PIXELS when cv2 is
# imported: a process that sets it to this before then is spared the memory of decoding what is refused below.
MAX_PIXELS = 178_956_970

_CHANNELS = (1, 3, 4)
_GREY, _COLOUR, _WITH_ALPHA = _CHANNELS
# Every image format has a byte outside of the base64 alphabet among its first eight (PNM: a line feed).
_BASE64_START = re.compile(rb"\s*[A-Za-z0-9+/]{8}")


def decode(content: bytes, channels: int) -> Image:
    """The pixels of an encoded image.

    Args:
        content: a file's bytes in any format that OpenCV reads (JPEG, PNG, BMP, WebP, ...), or their base64 text.
        channels: 1 for grey, 3 for BGR, 4 for BGRA (alpha 255 where the image has none).

    Returns:
        `(height, width, channels)`, 0..255; 16-bit images lose their lower byte.

    Raises:
        ValueError: not an image, a broken one, or one of more than `MAX_PIXELS` pixels.
    """
    encoded = np.frombuffer(_without_base64(content), np.uint8)
    if channels == _WITH_ALPHA:
        image = _read(encoded, cv2.IMREAD_UNCHANGED)
        if image.ndim == 3 and image.shape[2] == _WITH_ALPHA:
            return (image >> 8).astype(np.uint8) if image.dtype == np.uint16 else _as_bytes(image)
        # Read again, in colour: grey, palettes, depths and a photo's orientation are taken care of.
        return _as_bytes(cv2.cvtColor(_read(encoded, cv2.IMREAD_COLOR), cv2.COLOR_BGR2BGRA))
    if channels == _GREY:
        return _as_bytes(_read(encoded, cv2.IMREAD_GRAYSCALE))[:, :, np.newaxis]
    return _as_bytes(_read(encoded, cv2.IMREAD_COLOR))


def encode_png(image: Image) -> bytes:
    """A PNG file of an image `(height, width)` or `(height, width, channels)`, BGR or grey or BGRA."""
    return cv2.imencode(".png", image)[1].tobytes()


class ImageFit:
    """Turns encoded images into rows of one model input.

    The input's shape says what it takes: `[N,C,H,W]` if its second dimension is 1, 3 or 4, otherwise `[N,H,W,C]` if its
    last one is; `[N,H,W]` takes grey images. Pixels stay 0..255, BGR, in the input's dtype: no mean, no scale.

    `row_shape` is the shape of every row; a `None` in it is taken from each image.
    """

    def __init__(self, spec: TensorSpec, image_resize: tuple[int, int] | None = None) -> None:
        """Find the layout of the input.

        Args:
            spec: the model input.
            image_resize: (height, width) of every row; `None`: the input's own where fixed, else the image's.

        Raises:
            ValueError: this input takes no image, or none of the size asked for.
        """
        self._channels, self._channels_first, size = _layout(spec)
        if image_resize is not None:
            if any(fixed not in (None, asked) for fixed, asked in zip(size, image_resize, strict=True)):
                raise ValueError(
                    f"images cannot be resized to height {image_resize[0]}, width {image_resize[1]}: "
                    f"the model takes {spec.describe()}"
                )
            size = image_resize
        self._height, self._width = size
        self._dtype = np.dtype(spec.dtype)
        self._has_channel_axis = len(spec.shape) == 4
        self.row_shape = self._row_shape(size)

    def __call__(self, content: bytes) -> Array:
        """One row, in C order.

        Raises:
            ValueError: as `decode`.
        """
        image = decode(content, self._channels)
        height, width = self._height or image.shape[0], self._width or image.shape[1]
        if image.shape[:2] != (height, width):
            resized = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
            image = _as_bytes(resized).reshape(height, width, self._channels)
        row: Array = image
        if not self._has_channel_axis:
            row = image[:, :, 0]
        elif self._channels_first:
            row = image.transpose(2, 0, 1)
        return np.ascontiguousarray(row, self._dtype)

    def _row_shape(self, size: tuple[int | None, int | None]) -> tuple[int | None, ...]:
        if not self._has_channel_axis:
            return size
        return (self._channels, *size) if self._channels_first else (*size, self._channels)


def _layout(spec: TensorSpec) -> tuple[int, bool, tuple[int | None, int | None]]:
    """Channels, whether they come first, and (height, width) of an input."""
    if spec.is_text or not np.can_cast(np.uint8, spec.dtype):
        raise ValueError(f"the input {spec.describe()} takes no image: {spec.dtype} does not hold 0..255")
    match spec.shape:
        case (_, height, width):
            return _GREY, False, (height, width)
        case (_, 1 | 3 | 4 as channels, height, width):
            return channels, True, (height, width)
        case (_, height, width, 1 | 3 | 4 as channels):
            return channels, False, (height, width)
        case _:
            raise ValueError(
                f"the input {spec.describe()} takes no image: that needs [N,C,H,W] or [N,H,W,C] with 1, 3 or 4 channels, "
                "or [N,H,W]"
            )


def _without_base64(content: bytes) -> bytes:
    if _BASE64_START.match(content) is None:
        return content
    try:
        return base64.b64decode(content.translate(None, b" \t\r\n"), validate=True)
    except binascii.Error:
        return content


def _read(encoded: Image, flags: int) -> NDArray[Any]:
    if encoded.size == 0:
        raise ValueError("the image is empty: 0 bytes")
    try:
        image: NDArray[Any] | None = cv2.imdecode(encoded, flags)
    except cv2.error as error:
        if "MAX_IMAGE" in str(error):
            raise ValueError(_too_large("its header says more")) from error
        raise ValueError(f"the image cannot be decoded: {str(error).strip()}") from error
    if image is None:
        start = encoded[:8].tobytes().hex(" ")
        raise ValueError(f"not an image, or a broken one: {encoded.size} bytes that begin with {start}")
    if image.shape[0] * image.shape[1] > MAX_PIXELS:
        raise ValueError(_too_large(f"it is {image.shape[1]} x {image.shape[0]}"))
    return image


def _too_large(found: str) -> str:
    return f"the image is too large: {found}, and at most {MAX_PIXELS} pixels are decoded"


def _as_bytes(image: NDArray[Any]) -> Image:
    if image.dtype != np.uint8:
        raise ValueError(f"the image holds {image.dtype} values, and only 8- and 16-bit images are decoded")
    return image
