"""Registry of the functions that build layers, by class of BigDL.

A layer is a function of a tensor or of a list of tensors (BigDL's table). Weights and geometry are resolved when the layer is
built. The sizes of the input, and with them the batch, are taken from each call.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from cluster_serving.node.models.bigdl.tree import Module, NotServed

Layer = Callable[[Any], Any]
Builder = Callable[[Module], Layer]

_MOST_NAMED = 5
# Classes of these packages share short names with classes of `nn`, but have a different meaning.
_OTHER_PACKAGES = {"ops", "tf", "mkldnn", "onnx", "torch"}
# Keras-style layers are shells around a plain layer that they built. A Zoo model is a shell around its network.
_SHELL_PACKAGES = {"keras", "keras2", "internal", "models", "autograd", "net"}
SHELL = "(shell)"  # stands for all classes of shells


class LayerKind(msgspec.Struct, frozen=True):
    """Kind of layer: the function that builds it, and the values that it takes and gives, a tensor or a table."""

    build: Builder
    takes: Literal["tensor", "table"] = "tensor"
    gives: Literal["tensor", "unknown"] = "tensor"


_KINDS: dict[str, LayerKind] = {}


def layer(
    *short_classes: str, takes: Literal["tensor", "table"] = "tensor", gives: Literal["tensor", "unknown"] = "tensor"
) -> Callable[[Builder], Builder]:
    """Register a builder for the layers of classes, named without the package.

    The builder raises `NotServed` for a layer with options that are not served.
    """

    def register(builder: Builder) -> Builder:
        _KINDS.update(dict.fromkeys(short_classes, LayerKind(builder, takes, gives)))
        return builder

    return register


def is_shell(module: Module) -> bool:
    """Return whether a module only wraps another module.

    Zoo's own layers, called Internal..., lie in the same packages and wrap no module.
    """
    if module.short_class.startswith("Internal") and module.short_class in _KINDS:
        return False
    return module.flag("is_keras_module", default=False) or bool(_packages(module) & _SHELL_PACKAGES)


def kind_of(module: Module) -> LayerKind | None:
    """Return the kind of a module's class, or `None` for an unknown class."""
    packages = _packages(module)
    if is_shell(module):
        return _KINDS[SHELL]
    if packages & _OTHER_PACKAGES:
        return None
    prefix = "quantized." if "quantized" in packages else ""
    return _KINDS.get(prefix + module.short_class)


def _packages(module: Module) -> set[str]:
    return set(module.java_class.split(".")[:-1])


def passed_on(value: Any) -> Any:
    """Return the value unchanged: the layer that does nothing."""
    return value


def build(module: Module) -> Layer:
    """Build the layer of a module, and the layers inside the module.

    A layer that cannot be served is noted in the module's file, and a stand-in is returned. So a single error can name
    all layers that cannot be served.
    """
    try:
        kind = kind_of(module)
        if kind is None:
            raise NotServed("")
        return kind.build(module)
    except NotServed as refusal:
        reason = str(refusal)
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError) as error:  # the weights or numbers do not fit
        reason = f"cannot be built: {str(error).splitlines()[0]}"
    known = f"({module.java_class}) {reason}" if reason else f"is a {module.java_class}, which is not served"
    module.file.refused.append(f"the layer {module.name!r} {known}")
    return passed_on


def build_all(modules: list[Module]) -> list[Layer]:
    """Build the layers of several modules."""
    return [build(each) for each in modules]


def refusals(module: Module) -> str:
    """Return the layers of a module's file that could not be built, as a sentence. Empty: all layers were built."""
    distinct = list(dict.fromkeys(module.file.refused))
    more = f"; and {len(distinct) - _MOST_NAMED} more" if len(distinct) > _MOST_NAMED else ""
    return "; ".join(distinct[:_MOST_NAMED]) + more
