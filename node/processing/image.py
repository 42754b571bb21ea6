"""Conversion of encoded images to rows of a model input, and of images to PNG files."""

import base64
import binascii
import contextlib
import re
from typing import Literal, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from cluster_serving.node.models.base import Array, TensorSpec
from cluster_serving.node.processing.options import MAX_PIXELS, ImageOptions

Image = NDArray[np.uint8 | np.uint16]  # (height, width, channels), BGR or grey or BGRA

_CHANNELS = (1, 3, 4)
_GREY, _COLOUR, _WITH_ALPHA = _CHANNELS
# Not IMREAD_COLOR_RGB: OpenCV 4.14 turns 16-bit TIFFs into noise with the flag. Reordering after resizing costs 10 us.
_TO_RGB = {_COLOUR: cv2.COLOR_BGR2RGB, _WITH_ALPHA: cv2.COLOR_BGRA2RGBA}
_FROM_8_TO_16_BIT = 257  # 255 becomes 65535
_OPEN_EXR = b"\x76\x2f\x31\x01"
_PNG = b"\x89PNG\r\n\x1a\n"
_ONLY = "only 8- and 16-bit images are decoded"
_JPEG = b"\xff\xd8\xff"
_MARKER = 0xFF
# Second bytes of the markers of a frame, whose header has the size: one for each kind of compression.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_MOST_SEGMENTS = 1000  # in front of the size: a file of many empty segments must not hold a worker
_REDUCED = {
    8: cv2.IMREAD_REDUCED_GRAYSCALE_8,
    4: cv2.IMREAD_REDUCED_GRAYSCALE_4,
    2: cv2.IMREAD_REDUCED_GRAYSCALE_2,
}
# Every image format has a byte outside the base64 alphabet among the first eight bytes (PNM: a line feed).
_BASE64_START = re.compile(rb"\s*[A-Za-z0-9+/]{8}")


def decode(content: bytes, channels: int, *, keep_16_bit: bool = False, least: int = 0) -> Image:
    """Return the pixels of an encoded image.

    A JPEG at 1/2, 1/4 or 1/8 of its size costs less to decode, because its blocks of 8 x 8 pixels are computed at this size.

    Args:
        content: bytes of a file in any format that OpenCV reads (JPEG, PNG, BMP, WebP, TIFF, ...), or base64 text of the bytes.
        channels: 1 for grey, 3 for BGR, 4 for BGRA (alpha 255 for an image without alpha).
        keep_16_bit: whether 16-bit images keep their lower byte.
        least: pixels that must remain of each side of a JPEG. 0: the whole size.

    Returns:
        `(height, width, channels)`, uint8, or uint16 for a 16-bit image that keeps its depth.

    Raises:
        ValueError: the content is no image or a broken image, or the image holds floating-point numbers or more than
            `MAX_PIXELS` pixels.
    """
    if _BASE64_START.match(content) is not None:
        with contextlib.suppress(binascii.Error):
            content = base64.b64decode(content.translate(None, b" \t\r\n"), validate=True)
    encoded = np.frombuffer(content, np.uint8)
    reduced = _reduced(encoded, least) if least else 0
    colour = cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH | reduced
    if channels == _WITH_ALPHA:
        image = _read(encoded, cv2.IMREAD_UNCHANGED)
        if image.ndim != 3 or image.shape[2] != _WITH_ALPHA:
            # Read again, in colour: OpenCV then handles grey images, palettes and the orientation of photos.
            image = _read(encoded, colour)
            image = cast("Array", cv2.cvtColor(image, cv2.COLOR_BGR2BGRA))
    elif channels == _GREY:
        image = _read(encoded, cv2.IMREAD_GRAYSCALE | cv2.IMREAD_ANYDEPTH | reduced)[:, :, np.newaxis]
    else:
        image = _read(encoded, colour)
    return (image >> 8).astype(np.uint8) if image.dtype == np.uint16 and not keep_16_bit else image


def encode_png(image: Image) -> bytes:
    """Return the PNG file of an image `(height, width)` or `(height, width, channels)`, in grey, BGR or BGRA."""
    return cv2.imencode(".png", image)[1].tobytes()


class ImageFit:
    """Converter of encoded images to rows of one model input.

    The shape of the input decides the layout: `[N,C,H,W]` if the second dimension is 1, 3 or 4, otherwise `[N,H,W,C]` if the
    last dimension is 1, 3 or 4. An input `[N,H,W]` takes grey images. Where the shape is open, the options decide. Where the
    options are open too, the layout is `[N,3,H,W]`.

    Pixels are 0..255 in the input's dtype, or 0..65535 for uint16. Floating-point inputs keep the lower byte of 16-bit images
    as a fraction: the pixel is divided by 257. `(pixel - mean) * scale` is applied last.

    `row_shape` is the shape of every row. A `None` in `row_shape` stands for a size taken from each image.
    """

    def __init__(self, spec: TensorSpec, options: ImageOptions | None = None) -> None:
        """Find the layout of the input.

        Args:
            spec: the model input.
            options: how to decode. Without `resize`, rows have the size of the input where fixed, else the size of the image.

        Raises:
            ValueError: the input takes no image, or no image with the given options.
        """
        options = options or ImageOptions()
        self._channels, self._layout, size = _layout(spec, options)
        resize = options.resize
        if resize is not None and any(fixed not in (None, asked) for fixed, asked in zip(size, resize, strict=True)):
            raise ValueError(
                f"images cannot be resized to height {resize[0]}, width {resize[1]}: the model takes {spec.describe()}"
            )
        self._height, self._width = size if resize is None else resize
        is_reduced = options.decoding == "reduced" and self._height is not None and self._width is not None
        # The longer side, because a photo may be turned.
        self._least = max(self._height or 0, self._width or 0) if is_reduced else 0
        self._reorder = _TO_RGB.get(self._channels) if options.order == "rgb" else None
        self._dtype = np.dtype(spec.dtype)
        self._floating = np.issubdtype(self._dtype, np.floating)
        # float16 has too few bits to compute in.
        self._wide = np.promote_types(self._dtype, np.float32) if self._floating else self._dtype
        self._mean = self._numbers("imageMean", options.mean, spec)
        self._scale = self._numbers("imageScale", options.scale, spec)
        size = (self._height, self._width)
        shapes: dict[_Layout, tuple[int | None, ...]] = {
            "hw": size,
            "chw": (self._channels, *size),
            "hwc": (*size, self._channels),
        }
        self.row_shape = shapes[self._layout]

    def __call__(self, content: bytes, out: Array | None = None) -> Array:
        """Return one row, in C order.

        Args:
            content: as for `decode`.
            out: array for the row, of the input's dtype and of the shape `row_shape`, which must have no `None`. Default: a new
                array.

        Raises:
            ValueError: `decode` refuses the content.
        """
        keep_16_bit = self._floating or self._dtype == np.uint16
        image: Array = decode(content, self._channels, keep_16_bit=keep_16_bit, least=self._least)
        height, width = self._height or image.shape[0], self._width or image.shape[1]
        if image.shape[:2] != (height, width):
            image = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
            image = image.reshape(height, width, self._channels)  # for images of one channel OpenCV drops the axis
        if self._reorder is not None:
            image = cv2.cvtColor(image, self._reorder)
        is_16_bit = image.dtype == np.uint16
        computes = self._mean is not None or self._scale is not None or is_16_bit
        dtype = self._wide if computes else self._dtype
        shape = {"hw": image.shape[:2], "chw": (self._channels, *image.shape[:2]), "hwc": image.shape}[self._layout]
        row = out if out is not None and dtype == self._dtype else np.empty(shape, dtype)
        if self._layout == "chw":
            # Split the channels first: 40 us for 3 x 227 x 227 float32. numpy takes 85 us to convert the transposed image.
            for plane, pixels in zip(row, cv2.split(image), strict=True):
                plane[...] = pixels
        else:
            row[...] = image[:, :, 0] if self._layout == "hw" else image
        if is_16_bit and self._floating:
            row /= _FROM_8_TO_16_BIT
        elif not is_16_bit and self._dtype == np.uint16:
            row *= _FROM_8_TO_16_BIT
        self._normalize(row)
        if out is None:
            return row.astype(self._dtype, copy=False)
        if out is not row:
            out[...] = row
        return out

    def _normalize(self, row: Array) -> None:
        """Apply `(row - mean) * scale` in place."""
        if self._layout == "chw":
            lines, repeat = row.reshape(self._channels, -1), 0
        else:
            # Compute on whole lines of pixels: numpy is eight times slower on the three numbers of each pixel.
            lines, repeat = row.reshape(row.shape[0], -1), row.shape[1]
        for numbers, apply in ((self._mean, np.subtract), (self._scale, np.multiply)):
            if numbers is not None:
                apply(lines, np.tile(numbers, repeat) if repeat else numbers[:, np.newaxis], out=lines)

    def _numbers(self, key: str, numbers: tuple[float, ...], spec: TensorSpec) -> Array | None:
        """Return a number for each channel."""
        if not numbers:
            return None
        if not self._floating:
            raise ValueError(f"{key} needs an input of floating-point numbers, and the model takes {spec.describe()}")
        if len(numbers) not in (1, self._channels):
            wanted = "one" if self._channels == 1 else f"one, or one for each of {self._channels} channels"
            raise ValueError(f"{key} has {len(numbers)} numbers, but for {spec.describe()} it must have {wanted}")
        return np.broadcast_to(np.array(numbers, self._wide), self._channels)


_Size = tuple[int | None, int | None]  # height, width
_Layout = Literal["chw", "hwc", "hw"]


def _layout(spec: TensorSpec, options: ImageOptions) -> tuple[int, _Layout, _Size]:
    """Return the number of channels, the layout, and the size that the input takes."""
    if spec.is_text or not np.can_cast(np.uint8, spec.dtype):
        raise ValueError(f"the input {spec.describe()} takes no image: {spec.dtype} does not hold 0..255")
    found = _fitting(spec.shape, options)
    if found is not None:
        return found
    if _fitting(spec.shape, ImageOptions()) is not None:
        channels = options.channels or "auto"
        raise ValueError(
            f"the input {spec.describe()} takes no image with imageChannels {channels} and imageLayout {options.layout}"
        )
    raise ValueError(
        f"the input {spec.describe()} takes no image: that needs [N,C,H,W] or [N,H,W,C] with 1, 3 or 4 channels, or [N,H,W]"
    )


def _fitting(shape: tuple[int | None, ...] | None, options: ImageOptions) -> tuple[int, _Layout, _Size] | None:
    """Return the first reading of a shape that the options allow. A fixed channel dimension goes before a free dimension."""
    if shape is None:
        shape = (None, None, None, None)
    if len(shape) == 3:
        return (_GREY, "hw", (shape[1], shape[2])) if options.channels in (0, _GREY) else None
    if len(shape) != 4:
        return None
    _, second, third, last = shape
    readings: list[tuple[int | None, _Layout, _Size]] = [
        (second, "chw", (third, last)),
        (last, "hwc", (second, third)),
    ]
    allowed = (options.channels,) if options.channels else _CHANNELS
    for channels, layout, size in sorted(readings, key=lambda reading: reading[0] is None):
        if options.layout in ("auto", layout) and (channels is None or channels in allowed):
            return channels or options.channels or _COLOUR, layout, size
    return None


def _read(encoded: NDArray[np.uint8], flags: int) -> Array:
    if encoded.size == 0:
        raise ValueError("the image is empty: 0 bytes")
    if encoded[:4].tobytes() == _OPEN_EXR:
        raise ValueError(f"the image holds floating-point values (OpenEXR), and {_ONLY}")
    if encoded[: len(_PNG)].tobytes() == _PNG:
        # Refuse a PNG file with a chunk longer than the file. OpenCV 4.14 allocates a chunk before reading the chunk: a file of
        # 80 bytes can take 1.4 GB and a second.
        content, at, has_pixels = encoded.data, len(_PNG), False
        while at + 8 <= len(content):
            length = int.from_bytes(content[at : at + 4])
            if length > len(content):
                raise ValueError(
                    f"not an image, or a broken one: a PNG of {len(content)} bytes with a chunk of {length}"
                )
            kind = content[at + 4 : at + 8].tobytes()
            has_pixels = has_pixels or kind == b"IDAT"
            if has_pixels and kind == b"IEND":
                break  # OpenCV reads no further, unless it has seen no pixels
            at += 12 + length  # length, type, data, checksum
    image = _imdecode(encoded, flags)
    if image is None:
        # OpenCV reads some floating-point images only with IMREAD_UNCHANGED.
        image = _imdecode(encoded, cv2.IMREAD_UNCHANGED)
        if image is None or image.dtype.kind != "f":
            start = encoded[:8].tobytes().hex(" ")
            raise ValueError(f"not an image, or a broken one: {encoded.size} bytes that begin with {start}")
    if image.shape[0] * image.shape[1] > MAX_PIXELS:
        raise ValueError(_too_large(f"it is {image.shape[1]} x {image.shape[0]}"))
    if image.dtype.name not in ("uint8", "uint16"):
        raise ValueError(f"the image holds {image.dtype} values, and {_ONLY}")
    return image


def _reduced(encoded: NDArray[np.uint8], least: int) -> int:
    """Return the flag of OpenCV for the smallest size that leaves `least` pixels of each side, or 0 for the whole size.

    The whole size is for images that are no JPEG, and for headers that OpenCV is to judge.

    Raises:
        ValueError: the image has more than `MAX_PIXELS` pixels. OpenCV counts them at the reduced size.
    """
    content, at = encoded.data, 2
    if encoded[: len(_JPEG)].tobytes() != _JPEG:
        return 0
    for _ in range(_MOST_SEGMENTS):
        if at + 9 > len(content) or content[at] != _MARKER:
            break
        if content[at + 1] in _FRAMES:
            height, width = int.from_bytes(content[at + 5 : at + 7]), int.from_bytes(content[at + 7 : at + 9])
            if height * width > MAX_PIXELS:
                raise ValueError(_too_large(f"it is {width} x {height}"))
            return next((flag for times, flag in _REDUCED.items() if min(height, width) >= times * least), 0)
        at += 2 + int.from_bytes(content[at + 2 : at + 4])  # marker, and the length of itself and its data
    return 0


def _imdecode(encoded: NDArray[np.uint8], flags: int) -> Array | None:
    try:
        image: Array | None = cv2.imdecode(encoded, flags)
    except cv2.error as error:
        if "MAX_IMAGE" in str(error):
            raise ValueError(_too_large("its header says more")) from error
        raise ValueError(f"the image cannot be decoded: {' '.join(error.err.split())}") from error
    return image


def _too_large(found: str) -> str:
    return f"the image is too large: {found}, and at most {MAX_PIXELS} pixels are decoded"
