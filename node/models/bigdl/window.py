"""Placement of the windows of a convolution or a pooling: BigDL's rules for sizes and padding."""

import msgspec
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from cluster_serving.node.models.bigdl.tree import Module

_SAME = -1
SPATIAL = ("H", "W")
VOLUMETRIC = ("T", "H", "W")


class Window(msgspec.Struct, frozen=True):
    """A window over the last axes of a tensor, with a number for each axis. `pad` of -1 on all axes is TensorFlow's SAME."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil: bool = False

    @classmethod
    def of(
        cls,
        module: Module,
        axes: tuple[str, ...],
        *,
        kernel: str = "k",
        stride: str = "d",
        pad: str = "pad",
        ceil: str = "",
    ) -> "Window":
        """Read a window from attributes such as `kH` and `kW`, `dH` and `dW`, `padH` and `padW`."""

        def numbers(prefix: str, default: int | None) -> tuple[int, ...]:
            return tuple(module.integer(prefix + axis, default) for axis in axes)

        return cls(
            numbers(kernel, None),
            numbers(stride, 1),
            numbers(pad, 0),
            numbers("dilation", 1),
            bool(ceil) and module.flag(ceil, default=False),
        ).simplified()

    @property
    def extent(self) -> tuple[int, ...]:
        """Reach of the window along each axis, with the dilation."""
        return tuple(gap * (size - 1) + 1 for gap, size in zip(self.dilation, self.kernel, strict=True))

    @property
    def is_same(self) -> bool:
        """True if the padding follows the input's size."""
        return all(pad == _SAME for pad in self.pad)

    @property
    def is_plain_convolution(self) -> bool:
        """True if torch places the window likewise in a convolution: BigDL drops windows that lie in the padding alone."""
        if self.is_same:
            return False
        # BigDL is broken for a 1x1 convolution with padding. torch computes the right result.
        return set(self.kernel) == {1} or all(pad < reach for pad, reach in zip(self.pad, self.extent, strict=True))

    @property
    def is_plain_pooling(self) -> bool:
        """True if torch places the window likewise in a pooling. torch demands a padding of at most half the kernel."""
        if self.is_same or any(2 * pad > size for pad, size in zip(self.pad, self.kernel, strict=True)):
            return False
        return not self.ceil or all(step <= size for step, size in zip(self.stride, self.kernel, strict=True))

    def simplified(self) -> "Window":
        """Return the window with numbers for SAME if every input has the same numbers: odd reach and a stride of 1."""
        if self.is_same and set(self.stride) == {1} and all(reach % 2 for reach in self.extent):
            return msgspec.structs.replace(self, pad=tuple(reach // 2 for reach in self.extent))
        return self

    def padding(self, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
        """Return the padding before and after each axis of `sizes`, so that all windows lie inside. Negative numbers crop."""
        clip = any(self.pad)
        pads: list[tuple[int, int]] = []
        for size, reach, step, pad in zip(sizes, self.extent, self.stride, self.pad, strict=True):
            if self.is_same:
                total = max(0, (-(-size // step) - 1) * step + reach - size)
                pads.append((total // 2, total - total // 2))
                continue
            room = size - reach + 2 * pad
            count = (-(-room // step) if self.ceil else room // step) + 1
            if clip and (count - 1) * step >= size + pad:
                count -= 1
            pads.append((pad, (count - 1) * step + reach - size - pad))
        return pads

    def padded(self, images: torch.Tensor, value: float = 0.0) -> torch.Tensor:
        """Return the images with the padding, filled with `value`."""
        pads = self.padding(tuple(images.shape[-len(self.kernel) :]))
        return F.pad(images, [amount for pair in reversed(pads) for amount in pair], value=value)
