"""Precisions of the backends, and the CPUs on which bfloat16 is faster than float32."""

from pathlib import Path

from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.runtime import Engine, Precision, Runtime

# CPU flags of Intel and AMD, of Intel's matrix units, and of Arm. On a CPU without any of the flags bfloat16 is float32 with
# conversions in between, and slower than float32.
_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_FLAG_LINES = ("flags", "Features")

# Backends without a choice of precision, and the reason.
_FIXED = {
    "onnx": "ONNX Runtime computes in the types of the file; set engine: openvino, or precision: f32",
    "caffe": "OpenCV computes Caffe networks in float32; set precision: f32",
    "python": "a model in Python computes in the precision of its own code; set precision: f32",
}


def has_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether the CPU has bfloat16 instructions, according to the kernel."""
    with cpuinfo.open(errors="replace") as lines:
        for line in lines:
            name, _, words = line.partition(":")
            if name.strip() in _FLAG_LINES:
                return not _FLAGS.isdisjoint(words.split())
    return False


def possible(backend: str, runtime: Runtime, bfloat16: bool) -> tuple[Runtime, ...]:
    """Return the runtimes that a setting allows, the most faithful first.

    Args:
        backend: the model's native backend.
        runtime: configured engine and precision.
        bfloat16: whether the CPU has bfloat16. On a CPU without bfloat16, bf16 is tried only if configured.

    Raises:
        ModelError: no runtime computes in the configured precision.
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
