"""Encoded images become rows of the model's input."""

import base64
import struct
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.processing import image as image_module
from cluster_serving.node.processing.image import ImageFit, decode, encode_png
from cluster_serving.node.processing.options import ImageOptions

COLOUR: NDArray[np.uint8] = np.random.default_rng(7).integers(0, 256, (5, 4, 3), np.uint8)  # height 5, width 4
GREY = COLOUR[:, :, 0]
ALPHA: NDArray[np.uint8] = np.dstack([COLOUR, GREY])
DEEP: NDArray[np.uint16] = np.random.default_rng(8).integers(0, 65536, (5, 4, 3), np.uint16)


def spec(*shape: int | None, dtype: str = "float32") -> TensorSpec:
    return TensorSpec("image", dtype, shape)


def png(width: int, height: int, colour_type: int, lines: bytes, **chunks: bytes) -> bytes:
    """A PNG file of 8 bits, of the kinds that OpenCV does not write; `lines` each begin with their filter, 0."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0))
    more = b"".join(chunk(name.encode(), data) for name, data in chunks.items())
    return b"\x89PNG\r\n\x1a\n" + header + more + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def test_a_png_may_have_anything_behind_its_end() -> None:
    content = encode_png(COLOUR) + b"a thumbnail, or an archive"

    np.testing.assert_array_equal(decode(content, 3), COLOUR)


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
    content = png(40_000, 40_000, 2, b"\0" * 100)

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


SMOOTH: NDArray[Any] = cv2.resize(COLOUR, (320, 400), interpolation=cv2.INTER_CUBIC)  # height 400, width 320


@pytest.mark.parametrize(("least", "times"), [(0, 1), (161, 1), (160, 2), (81, 2), (80, 4), (40, 8), (1, 8)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_reduced_jpeg_keeps_the_least_size(channels: int, least: int, times: int) -> None:
    found = decode(encoded(SMOOTH, ".jpg"), channels, least=least)

    assert found.shape == (400 // times, 320 // times, channels)
    expected = cv2.resize(decode(encoded(SMOOTH), channels), (320 // times, 400 // times), interpolation=cv2.INTER_AREA)
    assert np.abs(found.astype(int) - expected.reshape(found.shape)).mean() < 5


@pytest.mark.parametrize("extension", [".png", ".bmp", ".webp", ".tiff"])
def test_other_formats_are_never_reduced(extension: str) -> None:
    np.testing.assert_array_equal(decode(encoded(SMOOTH, extension), 3, least=1), SMOOTH)


@pytest.mark.parametrize("quality", [30, 95])
@pytest.mark.parametrize("progressive", [0, 1])
def test_every_kind_of_jpeg_is_reduced(quality: int, progressive: int) -> None:
    parameters = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_PROGRESSIVE, progressive]
    content = cv2.imencode(".jpg", SMOOTH, parameters)[1].tobytes()

    assert decode(content, 3, least=50).shape == (100, 80, 3)
    assert decode(base64.b64encode(content), 3, least=50).shape == (100, 80, 3)


@pytest.mark.parametrize(("segments", "height"), [(900, 100), (1000, 400)])
def test_the_size_of_a_jpeg_is_looked_for_behind_so_many_segments(segments: int, height: int) -> None:
    content = encoded(SMOOTH, ".jpg")

    assert decode(content[:2] + b"\xff\xef\x00\x02" * segments + content[2:], 3, least=50).shape[0] == height


def test_a_reduced_jpeg_of_too_many_pixels_is_refused_by_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_module, "MAX_PIXELS", 320 * 400 - 1)

    with pytest.raises(ValueError, match=f"too large: it is 320 x 400, and at most {320 * 400 - 1} pixels"):
        decode(encoded(SMOOTH, ".jpg"), 3, least=1)


@pytest.mark.parametrize("cut", [3, 4, 9, 20, 160, 500])
def test_a_cut_jpeg_is_refused_reduced_as_in_full(cut: int) -> None:
    content = encoded(SMOOTH, ".jpg")[:cut]

    for least in (0, 40):
        with pytest.raises(ValueError, match="not an image, or a broken one"):
            decode(content, 3, least=least)


@pytest.mark.parametrize(
    ("shape", "reads"), [((None, 3, 100, 80), 4), ((None, 3, 90, 300), 1), ((None, 3, None, 9), 1)]
)
def test_reduced_decoding_of_rows(shape: tuple[int | None, ...], reads: int) -> None:
    """Reduced where both sides are known, by the longer one, since a photo may be turned."""
    content = encoded(SMOOTH, ".jpg")
    height, width = shape[2] or 400, shape[3] or 320
    pixels = decode(content, 3, least=0 if reads == 1 else 100)
    expected = cv2.resize(pixels, (width, height)).transpose(2, 0, 1)

    np.testing.assert_array_equal(ImageFit(spec(*shape), ImageOptions(decoding="reduced"))(content), expected)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16", "uint16"])
@pytest.mark.parametrize("shape", [(None, 3, 6, 7), (None, 6, 7, 3), (None, 6, 7)])
@pytest.mark.parametrize("image", [COLOUR, DEEP])
def test_a_row_in_given_memory_is_the_row(shape: tuple[int | None, ...], dtype: str, image: NDArray[Any]) -> None:
    options = ImageOptions(mean=(3.0,), scale=(0.5,)) if dtype.startswith("float") else ImageOptions()
    fit = ImageFit(spec(*shape, dtype=dtype), options)
    expected = fit(encoded(image))
    out = np.ones_like(expected)

    assert fit(encoded(image), out) is out
    np.testing.assert_array_equal(out, expected)


def test_an_image_of_another_size_is_resized_bilinearly_to_the_models() -> None:
    expected = cv2.resize(COLOUR, (7, 6), interpolation=cv2.INTER_LINEAR)
    fit = ImageFit(spec(None, 3, 6, 7))

    assert fit.row_shape == (3, 6, 7)
    np.testing.assert_array_equal(fit(encode_png(COLOUR)), expected.transpose(2, 0, 1))


def test_resize_is_height_then_width() -> None:
    fit = ImageFit(spec(None, None, None, 3), ImageOptions(resize=(2, 8)))

    assert fit.row_shape == (2, 8, 3)
    assert fit(encode_png(COLOUR)).shape == (2, 8, 3)


def test_grey_images_are_resized_too() -> None:
    assert ImageFit(spec(None, 1, 8, 8))(encode_png(GREY)).shape == (1, 8, 8)
    assert ImageFit(spec(None, 8, 8))(encode_png(GREY)).shape == (8, 8)


def test_one_fixed_side_leaves_the_other_to_the_image() -> None:
    fit = ImageFit(spec(None, 3, None, 9))

    assert fit.row_shape == (3, None, 9)
    assert fit(encode_png(COLOUR)).shape == (3, 5, 9)


@pytest.mark.parametrize("shape", [(None, 10), (None,), (), (None, 2, 5, 5), (None, 3, 2, 5, 5)])
def test_an_input_that_takes_no_image(shape: tuple[int | None, ...]) -> None:
    with pytest.raises(ValueError, match=r"^the input image float32 \[.* takes no image: that needs "):
        ImageFit(spec(*shape))


@pytest.mark.parametrize("dtype", ["int8", "bool", "str"])
def test_a_dtype_that_holds_no_pixels(dtype: str) -> None:
    with pytest.raises(ValueError, match=f"{dtype} does not hold 0..255"):
        ImageFit(spec(None, 3, 5, 4, dtype=dtype))


def test_a_size_that_the_model_does_not_take() -> None:
    with pytest.raises(ValueError, match=r"height 4, width 5: the model takes image float32 \[N,3,5,4\]"):
        ImageFit(spec(None, 3, 5, 4), ImageOptions(resize=(4, 5)))


def encoded(image: NDArray[Any], extension: str = ".png") -> bytes:
    parameters = [cv2.IMWRITE_WEBP_QUALITY, 101] if extension == ".webp" else []  # above 100: lossless
    return cv2.imencode(extension, image, parameters)[1].tobytes()


@pytest.mark.parametrize("extension", [".png", ".bmp", ".webp", ".tiff", ".ppm", ".jpg"])
def test_every_format_in_grey_colour_and_with_alpha(extension: str) -> None:
    smooth = cv2.resize(COLOUR, (64, 48), interpolation=cv2.INTER_CUBIC)
    content = encoded(smooth, extension)
    tolerance = 40 if extension == ".jpg" else 0

    bgr, bgra, grey = (decode(content, channels).astype(int) for channels in (3, 4, 1))

    np.testing.assert_allclose(bgr, smooth, atol=tolerance)
    np.testing.assert_array_equal(bgra, np.dstack([bgr, np.full((48, 64), 255)]))
    np.testing.assert_allclose(grey[:, :, 0], cv2.cvtColor(smooth, cv2.COLOR_BGR2GRAY), atol=tolerance or 1)


@pytest.mark.parametrize("extension", [".png", ".bmp", ".webp", ".tiff"])
def test_alpha_is_kept_or_left_out(extension: str) -> None:
    image = ALPHA.copy()
    image[:, :, 3] |= 1  # WebP keeps no colours where nothing is seen
    content = encoded(image, extension)

    np.testing.assert_array_equal(decode(content, 4), image)
    np.testing.assert_array_equal(decode(content, 3), image[:, :, :3])
    assert decode(content, 1).shape == (5, 4, 1)


def test_png_with_grey_and_alpha() -> None:
    content = png(2, 1, 4, bytes([0, 10, 128, 20, 255]))

    assert decode(content, 4).tolist() == [[[10, 10, 10, 128], [20, 20, 20, 255]]]
    assert decode(content, 3).tolist() == [[[10] * 3, [20] * 3]]
    assert decode(content, 1).tolist() == [[[10], [20]]]


def test_png_with_a_palette() -> None:
    palette = bytes([255, 0, 0, 0, 0, 255])
    content = png(2, 1, 3, bytes([0, 1, 0]), PLTE=palette)
    see_through = png(2, 1, 3, bytes([0, 1, 0]), PLTE=palette, tRNS=bytes([7, 255]))

    assert decode(content, 3).tolist() == decode(see_through, 3).tolist() == [[[255, 0, 0], [0, 0, 255]]]
    assert decode(content, 4).tolist() == [[[255, 0, 0, 255], [0, 0, 255, 255]]]
    assert decode(see_through, 4).tolist() == [[[255, 0, 0, 255], [0, 0, 255, 7]]]
    assert decode(content, 1).tolist() == [[[29], [76]]]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_photo_is_turned_upright(channels: int) -> None:
    jpeg = encoded(np.zeros((8, 16, 3), np.uint8), ".jpg")
    turned = struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, 0x0112, 3, 1, 6, 0, 0)
    exif = b"\xff\xe1" + struct.pack(">H", len(turned) + 8) + b"Exif\0\0" + turned

    assert decode(jpeg[:2] + exif + jpeg[2:], channels).shape == (16, 8, channels)


@pytest.mark.parametrize("extension", [".png", ".tiff"])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_16_bit_images_in_full(extension: str, order: list[int]) -> None:
    """Pixels stay as they are for uint16, and become 0..255 with fractions for floating point."""
    options = ImageOptions(order="rgb" if order[0] else "bgr")
    content = encoded(DEEP, extension)

    for dtype, expected in (("uint16", DEEP), ("float32", DEEP / 257), ("float64", DEEP / 257), ("uint8", DEEP >> 8)):
        row = ImageFit(spec(None, 3, 5, 4, dtype=dtype), options)(content)

        assert row.dtype == dtype
        np.testing.assert_allclose(row, expected.transpose(2, 0, 1)[order], rtol=1e-6)
    half = ImageFit(spec(None, 5, 4, 3, dtype="float16"), options)(content)
    np.testing.assert_array_equal(half, (DEEP[:, :, order] / np.float32(257)).astype(np.float16))


def test_16_bit_images_of_other_channels() -> None:
    grey = ImageFit(spec(None, 5, 4, dtype="uint16"))
    alpha = ImageFit(spec(None, 5, 4, 4, dtype="uint16"))

    np.testing.assert_array_equal(grey(encoded(DEEP[:, :, 0])), DEEP[:, :, 0])
    np.testing.assert_array_equal(alpha(encoded(DEEP)), np.dstack([DEEP, np.full((5, 4), 65535)]))
    np.testing.assert_array_equal(alpha(encoded(np.dstack([DEEP, DEEP[:, :, 0]])))[:, :, 3], DEEP[:, :, 0])


def test_8_bit_images_fill_the_range_of_uint16() -> None:
    row = ImageFit(spec(None, 3, 5, 4, dtype="uint16"))(encoded(COLOUR))

    np.testing.assert_array_equal(row, COLOUR.transpose(2, 0, 1) * np.uint16(257))


def test_a_16_bit_image_is_resized_in_full() -> None:
    row = ImageFit(spec(None, 8, 9, 3))(encoded(DEEP))

    np.testing.assert_allclose(row, cv2.resize(DEEP, (9, 8)) / 257, rtol=1e-6)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(("shape", "extension"), [((2, 2), ".tiff"), ((2, 2, 3), ".tiff"), ((2, 2, 3), ".hdr")])
def test_floating_point_images_are_refused(channels: int, shape: tuple[int, ...], extension: str) -> None:
    with pytest.raises(ValueError, match=r"^the image holds float32 values, and only 8- and 16-bit images are decoded"):
        decode(encoded(np.ones(shape, np.float32), extension), channels)


def test_openexr_is_refused_by_name() -> None:
    with pytest.raises(
        ValueError, match=r"floating-point values \(OpenEXR\), and only 8- and 16-bit images are decoded"
    ):
        decode(b"\x76\x2f\x31\x01" + bytes(100), 3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("mean", "scale"),
    [((10.0, 20.0, 30.0), (0.5, 0.25, 2.0)), ((127.5,), (0.0078125,)), ((104.0, 117.0, 123.0), ()), ((), (1 / 255,))],
)
def test_mean_and_scale(mean: tuple[float, ...], scale: tuple[float, ...], dtype: str) -> None:
    expected = (COLOUR - np.array(mean or 0, np.float32)) * np.array(scale or 1, np.float32)
    options = ImageOptions(mean=mean, scale=scale)

    for shape, wanted in (((None, 5, 4, 3), expected), ((None, 3, 5, 4), expected.transpose(2, 0, 1))):
        row = ImageFit(spec(*shape, dtype=dtype), options)(encoded(COLOUR))

        assert row.dtype == dtype
        assert row.flags.c_contiguous
        np.testing.assert_allclose(row, wanted, rtol=2e-3 if dtype == "float16" else 1e-6, atol=1e-6)


def test_mean_and_scale_are_in_the_models_channel_order() -> None:
    fit = ImageFit(spec(None, 3, 5, 4), ImageOptions(order="rgb", mean=(1, 2, 3), scale=(4, 5, 6)))

    expected = [(COLOUR[:, :, 2] - 1.0) * 4, (COLOUR[:, :, 1] - 2.0) * 5, (COLOUR[:, :, 0] - 3.0) * 6]
    np.testing.assert_array_equal(fit(encoded(COLOUR)), expected)


@pytest.mark.parametrize("shape", [(None, 5, 4), (None, 1, 5, 4), (None, 5, 4, 1)])
def test_mean_and_scale_of_grey_images(shape: tuple[int | None, ...]) -> None:
    row = ImageFit(spec(*shape), ImageOptions(mean=(100,), scale=(0.5,)))(encoded(GREY))

    assert row.shape == shape[1:]
    np.testing.assert_array_equal(row, ((GREY - 100.0) / 2).reshape(row.shape))


def test_mean_and_scale_of_16_bit_images() -> None:
    row = ImageFit(spec(None, 3, 5, 4), ImageOptions(mean=(1, 2, 3), scale=(0.5,)))(encoded(DEEP))

    np.testing.assert_allclose(row, ((DEEP / 257 - (1, 2, 3)) * 0.5).transpose(2, 0, 1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "options", "text"),
    [
        ((None, 3, 5, 4), {"mean": (1.0, 2.0)}, "imageMean has 2 numbers, but for image float32 [N,3,5,4] it must have "
         "one, or one for each of 3 channels"),
        ((None, 3, 5, 4), {"scale": (1.0,) * 4}, "imageScale has 4 numbers, but for image float32 [N,3,5,4] it must have "
         "one, or one for each of 3 channels"),
        ((None, 5, 4), {"scale": (1.0,) * 3}, "imageScale has 3 numbers, but for image float32 [N,5,4] it must have one"),
    ],
)  # fmt: skip
def test_a_wrong_count_of_numbers(shape: tuple[int | None, ...], options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match="numbers, but for") as caught:
        ImageFit(spec(*shape), ImageOptions(**options))

    assert str(caught.value) == text


@pytest.mark.parametrize(("key", "options"), [("imageMean", {"mean": (1.0,)}), ("imageScale", {"scale": (2.0,)})])
def test_whole_numbers_take_no_mean_or_scale(key: str, options: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=rf"^{key} needs an input of floating-point numbers, and the model takes image"
    ):
        ImageFit(spec(None, 3, 5, 4, dtype="uint8"), ImageOptions(**options))


@pytest.mark.parametrize(
    ("shape", "options", "row_shape"),
    [
        (None, {}, (3, None, None)),
        (None, {"channels": 1}, (1, None, None)),
        (None, {"layout": "hwc", "resize": (6, 7)}, (6, 7, 3)),
        ((None, None, None, None), {}, (3, None, None)),
        ((None, None, 5, 6), {"channels": 4}, (4, 5, 6)),
        ((None, None, 5, 3), {}, (None, 5, 3)),
        ((None, 5, 4, None), {"channels": 1}, (5, 4, 1)),
        ((None, None, None, None), {"layout": "hwc", "channels": 4}, (None, None, 4)),
        ((None, 3, 6, 3), {}, (3, 6, 3)),
        ((None, 3, 6, 3), {"layout": "hwc"}, (3, 6, 3)),
        ((None, 4, 6, 3), {"channels": 3}, (4, 6, 3)),
        ((None, 5, 4), {"layout": "chw"}, (5, 4)),
    ],
)
def test_what_the_shape_leaves_open(
    shape: tuple[int | None, ...] | None, options: dict[str, Any], row_shape: tuple[int | None, ...]
) -> None:
    fit = ImageFit(TensorSpec("image", "float32", shape), ImageOptions(**options))

    assert fit.row_shape == row_shape
    row = fit(encoded(COLOUR))
    assert all(dim in (None, size) for dim, size in zip(fit.row_shape, row.shape, strict=True))


def test_layout_decides_where_both_ends_could_be_channels() -> None:
    square = COLOUR[:3, :3]
    channels_last = ImageOptions(layout="hwc")

    for options, expected in ((None, square.transpose(2, 0, 1)), (channels_last, square)):
        np.testing.assert_array_equal(ImageFit(spec(None, 3, 3, 3), options)(encoded(square)), expected)


@pytest.mark.parametrize(("channels", "order"), [(1, [0]), (3, [2, 1, 0]), (4, [2, 1, 0, 3])])
def test_order_rgb(channels: int, order: list[int]) -> None:
    """Of the colours only: alpha stays last, grey is grey."""
    content = encoded(ALPHA)

    row = ImageFit(spec(None, 5, 4, channels, dtype="uint8"), ImageOptions(order="rgb"))(content)

    np.testing.assert_array_equal(row, decode(content, channels)[:, :, order])


@pytest.mark.parametrize(
    ("shape", "options", "text"),
    [
        ((None, 3, 5, 4), {"channels": 1}, "imageChannels 1 and imageLayout auto"),
        ((None, 3, 5, 5), {"layout": "hwc"}, "imageChannels auto and imageLayout hwc"),
        ((None, 5, 5, 3), {"layout": "chw"}, "imageChannels auto and imageLayout chw"),
        ((None, 5, 5), {"channels": 3}, "imageChannels 3 and imageLayout auto"),
    ],
)
def test_options_that_contradict_the_model(shape: tuple[int | None, ...], options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=rf"^the input image float32 \[.*\] takes no image with {text}$"):
        ImageFit(spec(*shape), ImageOptions(**options))
