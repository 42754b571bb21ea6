"""Encoded images become rows of the model's input."""

import base64
import struct
import zlib

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.processing import image as image_module
from cluster_serving.node.processing.image import ImageFit, decode, encode_png

COLOUR: NDArray[np.uint8] = np.random.default_rng(7).integers(0, 256, (5, 4, 3), np.uint8)  # height 5, width 4
GREY = COLOUR[:, :, 0]
ALPHA: NDArray[np.uint8] = np.dstack([COLOUR, GREY])


def spec(*shape: int | None, dtype: str = "float32") -> TensorSpec:
    return TensorSpec("image", dtype, shape)


def test_png_round_trip_keeps_every_pixel_in_bgr() -> None:
    for image, channels in ((COLOUR, 3), (GREY[:, :, np.newaxis], 1), (ALPHA, 4)):
        np.testing.assert_array_equal(decode(encode_png(image), channels), image)


def test_decoding_to_other_channels() -> None:
    np.testing.assert_array_equal(decode(encode_png(GREY), 3), np.dstack([GREY] * 3))
    np.testing.assert_array_equal(decode(encode_png(ALPHA), 3), COLOUR)
    assert decode(encode_png(COLOUR), 1).shape == (5, 4, 1)


@pytest.mark.parametrize("content", [encode_png(COLOUR), cv2.imencode(".jpg", COLOUR)[1].tobytes()])
def test_alpha_is_added_where_there_is_none(content: bytes) -> None:
    image = decode(content, 4)

    np.testing.assert_array_equal(image[:, :, :3], decode(content, 3))
    assert (image[:, :, 3] == 255).all()


@pytest.mark.parametrize(("image", "channels"), [(GREY, 1), (COLOUR, 3), (COLOUR, 4), (ALPHA, 4)])
def test_16_bit_images_lose_their_lower_byte(image: NDArray[np.uint8], channels: int) -> None:
    deep = image.astype(np.uint16) * 256 + 77
    content = cv2.imencode(".png", deep)[1].tobytes()

    expected = image[:, :, np.newaxis] if image.ndim == 2 else image
    np.testing.assert_array_equal(decode(content, channels)[:, :, : expected.shape[2]], expected)


@pytest.mark.parametrize("extension", [".png", ".jpg", ".bmp", ".ppm", ".webp", ".tiff"])
def test_base64_text_decodes_as_the_bytes_do(extension: str) -> None:
    content = cv2.imencode(extension, COLOUR)[1].tobytes()

    for text in (base64.b64encode(content), base64.b64encode(content) + b"\n", base64.encodebytes(content)):
        np.testing.assert_array_equal(decode(text, 3), decode(content, 3))


@pytest.mark.parametrize("content", [b"no image at all", b"AAAAAAAAAAA", b"AAAAAAAAAAAA", b"\x89PNG\r\n\x1a\n"])
def test_bytes_that_are_no_image(content: bytes) -> None:
    with pytest.raises(ValueError, match="not an image, or a broken one"):
        decode(content, 3)


def test_no_bytes() -> None:
    with pytest.raises(ValueError, match="the image is empty"):
        decode(b"", 3)


@pytest.mark.parametrize("extension", [".png", ".jpg"])
def test_a_truncated_image(extension: str) -> None:
    content = cv2.imencode(extension, cv2.resize(COLOUR, (64, 64)))[1].tobytes()

    with pytest.raises(ValueError, match="not an image, or a broken one"):
        decode(content[: len(content) // 2], 3)


def test_an_image_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_module, "MAX_PIXELS", 19)

    with pytest.raises(ValueError, match="too large: it is 4 x 5, and at most 19 pixels"):
        decode(encode_png(COLOUR), 3)


def test_a_header_that_says_too_much() -> None:
    """Refused before anything is decoded."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 40_000, 40_000, 8, 2, 0, 0, 0))
    content = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")

    with pytest.raises(ValueError, match="too large"):
        decode(content, 3)


def test_an_image_of_floats() -> None:
    content = cv2.imencode(".tiff", np.dstack([np.zeros((2, 2), np.float32)] * 4))[1].tobytes()

    with pytest.raises(ValueError, match="float32 values"):
        decode(content, 4)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((None, 3, None, None), COLOUR.transpose(2, 0, 1)),
        ((None, None, None, 3), COLOUR),
        ((None, 3, 5, 4), COLOUR.transpose(2, 0, 1)),
        ((None, 5, 4, 3), COLOUR),
        ((None, 4, 5, 4), ALPHA.transpose(2, 0, 1)),  # both could be channels: the second dimension is
        ((1, None, None), GREY),
        ((None, 1, 5, 4), GREY[np.newaxis]),
        ((None, 5, 4, 1), GREY[:, :, np.newaxis]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16", "int64"])
def test_the_layout_follows_from_the_shape(
    shape: tuple[int | None, ...], expected: NDArray[np.uint8], dtype: str
) -> None:
    source = {1: GREY, 3: COLOUR, 4: ALPHA}[1 if len(shape) == 3 or 1 in shape[1:] else 3 if 3 in shape else 4]
    fit = ImageFit(spec(*shape, dtype=dtype))

    row = fit(encode_png(source))

    np.testing.assert_array_equal(row, expected)
    assert row.dtype == dtype
    assert row.flags.c_contiguous
    assert all(dim in (None, size) for dim, size in zip(fit.row_shape, row.shape, strict=True))


def test_an_image_of_another_size_is_resized_bilinearly_to_the_models() -> None:
    expected = cv2.resize(COLOUR, (7, 6), interpolation=cv2.INTER_LINEAR)
    fit = ImageFit(spec(None, 3, 6, 7))

    assert fit.row_shape == (3, 6, 7)
    np.testing.assert_array_equal(fit(encode_png(COLOUR)), expected.transpose(2, 0, 1))


def test_resize_is_height_then_width() -> None:
    fit = ImageFit(spec(None, None, None, 3), (2, 8))

    assert fit.row_shape == (2, 8, 3)
    assert fit(encode_png(COLOUR)).shape == (2, 8, 3)


def test_grey_images_are_resized_too() -> None:
    assert ImageFit(spec(None, 1, 8, 8))(encode_png(GREY)).shape == (1, 8, 8)
    assert ImageFit(spec(None, 8, 8))(encode_png(GREY)).shape == (8, 8)


def test_one_fixed_side_leaves_the_other_to_the_image() -> None:
    fit = ImageFit(spec(None, 3, None, 9))

    assert fit.row_shape == (3, None, 9)
    assert fit(encode_png(COLOUR)).shape == (3, 5, 9)


@pytest.mark.parametrize(
    "shape", [(None, 10), (None,), (), (None, 2, 5, 5), (None, None, None, None), (None, 3, 2, 5, 5)]
)
def test_an_input_that_takes_no_image(shape: tuple[int | None, ...]) -> None:
    with pytest.raises(ValueError, match=r"^the input image float32 \[.* takes no image: that needs "):
        ImageFit(spec(*shape))


@pytest.mark.parametrize("dtype", ["int8", "bool", "str"])
def test_a_dtype_that_holds_no_pixels(dtype: str) -> None:
    with pytest.raises(ValueError, match=f"{dtype} does not hold 0..255"):
        ImageFit(spec(None, 3, 5, 4, dtype=dtype))


def test_a_size_that_the_model_does_not_take() -> None:
    with pytest.raises(ValueError, match=r"height 4, width 5: the model takes image float32 \[N,3,5,4\]"):
        ImageFit(spec(None, 3, 5, 4), (4, 5))
