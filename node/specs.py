"""What the supervisor tells a child on its standard input, and the child answers on its ready pipe."""

from typing import Literal

import msgspec

from cluster_serving.client.original.values import SparseLayout
from cluster_serving.node.models.base import LoadOptions, TensorSpec
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.ring.spec import LaneSpec

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


class DecodeOptions(msgspec.Struct, frozen=True):
    """How entries become rows.

    `already_batched`: every tensor has the batch dimension. `sparse_layout`: how to read the indices of a sparse tensor with as
    many values as dimensions. `raw`: records go to the workers as they are, for the user's own `preprocess`. `encrypted`:
    images are encrypted.
    """

    already_batched: bool = False
    sparse_layout: SparseLayout = "ndim-major"
    raw: bool = False
    encrypted: bool = False


class ReaderSpec(msgspec.Struct, frozen=True):
    """For the reader; `inputs` is empty where the model takes any number of tensors.

    `consumer` is its name in the group: no other process reads under it at the same time, and who reads under it later takes
    over what it has left. `lease_s` and `max_deliveries` are the configuration's.
    """

    lane: LaneSpec
    consumer: str
    inputs: tuple[TensorSpec, ...]
    max_batch_delay_ms: float
    decoding: DecodeOptions
    lease_s: float
    max_deliveries: int


class WriterSpec(msgspec.Struct, frozen=True):
    """For the writer.

    `legacy_filter_text`: answers in the original dialect have the exact text of the original's filters. `model_hash` goes into
    dead letters, of which the newest `max_dead_letters` are kept.
    """

    lane: LaneSpec
    result_ttl_ms: int
    legacy_filter_text: bool
    model_hash: str
    max_dead_letters: int


class ImageOptions(msgspec.Struct, frozen=True):
    """How encoded images become rows of an input.

    `resize` to (height, width). `channels`: 1, 3 or 4, where the input's shape leaves it open (0: 3). `order` "bgr" or "rgb".
    `layout` "chw", "hwc", or "auto": from the input's shape. A value is (pixel - mean) * scale; `mean` and `scale` have no
    number (0 and 1), one, or one a channel, in the channel order of the model.
    """

    resize: tuple[int, int] | None = None
    channels: int = 0
    order: Literal["bgr", "rgb"] = "bgr"
    layout: Literal["auto", "chw", "hwc"] = "auto"
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()


class Secrets(msgspec.Struct, frozen=True):
    """What opens encrypted models (or records): `secret` and `salt`; empty: they will be put into Redis."""

    secret: str = ""
    salt: str = ""

    def __repr__(self) -> str:
        return "Secrets(***)"


class WorkerSpec(msgspec.Struct, frozen=True):
    """For a worker.

    `model` is what `models.detect` found. `runtime` is the setting, or what the first worker chose; where it is open, the
    candidates are tried on `calibration_data`, and refused beyond `accuracy_tolerance`. `model_secrets` and `record_secrets` are
    `None` where nothing is encrypted. `labels`, `processing` and `calibration_data` are the configuration's, as absolute paths.
    """

    lane: LaneSpec
    worker: int
    model: Detected
    options: LoadOptions
    runtime: Runtime
    calibration_data: str
    accuracy_tolerance: float
    images: ImageOptions
    post_processing: str
    labels: str
    processing: str
    model_secrets: Secrets | None
    record_secrets: Secrets | None
