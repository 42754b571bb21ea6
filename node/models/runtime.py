"""Engine and precision of a model: the setting, the choice, and the candidates that were tried."""

from typing import Literal

import msgspec

Engine = Literal["auto", "native", "openvino"]
Precision = Literal["auto", "f32", "bf16", "int8"]


class Runtime(msgspec.Struct, frozen=True):
    """Engine and precision that run a model."""

    engine: Engine
    precision: Precision

    @property
    def is_open(self) -> bool:
        """True if engine or precision is still to be chosen."""
        return "auto" in (self.engine, self.precision)

    def described(self, backend: str) -> str:
        """Return the runtime in words, as in `onnx` or `onnx, on openvino in bf16`."""
        engine = [f"on {self.engine}"] if self.engine != "native" else []
        precision = [f"in {self.precision}"] if self.precision != "f32" else []
        return ", ".join([backend, *filter(None, [" ".join(engine + precision)])])


class TriedRuntime(msgspec.Struct, frozen=True):
    """A candidate runtime, compared with the model's own engine in float32.

    - `ms`: median time of a batch.
    - `relative_error`: largest difference between the two outputs, as a share of the largest value of the output. `None` if the
      outputs cannot be compared.
    - `arg_max_agreement`: share of rows with the same arg max.
    - `refused`: reason to refuse the runtime at any speed. Empty: no reason.
    - `records`: number of records that have judged INT8, and the agreement that they prove is `at_least`. None: not judged so.
    - `note`: how the runtime was made and judged, for people.

    A runtime that cannot be loaded has no figures.
    """

    engine: Engine
    precision: Precision
    ms: float | None = None
    relative_error: float | None = None
    arg_max_agreement: float | None = None
    refused: str = ""
    records: int | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def runtime(self) -> Runtime:
        """Engine and precision of the candidate."""
        return Runtime(self.engine, self.precision)

    def described(self) -> str:
        """Return the candidate for people, as in `openvino int8: 4.1 ms, 499 of 500 records agree` or `native bf16: refused`."""
        told = [] if self.ms is None else [f"{self.ms:.3g} ms"]
        told += [text for text in (self.refused and f"refused, {self.refused}", self.note) if text]
        return f"{self.engine} {self.precision}: {', '.join(told) or 'not measured'}"
