"""Who computes in bfloat16: which backends can be told to, and on which CPUs it is faster than float32."""

from pathlib import Path

from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.runtime import Engine, Precision, Runtime

# Intel and AMD; Intel's matrix units; Arm. Without any of them bfloat16 is float32 with conversions in between, and slower.
_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_FLAG_LINES = ("flags", "Features")

# The backends that cannot be told what to compute in, and why.
_FIXED = {
    "onnx": "ONNX Runtime computes in the types of the file; set engine: openvino, or precision: f32",
    "caffe": "OpenCV computes Caffe networks in float32; set precision: f32",
    "python": "a model in Python computes in what its own code says; set precision: f32",
}


def has_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the CPU has instructions for it, as the kernel tells."""
    with cpuinfo.open(errors="replace") as lines:
        for line in lines:
            name, _, words = line.partition(":")
            if name.strip() in _FLAG_LINES:
                return not _FLAGS.isdisjoint(words.split())
    return False


def possible(backend: str, runtime: Runtime, bfloat16: bool) -> tuple[Runtime, ...]:
    """What a setting allows, the most faithful first.

    Args:
        backend: the model's own.
        runtime: the setting.
        bfloat16: whether the CPU has it; where not, it is tried only if it is asked for.

    Raises:
        ModelError: what is asked for does not exist.
    """
    engines: tuple[Engine, ...] = (runtime.engine,)
    if runtime.engine == "auto":
        engines = ("native",) if backend == "openvino" else ("native", "openvino")
    precisions: tuple[Precision, ...] = (runtime.precision,)
    if runtime.precision == "auto":
        precisions = ("f32", "bf16") if bfloat16 else ("f32",)
    found = [
        Runtime(engine, precision)
        for precision in precisions
        for engine in engines
        if precision == "f32" or engine == "openvino" or backend not in _FIXED
    ]
    if not found:
        raise ModelError(f"precision is {runtime.precision}, and {_FIXED[backend]}")
    return tuple(found)
