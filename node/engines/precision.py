"""Precisions of the backends, and the CPUs with instructions for bfloat16 and for whole numbers of 8 bits."""

from pathlib import Path

from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.runtime import Engine, Precision, Runtime

# CPU flags of Intel and AMD, of Intel's matrix units, and of Arm. On a CPU without any of the flags bfloat16 is float32 with
# conversions in between, and slower than float32.
_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
# CPU flags of instructions that add products of 8 bits in 32 bits. AVX2 and AVX-512 alone add pairs of products in 16 bits, which
# overflow unless the weights have 7 bits.
_INT8_FLAGS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp"})
_FLAG_LINES = ("flags", "Features")

# Backends without a choice of precision, and the reason.
_FIXED = {
    "onnx": "ONNX Runtime computes in the types of the file; set engine: openvino, or precision: f32",
    "caffe": "OpenCV computes Caffe networks in float32; set precision: f32",
    "python": "a model in Python computes in the precision of its own code; set precision: f32",
}

_NEVER_CONVERTED = frozenset({"caffe", "python"})  # OpenVINO cannot read them


def has_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether the CPU has bfloat16 instructions, according to the kernel."""
    return _has(_FLAGS, cpuinfo)


def has_int8(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether the CPU multiplies and adds whole numbers of 8 bits exactly, according to the kernel."""
    return _has(_INT8_FLAGS, cpuinfo)


def _has(flags: frozenset[str], cpuinfo: Path) -> bool:
    with cpuinfo.open(errors="replace") as lines:
        for line in lines:
            name, _, words = line.partition(":")
            if name.strip() in _FLAG_LINES:
                return not flags.isdisjoint(words.split())
    return False


def possible(backend: str, runtime: Runtime, bfloat16: bool, int8: bool = False) -> tuple[Runtime, ...]:
    """Return the runtimes that a setting allows, the most faithful first.

    INT8 is OpenVINO's, whatever the configured engine.

    Args:
        backend: the model's native backend.
        runtime: configured engine and precision.
        bfloat16: whether the CPU has bfloat16. On a CPU without bfloat16, bf16 is tried only if configured.
        int8: whether `auto` tries INT8.

    Raises:
        ModelError: no runtime computes in the configured precision.
    """
    can_int8 = backend not in _NEVER_CONVERTED
    in_int8 = Runtime("native" if backend == "openvino" and runtime.engine != "openvino" else "openvino", "int8")
    if runtime.precision == "int8" and can_int8:
        return (in_int8,)
    engines: tuple[Engine, ...] = (runtime.engine,)
    if runtime.engine == "auto":
        engines = ("native",) if backend == "openvino" else ("native", "openvino")
    precisions: tuple[Precision, ...] = (runtime.precision,)
    if runtime.precision == "auto":
        precisions = ("f32", "bf16") if bfloat16 else ("f32",)
    if runtime.precision == "int8":
        precisions = ()
    found = [
        Runtime(engine, precision)
        for precision in precisions
        for engine in engines
        if precision == "f32" or engine == "openvino" or backend not in _FIXED
    ]
    if not found:
        raise ModelError(f"precision is {runtime.precision}, and {_FIXED[backend]}")
    if runtime.precision == "auto" and int8 and can_int8:
        found.append(in_int8)
    return tuple(found)
