"""CPUs and backends that have bfloat16 and INT8."""

from pathlib import Path

import pytest

from cluster_serving.node.engines.precision import has_bfloat16, has_int8, possible
from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.runtime import Engine, Precision, Runtime

BOTH: list[tuple[Engine, Precision]] = [
    ("native", "f32"),
    ("openvino", "f32"),
    ("native", "bf16"),
    ("openvino", "bf16"),
]


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 vaes\n", True),
        ("flags\t\t: fpu amx_bf16 amx_tile\n", True),
        ("processor\t: 0\nFeatures\t: fp asimd i8mm bf16\n", True),
        ("processor\t: 0\nflags\t\t: fpu avx512f avx512_vnni\nbugs\t: bf16\n", False),
        ("", False),
    ],
)
def test_cpus_that_have_bfloat16(tmp_path: Path, text: str, has: bool) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(text)

    assert has_bfloat16(cpuinfo) is has


@pytest.mark.parametrize(
    ("flags", "has"),
    [("fpu avx2 avx512f", False), ("fpu avx512_vnni", True), ("fpu avx2 avx_vnni", True), ("fp asimd asimddp", True)],
)
def test_cpus_that_add_products_of_8_bits_exactly(tmp_path: Path, flags: str, has: bool) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"flags\t\t: {flags}\n")

    assert has_int8(cpuinfo) is has


@pytest.mark.parametrize(
    ("backend", "engine", "precision", "expected"),
    [
        ("torch", "native", "f32", [("native", "f32")]),
        ("torch", "auto", "auto", BOTH),
        ("keras", "auto", "bf16", [("native", "bf16"), ("openvino", "bf16")]),
        ("onnx", "auto", "auto", [("native", "f32"), ("openvino", "f32"), ("openvino", "bf16")]),
        ("onnx", "auto", "bf16", [("openvino", "bf16")]),
        ("onnx", "native", "auto", [("native", "f32")]),
        ("openvino", "auto", "auto", [("native", "f32"), ("native", "bf16")]),
        ("openvino", "openvino", "auto", [("openvino", "f32"), ("openvino", "bf16")]),
        ("torch", "native", "int8", [("openvino", "int8")]),
        ("openvino", "native", "int8", [("native", "int8")]),
        ("openvino", "openvino", "int8", [("openvino", "int8")]),
    ],
)
def test_what_a_setting_allows(
    backend: str, engine: Engine, precision: Precision, expected: list[tuple[Engine, Precision]]
) -> None:
    assert list(possible(backend, Runtime(engine, precision), True)) == [Runtime(*each) for each in expected]


def test_bfloat16_that_the_cpu_lacks_is_not_tried_unless_it_is_asked_for() -> None:
    assert possible("torch", Runtime("native", "auto"), False) == (Runtime("native", "f32"),)
    assert possible("torch", Runtime("native", "bf16"), False) == (Runtime("native", "bf16"),)


@pytest.mark.parametrize(
    ("backend", "expected"),
    [("onnx", [("openvino", "int8")]), ("openvino", [("native", "int8")]), ("caffe", []), ("python", [])],
)
def test_auto_tries_int8_last_and_only_where_openvino_reads_the_model(
    backend: str, expected: list[tuple[Engine, Precision]]
) -> None:
    found = possible(backend, Runtime("native", "auto"), False, True)

    assert list(found) == [Runtime("native", "f32"), *(Runtime(*each) for each in expected)]


@pytest.mark.parametrize("backend", ["caffe", "python"])
def test_int8_of_a_model_that_openvino_cannot_read_is_an_error(backend: str) -> None:
    with pytest.raises(ModelError, match=r"precision is int8, and .* set precision: f32"):
        possible(backend, Runtime("native", "int8"), False)


@pytest.mark.parametrize("backend", ["onnx", "caffe", "python"])
def test_what_does_not_exist_is_an_error(backend: str) -> None:
    with pytest.raises(ModelError, match=r"precision is bf16, and .* set .*precision: f32"):
        possible(backend, Runtime("native", "bf16"), True)
