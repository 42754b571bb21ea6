"""Preparation of TorchScript and modules: `forward` names its arguments, but seldom states shapes and dtypes."""

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import structlog
import torch

from cluster_serving.node.models.base import LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.torch.files import no_deprecations
from cluster_serving.node.models.torch.indices import dtypes_of_inputs
from cluster_serving.node.models.torch.program import Program, casts, declared, has_images
from cluster_serving.node.models.torch.values import numpy_dtype

log = structlog.get_logger(__name__)

_MODULES = re.compile(r"\b(torch|typing|collections\.abc)\.")
_LISTS = ("List[Tensor]", "list[Tensor]", "Sequence[Tensor]")
_NOT_TENSORS = re.compile(
    r"(Optional\[)?(int|float|complex|bool|str|bytes)\b|__torch__|.*\b([Ll]ist|[Tt]uple|[Dd]ict|Mapping|Sequence)\["
)
_ANY_NUMBER = "*"


class _Argument(msgspec.Struct, frozen=True):
    """Argument of `forward`.

    `kind` is the type as text: empty without a type, `*` for `*args`. `dtype` is the dtype that the code implies, or `None`.
    """

    name: str
    kind: str
    optional: bool
    by_keyword: bool
    dtype: str | None

    @property
    def takes_any_number(self) -> bool:
        return self.kind == _ANY_NUMBER or self.kind in _LISTS


def script_program(model: torch.jit.ScriptModule, options: LoadOptions, path: Path) -> Program:
    """Prepare TorchScript for inference.

    Raises:
        ModelError: an argument is not a tensor, or the configuration does not fit the arguments.
    """
    model.eval()
    forward: Any = getattr(model, "forward", None)
    if not hasattr(forward, "schema"):
        raise ModelError(f"{path} has no method forward; save a module that has one.")
    dtypes = dtypes_of_inputs(model)
    arguments = [
        _Argument(each.name, each.type.annotation_str, each.has_default_value(), each.kwarg_only, dtypes.get(position))
        for position, each in enumerate(forward.schema.arguments)
        if position > 0  # self
    ]
    # Freezing makes the weights constants and folds the batch norms. A model that torch cannot freeze runs unfrozen.
    # torch.jit.optimize_for_inference is not used: pytorch issues 86527 and 86556 report wrong results, and are no longer mended.
    run: torch.nn.Module = model
    with no_deprecations():
        # Fusion compiles for up to 0.3 s in the middle of the second run, and gained nothing on a CPU.
        torch.jit.set_fusion_strategy([])
        with suppress(RuntimeError):
            run = torch.jit.freeze(model)
    state = sorted(set(_attributes_set(run.inlined_graph)))
    program = _program(run, model, arguments, options, path, state)
    if state:
        log.warning("forward keeps values from call to call: answers may depend on the records before", values=state)
    return program


def module_program(model: torch.nn.Module, options: LoadOptions, path: Path) -> Program:
    """Prepare a module for inference.

    Raises:
        ModelError: an argument is not a tensor, or the configuration does not fit the arguments.
    """
    model.eval()
    with warnings.catch_warnings():
        # About the user's code, which is compiled only to read the dtypes. The module runs uncompiled in any case.
        warnings.simplefilter("ignore")
        try:
            dtypes = dtypes_of_inputs(torch.jit.script(model))
        except Exception:  # the compiler may fail in any way on arbitrary Python code
            dtypes = {}
    arguments: list[_Argument] = []
    for position, each in enumerate(inspect.signature(model.forward).parameters.values(), start=1):
        if each.kind == each.VAR_POSITIONAL:
            arguments.append(_Argument(each.name, _ANY_NUMBER, False, False, None))
        elif each.kind != each.VAR_KEYWORD:
            typed = "" if each.annotation is each.empty else inspect.formatannotation(each.annotation).strip("'\"")
            kind = _MODULES.sub("", typed)
            optional, by_keyword = each.default is not each.empty, each.kind == each.KEYWORD_ONLY
            arguments.append(_Argument(each.name, kind, optional, by_keyword, dtypes.get(position)))
    return _program(model, model, arguments, options, path)


def _attributes_set(block: Any) -> Iterator[str]:
    """Yield the names of the attributes of the module that a block of a graph sets."""
    for node in block.nodes():
        if node.kind() == "prim::SetAttr":
            yield node.s("name")
        for inner in node.blocks():
            yield from _attributes_set(inner)


def _program(
    run: Callable[..., Any],
    model: torch.nn.Module,
    arguments: Sequence[_Argument],
    options: LoadOptions,
    path: Path,
    state: Sequence[str] = (),
) -> Program:
    images = has_images(model.parameters())
    chosen = _chosen(arguments, options, path, state)
    if chosen[0].takes_any_number:
        inputs = options.stated
        spread = chosen[0].kind == _ANY_NUMBER
        return Program(
            lambda tensors: run(*tensors) if spread else run(list(tensors)), inputs, (), (None,) * len(inputs), images
        )
    positional = sum(not (each.optional or each.by_keyword) for each in chosen)
    keywords = [each.name for each in chosen[positional:]]

    def call(tensors: Sequence[torch.Tensor]) -> Any:
        return run(*tensors[:positional], **dict(zip(keywords, tensors[positional:], strict=True)))

    floating = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)
    known = [TensorSpec(each.name, each.dtype or numpy_dtype(floating), None) for each in chosen]
    inputs = declared(known, options, path)
    return Program(call, inputs, (), casts(inputs, [None if each.dtype else floating for each in chosen]), images)


def _chosen(arguments: Sequence[_Argument], options: LoadOptions, path: Path, state: Sequence[str]) -> list[_Argument]:
    """Return the arguments that are inputs: the required arguments, and the optional arguments that the configuration names.

    `state`: attributes that `forward` sets, for the message of a refusal.
    """
    configured = {spec.name for spec in options.stated}
    chosen = [each for each in arguments if not each.optional or each.name in configured]
    if len(chosen) == 1 and chosen[0].takes_any_number:
        return chosen
    chosen = [each for each in chosen if each.kind != _ANY_NUMBER]
    if not chosen:
        names = ", ".join(each.name for each in arguments)
        hint = f"name the arguments to serve in modelInputs: {names}" if names else "it takes none"
        raise ModelError(f"{path}: forward requires no argument; {hint}.")
    for each in chosen:
        if _NOT_TENSORS.match(each.kind):
            stateless = f", and takes and returns {', '.join(state)} instead of keeping them from call to call"
            raise ModelError(
                f"{path}: {each.name!r} of forward is of type {each.kind}, and only tensors can be served; save a module whose "
                f"forward takes tensors one by one{stateless if state else ''}."
            )
    return chosen
