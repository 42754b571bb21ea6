"""Signatures of TensorFlow models: the names of a graph's inputs and outputs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from cluster_serving.node.models.base import LoadOptions, ModelError

_DEFAULT_SIGNATURE = "serving_default"
_INTERNAL_SIGNATURES = "__saved_model"  # functions that run at loading are kept among the signatures
_LISTED = 10


class Signature(NamedTuple):
    """The names of a signature's tensors by key, in alphabetical order, as the original product bound the tensors.

    An empty name means that there is no signature.
    """

    name: str = ""
    inputs: Mapping[str, str] = MappingProxyType({})
    outputs: Mapping[str, str] = MappingProxyType({})


def choose_signature(meta_graph: Any, options: LoadOptions, path: Path) -> Signature:
    """Return the signature to serve: the signature in `options`, else serving_default, else the only signature, else none.

    Raises:
        ModelError: the signature is missing, there are several to choose from, or a tensor is sparse or ragged.
    """
    found = {name: each for name, each in meta_graph.signature_def.items() if not name.startswith(_INTERNAL_SIGNATURES)}
    name = options.signature or (next(iter(found)) if len(found) == 1 else _DEFAULT_SIGNATURE)
    if name in found:
        return Signature(name, _tensors(found[name].inputs, path), _tensors(found[name].outputs, path))
    if options.signature:
        raise ModelError(f"{path} has no signature {name!r}, only {listed(sorted(found)) or 'none'}.")
    needs_none = options.inputs and options.outputs and not is_version_2(meta_graph)
    if found and not needs_none:
        raise ModelError(f"{path} has several signatures: set modelSignature to one of {listed(sorted(found))}.")
    return Signature()


def is_version_2(meta_graph: Any) -> bool:
    """Return whether TensorFlow 2 made the model. Its graph then only restores the model, and the functions stand elsewhere."""
    return bool(meta_graph.HasField("object_graph_def"))


def listed(names: Sequence[str]) -> str:
    """Return the first names for a message, and the number of names left out."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _tensors(infos: Mapping[str, Any], path: Path) -> dict[str, str]:
    for key, info in sorted(infos.items()):
        if not info.name:
            raise ModelError(f"{path}: {key!r} is sparse or ragged, and only plain tensors can be served.")
    return {key: info.name for key, info in sorted(infos.items())}
