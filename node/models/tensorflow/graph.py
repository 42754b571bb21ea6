"""Graphs of the TensorFlow 1 kind, run without sessions: frozen graphs, checkpoints, old SavedModels.

A graph is imported once into a wrapped function. The part between the inputs and the outputs to serve is then cut out.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from cluster_serving.node.models.base import LoadOptions, ModelError
from cluster_serving.node.models.tensorflow.paths import without_patterns
from cluster_serving.node.models.tensorflow.runtime import SavedModel, Tensor, TensorflowBackend, tf
from cluster_serving.node.models.tensorflow.signature import choose_signature, listed

_PLACEHOLDERS = ("Placeholder", "PlaceholderV2")
_VARIABLES = ("Variable", "VariableV2", "VarHandleOp")
_FILLS_TABLE = re.compile(r"(InitializeTable|InitializeTableFromTextFile|LookupTableImport)(V2)?")
# Operations of a training graph that only training or inspection needs.
_BACKSTAGE_NAMES = re.compile(r"(^|/)(gradients|save|report_uninitialized_variables)(_\d+)?/")
_BACKSTAGE_TYPES = re.compile(
    # Shapes too, because the gradients of a loss need the shapes of logits and labels.
    r".*Summary(V2)?|Merge.*Summary|(Sparse|Resource)*Apply.*|Assign.*|Assert|Print(V2)?|Shape|ShapeN|Size|Rank"
)


class Graph:
    """A graph from which functions can be cut out.

    Args:
        graph: the tensors and operations.
        prune: makes a function from a list of tensors to feed and a list of tensors to fetch.
        path: the model file, for errors.
        frozen: whether variables of the graph, if present, have no values.
    """

    def __init__(self, graph: Any, prune: Callable[..., Any], path: Path, *, frozen: bool = False) -> None:
        self._graph = graph
        self._prune = prune
        self._path = path
        self._frozen = frozen

    def backend(
        self, options: LoadOptions, inputs: Mapping[str, str], outputs: Mapping[str, str], named_in: Path | None = None
    ) -> TensorflowBackend:
        """Cut out the part of the graph to serve.

        Args:
            options: the inputs and outputs that the user names. Empty: `inputs` and `outputs` apply.
            inputs: names of tensors, by the names under which they are served. Empty: the placeholders that the outputs need.
            outputs: the same for outputs. Empty: the tensors that are computed from the inputs and not used further.
            named_in: the file that `inputs` and `outputs` come from, if it is not the model file.

        Raises:
            ModelError: a name is unknown, nothing can be served, or an output needs further inputs.
        """
        feeds = self._find([spec.name for spec in options.stated], inputs, named_in)
        fetches = self._find(options.output_names, outputs, named_in) or self._sinks(
            [tensor.op for tensor in feeds.values()]
        )
        needed = self._placeholders_before(fetches.values(), feeds.values())
        if feeds and needed:
            names = listed([tensor.name for tensor in needed])
            raise ModelError(f"{self._path}: the outputs need further inputs: {names}.")
        feeds = feeds or {_short(tensor): tensor for tensor in needed}
        if self._frozen:
            self._check_variables(fetches.values())
        # Without a signature, TensorFlow tries each call in a wrong way first, which takes 0.5 ms.
        signature = tuple(tf.TensorSpec(tensor.shape, tensor.dtype.base_dtype) for tensor in feeds.values())
        function = self._prune(list(feeds.values()), list(fetches.values()), input_signature=(signature, {}))
        return TensorflowBackend(feeds, fetches, function, self._path, options)

    def fill_tables(self) -> None:
        """Fill the lookup tables, whose contents are part of the graph."""
        fills = [op for op in self._graph.get_operations() if _FILLS_TABLE.fullmatch(op.type)]
        if fills := [op for op in fills if not _BACKSTAGE_NAMES.search(op.name)]:
            self._prune([], fills)()

    def _find(self, wanted: Sequence[str], named: Mapping[str, str], named_in: Path | None) -> dict[str, Tensor]:
        """Return tensors by the names under which they are served: the wanted tensors, or else the named tensors."""
        if not wanted:
            return {name: self._tensor(tensor, named_in or self._path) for name, tensor in named.items()}
        keys = {tensor: key for key, tensor in named.items()}
        found: dict[str, Tensor] = {}
        for name in wanted:
            tensor = self._tensor(named.get(name, name), self._path)
            found[keys.get(tensor.name, _short(tensor))] = tensor
        return found

    def _tensor(self, name: str, named_in: Path) -> Tensor:
        try:
            return self._graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
        except (KeyError, ValueError) as error:
            there = [tensor.name for tensor in (*self._placeholders(), *self._sinks([]).values())]
            where = "" if named_in == self._path else f", which {named_in} names"
            raise ModelError(
                f"{self._path} has no tensor {name!r}{where}, only {listed(there)} and the tensors between them."
            ) from error

    def _placeholders(self) -> list[Tensor]:
        return [op.outputs[0] for op in self._graph.get_operations() if op.type in _PLACEHOLDERS]

    def _placeholders_before(self, fetches: Iterable[Tensor], feeds: Iterable[Tensor]) -> list[Tensor]:
        """Return the placeholders that `fetches` need in addition to `feeds`, in the order of the graph."""
        fed = {tensor.op.name for tensor in feeds}

        def step(op: Any) -> list[Any]:
            return [] if op.name in fed else _before(op)

        needed = _reach([tensor.op for tensor in fetches], step) - fed
        return [tensor for tensor in self._placeholders() if tensor.op.name in needed]

    def _sinks(self, sources: Sequence[Any]) -> dict[str, Tensor]:
        """Return the tensors computed from `sources`, or else from any placeholder, that no operation for inference uses."""
        reached = _reach(sources or [tensor.op for tensor in self._placeholders()], _after)
        forward = [op for op in self._graph.get_operations() if op.name in reached and op.type not in _PLACEHOLDERS]
        last = [op for op in forward if not _after(op)]
        tensors = [tensor for op in last for tensor in op.outputs]
        # A single value for the whole batch, as a loss, is no answer to a record.
        found = {_short(tensor): tensor for tensor in tensors if tensor.shape.rank != 0}
        if not found:
            raise ModelError(f"{self._path} does not tell which tensors are its outputs: name them in modelOutputs.")
        return found

    def _check_variables(self, fetches: Iterable[Tensor]) -> None:
        needed = _reach([tensor.op for tensor in fetches], _before)
        for op in self._graph.get_operations():
            if op.type in _VARIABLES and op.name in needed:
                raise ModelError(
                    f"{self._path} is not frozen, the variable {op.name!r} has no value: freeze the graph, or serve the "
                    "SavedModel or the checkpoint that it comes from."
                )


class _GraphMeta(msgspec.Struct):
    """The keys of `graph_meta.json` that the original product reads. All other keys of the file are about training."""

    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()


def load_frozen(path: Path, options: LoadOptions) -> TensorflowBackend:
    """Load a frozen graph. `graph_meta.json` beside the graph names inputs and outputs unless `options` do.

    Raises:
        ModelError: see `Graph.backend`. Also, the file is no frozen graph, or `graph_meta.json` is not as it should be.
    """
    graph_def = tf.compat.v1.GraphDef()
    data = path.read_bytes()
    try:
        graph_def.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(f"{path} is no frozen graph{_hint(data)}.") from error
    if not graph_def.node:
        raise ModelError(f"{path} is no frozen graph{_hint(data)}.")
    for node in graph_def.node:
        node.device = ""
    wrapped = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph_def, name=""), [])
    graph = Graph(wrapped.graph, wrapped.prune, path, frozen=True)
    graph.fill_tables()
    meta = _GraphMeta()
    meta_path = path.with_name("graph_meta.json")
    if meta_path.is_file():
        try:
            meta = msgspec.json.decode(meta_path.read_bytes(), type=_GraphMeta)
        except msgspec.DecodeError as error:
            raise ModelError(
                f'{meta_path} must be like {{"input_names": ["x:0"], "output_names": ["y:0"]}}: {error}'
            ) from error
    for word, names in (("Input", meta.input_names), ("Output", meta.output_names)):
        for name in names:
            if ":" not in name:
                # The sentence of the original product, unchanged.
                raise ModelError(
                    f"{meta_path}: {word} names require to be Tensor names, but <{name}> looks like a operation name, "
                    f"please try <{name}:0> instead."
                )
    inputs, outputs = ({_without_port(name): name for name in names} for names in (meta.input_names, meta.output_names))
    return graph.backend(options, inputs, outputs, meta_path)


def load_checkpoint(path: Path, options: LoadOptions) -> TensorflowBackend:
    """Load a `.meta` with the `.index` and `.data` files of the same name. A signature in the `.meta` names inputs and outputs.

    Raises:
        ModelError: see `Graph.backend`. Also, a file is missing or broken.
    """
    prefix = path.with_suffix("")
    if not any(file.name.startswith(f"{prefix.name}.data-") for file in path.parent.iterdir()):
        raise ModelError(f"{path} is a part of a checkpoint: put its data {prefix.name}.data-00000-of-00001 beside it.")
    meta_graph = tf.compat.v1.MetaGraphDef()
    try:
        meta_graph.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise ModelError(f"{path} is truncated, or it is no meta graph: save the checkpoint again.") from error
    if not meta_graph.graph_def.node:
        raise ModelError(f"{path} holds no graph: save the checkpoint with write_meta_graph=True.")
    savers: list[Any] = []

    def import_graph() -> None:
        savers.append(tf.compat.v1.train.import_meta_graph(meta_graph, clear_devices=True))

    wrapped = tf.compat.v1.wrap_function(import_graph, [])
    if savers[0] is not None:
        saver = savers[0].as_saver_def()
        restore = wrapped.graph.as_graph_element(saver.restore_op_name)
        with without_patterns(prefix) as plain:
            wrapped.prune([wrapped.graph.as_graph_element(saver.filename_tensor_name)], [restore])(
                tf.constant(str(plain))
            )
    graph = Graph(wrapped.graph, wrapped.prune, path)
    graph.fill_tables()
    signature = choose_signature(meta_graph, options, path)
    return graph.backend(options, signature.inputs, signature.outputs)


def _hint(data: bytes) -> str:
    """Return the end of the error for a file that is no graph, with the likely kind of the file."""
    model = SavedModel()
    with contextlib.suppress(DecodeError):
        model.ParseFromString(data)
        if any(graph.graph_def.node for graph in model.meta_graphs):
            return " but a SavedModel: call it saved_model.pb and put its variables directory beside it"
    return ", or it is truncated: export the model again"


def _short(tensor: Tensor) -> str:
    return _without_port(tensor.name)


def _without_port(name: str) -> str:
    """Return `x` for `x:0`. `split:1`, the second tensor of an operation, keeps its number."""
    return name.removesuffix(":0")


def _reach(start: Iterable[Any], step: Callable[[Any], Iterable[Any]]) -> set[str]:
    """Return the names of all operations that are reachable by `step`, including the operations of `start`."""
    reached: set[str] = set()
    waiting = list(start)
    while waiting:
        op = waiting.pop()
        if op.name not in reached:
            reached.add(op.name)
            waiting.extend(step(op))
    return reached


def _before(op: Any) -> list[Any]:
    return [*(tensor.op for tensor in op.inputs), *op.control_inputs]


def _after(op: Any) -> list[Any]:
    used_by = [user for tensor in op.outputs for user in tensor.consumers()]
    return [
        user for user in used_by if not (_BACKSTAGE_NAMES.search(user.name) or _BACKSTAGE_TYPES.fullmatch(user.type))
    ]
