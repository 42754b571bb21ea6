"""Engine and precision of a model: the setting, the choice, and the candidates that were tried beside them."""

from typing import Literal

import msgspec

Engine = Literal["auto", "native", "openvino"]
Precision = Literal["auto", "f32", "bf16"]


class Runtime(msgspec.Struct, frozen=True):
    """What runs a model, and what it computes in."""

    engine: Engine
    precision: Precision

    @property
    def is_open(self) -> bool:
        """Whether something of it is still to be chosen."""
        return "auto" in (self.engine, self.precision)

    def described(self, backend: str) -> str:
        """Such as `onnx`, or `onnx, on openvino in bf16`."""
        engine = [f"on {self.engine}"] if self.engine != "native" else []
        precision = [f"in {self.precision}"] if self.precision != "f32" else []
        return ", ".join([backend, *filter(None, [" ".join(engine + precision)])])


class TriedRuntime(msgspec.Struct, frozen=True):
    """A runtime that was tried, beside the model's own in float32.

    `ms` is the median of a batch. `relative_error` is the largest difference of two outputs, as a share of the largest value of
    the output; `None` where they cannot be compared. `arg_max_agreement` is the share of rows with the same arg max. `refused`
    says why it is not taken, whatever its speed; empty: nothing is wrong with it. Who cannot be loaded has no figures.
    """

    engine: Engine
    precision: Precision
    ms: float | None = None
    relative_error: float | None = None
    arg_max_agreement: float | None = None
    refused: str = ""
