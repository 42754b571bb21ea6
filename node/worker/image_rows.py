"""Encoded images as rows of one model input."""

import numpy as np

from cluster_serving.node.models.allocator import keep_freed_memory
from cluster_serving.node.models.base import Array, TensorSpec
from cluster_serving.node.processing.image import ImageFit
from cluster_serving.node.processing.options import ImageOptions


class ImageRows:
    """Maker of rows of one model input. Rows of a fixed size stand one behind another in memory that every batch uses again.

    The process keeps freed memory from now on: of 93 ms for decoding a photo of 4000 x 3000 pixels, 54 ms went into fresh pages.

    Args:
        spec: model input.
        options: settings for images.

    Raises:
        ValueError: the input takes no image.
    """

    def __init__(self, spec: TensorSpec, options: ImageOptions) -> None:
        shape, is_row = spec.shape, spec.batch_axis is not None
        self._adds_axis = not is_row and (shape is None or len(shape) == 4)  # for a batch of images, not for an image
        if not is_row and shape is not None and len(shape) == 3:
            spec = TensorSpec(spec.name, spec.dtype, (None, *shape))
        self._fit = ImageFit(spec, options)
        self._row_shape = tuple([size for size in self._fit.row_shape if size is not None])
        self._in_place = is_row and len(self._row_shape) == len(self._fit.row_shape)
        self._rows = np.empty((0, *self._row_shape), spec.dtype)
        keep_freed_memory()

    def row(self, content: bytes, place: int, most: int) -> Array:
        """Return an image as a row, valid until the next batch.

        Args:
            content: encoded image.
            place: place of the row in the batch. Place 0 begins a batch.
            most: largest number of rows in the batch.

        Raises:
            ValueError: the content is no image that can be decoded.
        """
        if not self._in_place:
            row = self._fit(content)
            return row[np.newaxis] if self._adds_axis else row
        if len(self._rows) < most:
            self._rows = np.empty((most, *self._row_shape), self._rows.dtype)
        return self._fit(content, self._rows[place])
