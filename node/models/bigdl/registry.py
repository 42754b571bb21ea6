"""Which function builds the layers of which class.

A layer is a function of a tensor or of a list of tensors (BigDL's table), with its weights and geometry resolved; the sizes of the
input, and the batch with them, are those of each call.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from cluster_serving.node.models.bigdl.tree import Module, NotServed

Layer = Callable[[Any], Any]
Builder = Callable[[Module], Layer]

_MOST_NAMED = 5
# Classes of these packages share their short names with those of `nn`, but not their meaning.
_OTHER_PACKAGES = {"ops", "tf", "mkldnn", "onnx", "torch"}
# Keras-style layers are shells around a plain layer that they built; a Zoo model is a shell around its network.
_SHELL_PACKAGES = {"keras", "keras2", "internal", "models", "autograd", "net"}
SHELL = "(shell)"  # stands for all of their classes


class LayerKind(msgspec.Struct, frozen=True):
    """What is known of a class: how to `build` its layers, and whether they take and give one tensor or a table."""

    build: Builder
    takes: Literal["tensor", "table"] = "tensor"
    gives: Literal["tensor", "unknown"] = "tensor"


_KINDS: dict[str, LayerKind] = {}


def layer(
    *short_classes: str, takes: Literal["tensor", "table"] = "tensor", gives: Literal["tensor", "unknown"] = "tensor"
) -> Callable[[Builder], Builder]:
    """Registers a builder for the layers of some classes, named without their package.

    The builder raises `NotServed` for a layer with options that are not served.
    """

    def register(builder: Builder) -> Builder:
        _KINDS.update(dict.fromkeys(short_classes, LayerKind(builder, takes, gives)))
        return builder

    return register


def is_shell(module: Module) -> bool:
    """Whether a module only wraps another one. Zoo's own layers, called Internal..., lie in the same packages and do not."""
    if module.short_class.startswith("Internal") and module.short_class in _KINDS:
        return False
    return module.flag("is_keras_module", default=False) or bool(_packages(module) & _SHELL_PACKAGES)


def kind_of(module: Module) -> LayerKind | None:
    """What is known of a module's class; `None`: nothing."""
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
    """The layer that does nothing."""
    return value


def build(module: Module) -> Layer:
    """Build the layer of a module, and those in it.

    One that cannot be served is noted in the module's file, and a stand-in returned, so that all of them can be named at once.
    """
    try:
        kind = kind_of(module)
        if kind is None:
            raise NotServed("")
        return kind.build(module)
    except NotServed as refusal:
        reason = str(refusal)
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError) as error:  # its weights or numbers do not fit
        reason = f"cannot be built: {str(error).splitlines()[0]}"
    known = f"({module.java_class}) {reason}" if reason else f"is a {module.java_class}, which is not served"
    module.file.refused.append(f"the layer {module.name!r} {known}")
    return passed_on


def build_all(modules: list[Module]) -> list[Layer]:
    """Build the layers of several modules."""
    return [build(each) for each in modules]


def refusals(module: Module) -> str:
    """What could not be built of a module's file, as a sentence; empty: all could."""
    distinct = list(dict.fromkeys(module.file.refused))
    more = f"; and {len(distinct) - _MOST_NAMED} more" if len(distinct) > _MOST_NAMED else ""
    return "; ".join(distinct[:_MOST_NAMED]) + more
