"""PyTorch files of every kind load, say what they take, run, and say what is wrong with broken ones."""

import importlib
import pickle
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from structlog.testing import capture_logs
from torch import Tensor, nn

from cluster_serving.node.models.base import Array, Backend, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.detect import detect, load
from cluster_serving.node.models.torch.files import no_deprecations
from cluster_serving.node.models.torch.values import by_name

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)
ALLOWED = LoadOptions(allow_pickle=True)
jit: Any = torch.jit  # no types


def save_script(path: Path, model: nn.Module, *example: Tensor) -> Path:
    """Traced on the example if there is one, else scripted."""
    with no_deprecations():
        jit.save(jit.trace(model, example) if example else jit.script(model), str(path))
    return path


def save_exported(path: Path, model: nn.Module, *example: Any, free: bool = True, **settings: Any) -> Path:
    """With a free batch dimension or a fixed one."""
    if free:
        rows = torch.export.Dim("rows")
        settings["dynamic_shapes"] = tuple({0: rows} if isinstance(each, Tensor) else None for each in example)
    torch.export.save(torch.export.export(model, example, **settings), path)
    return path


def load_from(path: Path, options: LoadOptions | None = None) -> Backend:
    return load(detect(str(path)), options or LoadOptions())


def failure(path: Path, options: LoadOptions | None = None) -> str:
    with pytest.raises(ModelError) as caught:
        load_from(path, options)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text


class _Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class _Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.dropout = nn.Dropout(0.9)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.dropout(self.layer(x))
        return y


class _Weigh(nn.Module):
    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        y = x * weight
        return y if bias is None else y + bias


class _Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, ids: Tensor, factor: Tensor, mask: Tensor) -> Tensor:
        known = ids.masked_fill(mask, 0)
        vectors: Tensor = self.words(known.view(-1, 3).transpose(0, 1))
        result: Tensor = self.out(vectors.mean(0) * factor)
        return result


class _Image(nn.Module):
    """Its `view` fails on a tensor with the channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 2, 3)

    def forward(self, image: Tensor) -> Tensor:
        y: Tensor = self.convolution(image)
        return y.view(y.shape[0], -1)


class _Pair(NamedTuple):
    first: Tensor
    second: Tensor


@dataclass
class _Answer:
    score: Tensor
    hidden: Tensor | None
    states: tuple[Tensor, Tensor]


class _Named(nn.Module):
    def forward(self, x: Tensor) -> _Pair:
        return _Pair(x.argmax(1), x)


class _Keys(nn.Module):
    def forward(self, x: Tensor, times: int = 2) -> dict[str, Any]:
        return {"scores": x * times, "states": (x.to(torch.bfloat16), None, x.argmax(1))}


class _Sparse(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to_sparse()


class _Number(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        return x, 3


class _InPlaceImage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Conv2d(3, 1, 3)  # images are tried with the channels last

    def forward(self, image: Tensor, grey: Tensor, factor: Tensor) -> Tensor:
        factor.mul_(2)
        grey.add_(1)
        ones = image.sub_(image.clone()).add_(1)
        return ones.view(2, 192) * factor.view(2, 1)


class _InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2).transpose(0, 1)


def test_scripted(tmp_path: Path) -> None:
    model = _Linear()  # in training mode: its dropout must not act
    backend = load_from(save_script(tmp_path / "model.pt", model))
    expected = model.layer(torch.from_numpy(ROWS)).detach().numpy()

    assert backend.inputs == (TensorSpec("x", "float32", None),)
    assert not backend.outputs  # a type in TorchScript does not tell the dtype
    np.testing.assert_allclose(backend.run({"x": ROWS})["output"], expected, rtol=1e-6)
    np.testing.assert_allclose(backend.run({"x": ROWS[:1]})["output"], expected[:1], rtol=1e-6)
    assert backend.outputs == (TensorSpec("output", "float32", None),)


def test_traced(tmp_path: Path) -> None:
    backend = load_from(save_script(tmp_path / "model.pth", _Double(), torch.zeros(1, 3)))

    np.testing.assert_array_equal(backend.run({"x": ROWS})["output"], ROWS * 2)


def test_the_content_decides_and_not_the_extension(tmp_path: Path) -> None:
    exported = save_exported(tmp_path / "model.pt2", _Double(), torch.zeros(2, 3)).rename(tmp_path / "model.ckpt")

    np.testing.assert_array_equal(load_from(exported).run({"x": ROWS})["output"], ROWS * 2)


def test_a_renamed_exported_program_is_read_without_complaint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    load_from(save_exported(tmp_path / "model.pt", _Double(), torch.zeros(2, 3)))

    assert "Unable to load" not in caplog.text + capfd.readouterr().err


def test_two_inputs_and_an_optional_one(tmp_path: Path) -> None:
    path = save_script(tmp_path / "model.pt", _Weigh())
    with_bias = load_from(path, LoadOptions(inputs=("x float32 [N,3]", "weight", "bias float64 [N,3]")))

    assert [spec.name for spec in load_from(path).inputs] == ["x", "weight"]
    assert with_bias.inputs == (
        TensorSpec("x", "float32", (None, 3)),
        TensorSpec("weight", "float32", None),
        TensorSpec("bias", "float64", (None, 3)),
    )
    np.testing.assert_array_equal(load_from(path).run({"x": ROWS, "weight": ROWS})["output"], ROWS * ROWS)
    output = with_bias.run({"x": ROWS, "weight": ROWS, "bias": ROWS.astype(np.float64)})["output"]
    np.testing.assert_array_equal(output, ROWS * ROWS + ROWS)
    assert output.dtype == np.float64


def test_inputs_get_the_names_of_the_configuration_by_position(tmp_path: Path) -> None:
    path = save_script(tmp_path / "model.pt", _Weigh())
    backend = load_from(path, LoadOptions(inputs=("image", "factor")))

    assert [spec.name for spec in backend.inputs] == ["image", "factor"]
    np.testing.assert_array_equal(backend.run({"image": ROWS, "factor": ROWS})["output"], ROWS * ROWS)


@pytest.mark.parametrize("names", [("weight", "x_"), ("weight", "other"), ("Weight", "y")])
def test_names_of_the_configuration_in_the_place_of_other_inputs(tmp_path: Path, names: tuple[str, ...]) -> None:
    path = save_script(tmp_path / "model.pt", _Weigh())

    with pytest.raises(
        ModelError, match=rf"^modelInputs has {names[0]} in the place of x; the model takes x, weight: "
    ):
        load_from(path, LoadOptions(inputs=names))


@pytest.mark.parametrize("kind", ["scripted", "traced", "pickled"])
def test_ids_are_int64_and_masks_bool(tmp_path: Path, kind: str) -> None:
    model, path = _Text().eval(), tmp_path / "model.pt"
    example = torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 4), torch.zeros(2, 3, dtype=torch.bool)
    if kind == "pickled":
        torch.save(model, path)
    else:
        save_script(path, model, *(example if kind == "traced" else ()))
    backend = load_from(path, ALLOWED)

    assert [spec.dtype for spec in backend.inputs] == ["int64", "float32", "bool"]
    output = backend.run({spec.name: each.numpy() for spec, each in zip(backend.inputs, example, strict=True)})[
        "output"
    ]
    np.testing.assert_allclose(output, model(*example).detach().numpy(), rtol=1e-5)


class _Masked(nn.Module):
    """Whole numbers and masks as libraries use them: in place, negated, multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4, 2)

    def forward(self, ids: Tensor, counted: Tensor, padding: Tensor, kept: Tensor, place: Tensor) -> Tensor:
        found: Tensor = self.embedding(ids * counted).sum(-1)
        found.masked_fill_(padding, 7.0)
        return torch.scatter(found * ~(~kept), 1, place, 0.5)


@pytest.mark.parametrize("traced", [False, True])
def test_ids_and_masks_are_known_by_every_operator_that_uses_them(tmp_path: Path, traced: bool) -> None:
    model = _Masked().eval()
    ids = torch.tensor([[0, 1, 2], [3, 2, 1]])
    padding = torch.tensor([[False, False, True], [False, True, True]])
    example = ids, torch.ones_like(ids), padding, ~padding, torch.tensor([[0], [1]])
    backend = load_from(save_script(tmp_path / "model.pt", model, *(example if traced else ())))

    assert [spec.dtype for spec in backend.inputs] == ["int64", "int64", "bool", "bool", "int64"]
    batch = {spec.name: each.numpy() for spec, each in zip(backend.inputs, example, strict=True)}
    np.testing.assert_allclose(backend.run(batch)["output"], model(*example).detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int32", "float16"])
def test_declared_dtypes_win(tmp_path: Path, dtype: str) -> None:
    path = save_script(tmp_path / "model.pt", _Double())
    backend = load_from(path, LoadOptions(inputs=(f"x {dtype} [N,3]",)))

    assert backend.inputs == (TensorSpec("x", dtype, (None, 3)),)
    np.testing.assert_array_equal(backend.run({"x": ROWS.astype(dtype)})["output"], ROWS.astype(dtype) * 2)


def test_text_cannot_be_declared(tmp_path: Path) -> None:
    path = save_script(tmp_path / "model.pt", _Double())

    assert failure(path, LoadOptions(inputs=("x str",))).endswith("text for 'x', and PyTorch has only numbers.")


def test_a_model_of_float64_takes_float64(tmp_path: Path) -> None:
    backend = load_from(save_script(tmp_path / "model.pt", _Linear().double()))

    assert backend.inputs[0].dtype == "float64"
    assert backend.run({"x": ROWS.astype(np.float64)})["output"].dtype == np.float64


@pytest.mark.parametrize("save", [save_script, save_exported])
def test_a_model_of_bfloat16_takes_and_gives_float32(tmp_path: Path, save: Callable[..., Path]) -> None:
    model = _Linear().bfloat16().eval()
    example = torch.from_numpy(ROWS).bfloat16()
    backend = load_from(save(tmp_path / "model.pt", model, example))

    assert backend.inputs[0].dtype == "float32"
    output = backend.run({"x": ROWS})["output"]
    assert output.dtype == np.float32
    np.testing.assert_allclose(output, model(example).detach().float().numpy(), rtol=1e-2)


def test_arithmetic_in_bfloat16_gives_float32(tmp_path: Path) -> None:
    model = _Linear().eval()
    backend = load_from(save_script(tmp_path / "model.pt", model), LoadOptions(precision="bf16"))
    exact = model(torch.from_numpy(ROWS)).detach().numpy()

    output = backend.run({"x": ROWS})["output"]

    assert output.dtype == np.float32
    np.testing.assert_allclose(output, exact, atol=0.1)
    assert not np.array_equal(output, exact)


class _ManyTensors(nn.Module):
    def forward(self, xs: list[Tensor]) -> Tensor:
        return torch.cat(xs, 1)


class _Star(nn.Module):
    def forward(self, *xs: Tensor, **_ignored: Any) -> Tensor:
        return torch.cat(xs, 1)


@pytest.mark.parametrize("model", [_ManyTensors(), _Star()])
def test_any_number_of_inputs(tmp_path: Path, model: nn.Module) -> None:
    path = tmp_path / "model.pt"
    torch.save(model, path)
    backend = load_from(path, ALLOWED)

    assert backend.inputs == ()
    output = backend.run({"input1": ROWS, "input2": ROWS, "input3": ROWS})["output"]
    np.testing.assert_array_equal(output, np.concatenate([ROWS] * 3, 1))
    named = load_from(path, LoadOptions(allow_pickle=True, inputs=("a", "b int64 [N,3]")))
    assert [spec.dtype for spec in named.inputs] == ["float32", "int64"]
    assert named.run({"a": ROWS, "b": ROWS.astype(np.int64)})["output"].shape == (2, 6)


def test_a_scripted_list_of_inputs(tmp_path: Path) -> None:
    backend = load_from(save_script(tmp_path / "model.pt", _ManyTensors()))

    assert backend.inputs == ()
    assert backend.run({"input1": ROWS, "input2": ROWS})["output"].shape == (2, 6)


class _Tuple(nn.Module):
    def forward(self, both: tuple[Tensor, Tensor]) -> Tensor:
        return both[0] + both[1]


class _Scalar(nn.Module):
    def forward(self, x: Tensor, factor: float) -> Tensor:
        return x * factor


class _NoForward(nn.Module):
    @jit.export  # type: ignore[untyped-decorator]
    def predict(self, x: Tensor) -> Tensor:
        return x


class _AllOptional(nn.Module):
    def forward(self, ids: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return torch.zeros(1) if ids is None else ids


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (_Tuple(), "'both' of forward is of type Tuple[Tensor, Tensor], and only tensors can be served"),
        (_Scalar(), "'factor' of forward is of type float, and only tensors can be served"),
        (
            _AllOptional(),
            "forward requires no argument; name the arguments to serve in modelInputs: ids, mask.",
        ),
    ],
)
def test_other_arguments_than_tensors_are_refused(tmp_path: Path, model: nn.Module, reason: str) -> None:
    torch.save(model, tmp_path / "pickled.pt")

    assert reason in failure(save_script(tmp_path / "scripted.pth", model))
    assert reason.lower() in failure(tmp_path / "pickled.pt", ALLOWED).lower()


class _Memory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        self.last = x + self.last
        return self.last


class _MemoryAtARate(_Memory):
    def forward(self, x: Tensor, rate: int) -> Tensor:  # type: ignore[override]
        if rate == 8:
            self.last = x
        return self.last


def test_state_kept_from_call_to_call_is_told(tmp_path: Path) -> None:
    with capture_logs() as logs:
        load_from(save_script(tmp_path / "model.jit", _Memory()))

    [warning] = logs
    assert warning["log_level"] == "warning"
    assert warning["values"] == ["last"]
    assert failure(save_script(tmp_path / "model.torchscript", _MemoryAtARate())).endswith(
        "forward is of type int, and only tensors can be served; save a module whose forward takes tensors one by one, and takes "
        "and returns last instead of keeping them from call to call."
    )


def test_a_script_without_forward(tmp_path: Path) -> None:
    assert "has no method forward" in failure(save_script(tmp_path / "model.pt", _NoForward()))


def test_arguments_that_are_all_optional_are_chosen_by_the_configuration(tmp_path: Path) -> None:
    backend = load_from(save_script(tmp_path / "model.pt", _AllOptional()), LoadOptions(inputs=("ids int64 [N,3]",)))

    assert backend.run({"ids": ROWS.astype(np.int64)})["output"].dtype == np.int64


NAMES: list[tuple[Callable[[Tensor], Any], list[str]]] = [
    (lambda x: x, ["output"]),
    (lambda x: [x], ["output"]),
    (lambda x: (x, x), ["output1", "output2"]),
    (lambda x: (x, (x, None, x)), ["output1", "output2", "output3"]),
    (lambda x: {"a": x, "b": [x, x]}, ["a", "b1", "b2"]),
    (lambda x: (x, {"a": x}), ["output", "a"]),
    (lambda x: {"a": [x, x], "a1": x}, ["a2", "a3", "a1"]),
    (lambda x: (x, {"output2": x}, x), ["output1", "output2", "output3"]),
    (lambda x: {"a": [x] * 11, "a1": [x, x]}, [f"a{number}" for number in range(2, 15)]),
    (lambda x: _Pair(x, x), ["first", "second"]),
    (lambda x: _Answer(x, None, (x, x)), ["score", "states1", "states2"]),
    (lambda x: torch.topk(x, 2), ["output1", "output2"]),
    (lambda x: [{"a": row, "b": row.sum()} for row in x], ["a", "b"]),
]


@pytest.mark.parametrize(("shape", "names"), NAMES)
def test_names_of_outputs(shape: Callable[[Tensor], Any], names: list[str]) -> None:
    assert list(by_name(shape(torch.from_numpy(ROWS)))) == names


def test_a_list_of_dicts_has_one_for_each_row() -> None:
    x = torch.from_numpy(ROWS)

    outputs = by_name([{"a": row} for row in x])

    np.testing.assert_array_equal(outputs["a"].numpy(), ROWS)
    with pytest.raises(ModelError, match="a list of dicts that differ"):
        by_name([{"a": x[0]}, {"a": x[0, :1]}])


def test_a_named_tuple_gives_its_fields_and_their_dtypes_after_a_run(tmp_path: Path) -> None:
    backend = load_from(save_script(tmp_path / "model.pt", _Named()))

    outputs = backend.run({"x": ROWS})

    assert outputs["first"].tolist() == [2, 2]
    assert backend.outputs == (TensorSpec("first", "int64", None), TensorSpec("second", "float32", None))


def test_shapes_of_outputs_are_known_after_a_run_if_those_of_the_inputs_are(tmp_path: Path) -> None:
    path = save_script(tmp_path / "model.pt", _Named())
    backend = load_from(path, LoadOptions(inputs=("x float32 [N,3]",)))

    backend.run({"x": ROWS})

    assert [spec.shape for spec in backend.outputs] == [(None,), (None, 3)]


@pytest.mark.parametrize(
    ("model", "reason"), [(_Sparse(), "is a sparse or quantized tensor"), (_Number(), "returns a int")]
)
def test_outputs_that_cannot_be_served(tmp_path: Path, model: nn.Module, reason: str) -> None:
    backend = load_from(save_script(tmp_path / "model.pt", model))

    with pytest.raises(ModelError, match=reason):
        backend.run({"x": ROWS})


def save_pickled(path: Path, model: nn.Module, *_example: Tensor) -> Path:
    torch.save(model, path)
    return path


@pytest.mark.parametrize("save", [save_script, save_exported, save_pickled])
@pytest.mark.parametrize("writeable", [True, False])
def test_a_model_that_works_in_place_and_gives_a_view(
    tmp_path: Path, save: Callable[..., Path], writeable: bool
) -> None:
    backend = load_from(save(tmp_path / "model.pt", _InPlace(), torch.zeros(2, 3)), ALLOWED)
    kept = ROWS.copy()
    kept.flags.writeable = writeable

    for _ in range(2):
        np.testing.assert_array_equal(backend.run({"x": kept})["output"], ROWS.T * 2)
        np.testing.assert_array_equal(kept, ROWS)


def test_a_model_that_works_in_place_before_it_needs_its_channels_first(tmp_path: Path) -> None:
    """The second try, with the channels first, is on what the first try got."""
    backend = load_from(save_script(tmp_path / "model.pt", _InPlaceImage().eval()))
    image: Array = np.random.default_rng(7).random((2, 3, 8, 8), np.float32)
    grey, factor = image[:, :1].copy(), np.array([2, 3], np.float32)
    batch = {"image": image.copy(), "grey": grey.copy(), "factor": factor.copy()}

    for _ in range(2):
        np.testing.assert_array_equal(backend.run(batch)["output"], (factor * 2).reshape(2, 1) * np.ones((1, 192)))
        for name, before in (("image", image), ("grey", grey), ("factor", factor)):
            np.testing.assert_array_equal(batch[name], before)


@pytest.mark.parametrize("save", [save_script, save_exported])
def test_a_model_that_needs_its_channels_first(tmp_path: Path, save: Callable[..., Path]) -> None:
    model, rng = _Image().eval(), np.random.default_rng(7)
    backend = load_from(save(tmp_path / "model.pt", model, torch.zeros(2, 3, 8, 8)))

    for rows in (2, 3):
        images: Array = rng.random((rows, 3, 8, 8), np.float32)
        expected = model(torch.from_numpy(images)).detach().numpy()
        np.testing.assert_allclose(backend.run({"image": images})["output"], expected, atol=1e-6)


def test_a_run_keeps_no_view_of_the_batch(tmp_path: Path) -> None:
    """It is shared memory, which cannot be closed while something holds it."""
    for path in (
        save_script(tmp_path / "model.pt", _Linear()),
        save_exported(tmp_path / "model.pt2", _Linear(), torch.zeros(2, 3)),
    ):
        backend = load_from(path)
        memory = memoryview(bytearray(ROWS.tobytes()))

        backend.run({"x": np.frombuffer(memory, np.float32).reshape(2, 3)})

        memory.release()


def test_an_error_of_torchscript_is_one_line(tmp_path: Path) -> None:
    backend = load_from(save_script(tmp_path / "model.pt", _Linear()))

    with pytest.raises(RuntimeError, match=r"^mat1 and mat2 shapes cannot be multiplied \(2x2 and 3x4\)$"):
        backend.run({"x": ROWS[:, :2].copy()})


def test_exported_with_a_free_batch(tmp_path: Path) -> None:
    backend = load_from(save_exported(tmp_path / "model.pt2", _Linear().eval(), torch.zeros(4, 3)))

    assert backend.inputs == (TensorSpec("x", "float32", (None, 3)),)
    assert backend.outputs == (TensorSpec("output", "float32", (None, 4)),)
    for rows in (1, 2):
        assert backend.run({"x": ROWS[:rows]})["output"].shape == (rows, 4)


def test_exported_with_a_fixed_batch(tmp_path: Path) -> None:
    backend = load_from(save_exported(tmp_path / "model.pt2", _Double(), torch.zeros(2, 3), free=False))

    assert backend.inputs[0].batch == 2
    np.testing.assert_array_equal(backend.run({"x": ROWS})["output"], ROWS * 2)


def test_exported_with_several_inputs(tmp_path: Path) -> None:
    model = _Text().eval()
    example = torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 4), torch.zeros(2, 3, dtype=torch.bool)
    backend = load_from(save_exported(tmp_path / "model.pt2", model, *example))

    assert backend.inputs == (
        TensorSpec("ids", "int64", (None, 3)),
        TensorSpec("factor", "float32", (None, 4)),
        TensorSpec("mask", "bool", (None, 3)),
    )
    output = backend.run({spec.name: each.numpy() for spec, each in zip(backend.inputs, example, strict=True)})[
        "output"
    ]
    np.testing.assert_allclose(output, model(*example).detach().numpy(), rtol=1e-5)


def test_exported_with_a_list_of_tensors(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(_ManyTensors(), ([torch.zeros(2, 3), torch.zeros(2, 1)],)), path)
    backend = load_from(path)

    assert [spec.shape for spec in backend.inputs] == [(2, 3), (2, 1)]
    batch = dict(zip([spec.name for spec in backend.inputs], (ROWS, ROWS[:, :1].copy()), strict=True))
    np.testing.assert_array_equal(backend.run(batch)["output"], np.concatenate([ROWS, ROWS[:, :1]], 1))


def test_exported_with_keys_and_a_constant(tmp_path: Path) -> None:
    backend = load_from(save_exported(tmp_path / "model.pt2", _Keys(), torch.zeros(2, 3), 5))

    outputs = backend.run({"x": ROWS})

    assert backend.outputs == (
        TensorSpec("scores", "float32", (None, 3)),
        TensorSpec("states1", "float32", (None, 3)),
        TensorSpec("states2", "int64", (None,)),
    )
    assert [(name, each.dtype.name) for name, each in outputs.items()] == [
        (spec.name, spec.dtype) for spec in backend.outputs
    ]
    np.testing.assert_array_equal(outputs["scores"], ROWS * 5)


def test_exported_with_a_single_number(tmp_path: Path) -> None:
    backend = load_from(
        save_exported(tmp_path / "model.pt2", _Weigh(), torch.zeros(2, 3), torch.tensor(2.0), free=False)
    )

    assert backend.inputs[1] == TensorSpec("weight", "float32", (), None)
    [output] = backend.run({"x": np.ones((2, 3), np.float32), "weight": np.array(5, np.float32)}).values()
    np.testing.assert_array_equal(output, np.full((2, 3), 5))


def test_exported_with_an_output_that_is_no_tensor(tmp_path: Path) -> None:
    assert "returns a int" in failure(save_exported(tmp_path / "model.pt2", _Number(), torch.zeros(2, 3)))


def replace_in_zip(path: Path, part: str, content: bytes) -> None:
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, content if part in name else data)


class _Harm:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


def test_no_code_of_an_exported_program_runs_while_it_is_read(tmp_path: Path) -> None:
    path = save_exported(tmp_path / "model.pt2", _Double(), torch.zeros(2, 3))
    torch.save(({"x": _Harm(tmp_path / "harmed")},), tmp_path / "harm")
    replace_in_zip(path, "sample_inputs/model.pt", (tmp_path / "harm").read_bytes())
    (tmp_path / "harm").unlink()

    assert "set allowPickle: true if you trust its author" in failure(path)
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickled_module_needs_permission(tmp_path: Path, zipped: bool) -> None:
    path, model = tmp_path / "model.pt", _Linear()
    torch.save(model, path, _use_new_zipfile_serialization=zipped)

    text = failure(path)
    output = load_from(path, ALLOWED).run({"x": ROWS})["output"]

    assert "_Linear, and reading a pickle runs whatever code its author put there" in text
    assert "torch.jit.save" in text
    assert "allowPickle: true" in text
    np.testing.assert_allclose(output, model.eval()(torch.from_numpy(ROWS)).detach().numpy(), rtol=1e-6)


def test_a_module_that_was_trained_on_several_gpus(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(nn.DataParallel(_Double()), path)

    np.testing.assert_array_equal(load_from(path, ALLOWED).run({"x": ROWS})["output"], ROWS * 2)


@pytest.fixture
def own_class(tmp_path: Path) -> Iterator[Path]:
    """A pickled module whose class is in a file beside it, and not imported yet."""
    search_path = list(sys.path)
    (tmp_path / "own_network.py").write_text(
        dedent(
            """
            from torch import nn

            class Network(nn.Module):
                def forward(self, x):
                    return x * 3
            """
        )
    )
    sys.path.insert(0, str(tmp_path))
    network: nn.Module = importlib.import_module("own_network").Network()
    torch.save(network, tmp_path / "model.pt")
    del sys.modules["own_network"]
    sys.path[:] = search_path
    yield tmp_path / "model.pt"
    sys.path[:] = search_path
    sys.modules.pop("own_network", None)


def test_the_class_of_a_pickled_module_is_found_beside_it(own_class: Path) -> None:
    np.testing.assert_array_equal(load_from(own_class, ALLOWED).run({"x": ROWS})["output"], ROWS * 3)


def test_the_directory_of_a_pickled_module_and_its_class_is_served_as_the_message_says(own_class: Path) -> None:
    backend = load(detect(str(own_class.parent), "pytorch"), ALLOWED)

    np.testing.assert_array_equal(backend.run({"x": ROWS})["output"], ROWS * 3)


def test_the_class_of_a_pickled_module_is_missing(own_class: Path) -> None:
    source = own_class.with_name("own_network.py")
    source.write_text("")
    assert "needs the class own_network.Network, which cannot be found (" in failure(own_class, ALLOWED)

    source.unlink()
    del sys.modules["own_network"]
    importlib.invalidate_caches()
    text = failure(own_class, ALLOWED)
    assert "(No module named 'own_network'): put the file of its module beside it and set modelType: pytorch" in text


def test_the_class_of_a_pickled_module_was_in_a_script(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(_Double(), path)
    replace_in_zip(path, "data.pkl", b"\x80\x02c__main__\nNet\nq\x00)\x81q\x01.")

    assert "needs the class __main__.Net, of the script that saved it" in failure(path, ALLOWED)


def test_an_object_that_is_no_module(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(_Harm(tmp_path / "harmed"), path)

    assert "holds a NoneType, not a model" in failure(path, ALLOWED)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_weights_alone_are_refused(tmp_path: Path, zipped: bool, nested: bool) -> None:
    path, weights = tmp_path / "model.ckpt", _Linear().state_dict()
    content = {"epoch": 3, "state_dict": weights, "harm": _Harm(tmp_path / "harmed")} if nested else weights
    torch.save(content, path, _use_new_zipfile_serialization=zipped)

    assert "holds a state dict or a checkpoint, not a model by itself" in failure(path, ALLOWED)
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(torch.zeros(3), "holds a tensor"), ([torch.zeros(3)], "holds a list"), (7, "holds a single value")],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_other_values_are_refused(tmp_path: Path, content: Any, reason: str, protocol: int) -> None:
    path = tmp_path / "model.pt"
    torch.save(content, path, pickle_protocol=protocol)

    assert reason in failure(path)


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"

    path.write_bytes(b"")
    assert "is empty" in failure(path)
    path.write_text("no model")
    assert "is not a file of PyTorch" in failure(path)
    path.write_bytes(pickle.dumps([1, 2]))
    assert "is a pickle that torch.save did not write" in failure(path)
    with tarfile.open(path, "w"):
        pass
    assert "is a tar archive" in failure(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inner/file.txt", "no model")
    assert "is a zip archive without a PyTorch model" in failure(path)


@pytest.mark.parametrize("kind", ["scripted", "exported", "pickled", "legacy"])
@pytest.mark.parametrize("kept", [0.02, 0.5, 0.95])
def test_a_file_that_is_cut_off(tmp_path: Path, kind: str, kept: float) -> None:
    path = tmp_path / "model.pt"
    if kind == "scripted":
        save_script(path, _Linear())
    elif kind == "exported":
        save_exported(path, _Linear(), torch.zeros(2, 3))
    else:
        torch.save(_Linear(), path, _use_new_zipfile_serialization=kind == "pickled")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])

    text = failure(path, ALLOWED)
    assert "is cut off or damaged" in text or "cannot be loaded by PyTorch" in text


@pytest.mark.parametrize(("kind", "part"), [("scripted", "code/"), ("scripted", "data.pkl"), ("exported", "models/")])
def test_an_archive_with_a_damaged_part(tmp_path: Path, kind: str, part: str) -> None:
    path = tmp_path / "model.pt"
    if kind == "scripted":
        save_script(path, _Linear())
    else:
        save_exported(path, _Linear(), torch.zeros(2, 3))
    replace_in_zip(path, part, b"nothing")

    text = failure(path)
    assert "cannot be loaded by PyTorch" in text
    assert text.endswith("copy or save the model again.")
