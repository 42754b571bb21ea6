"""Metadata, configuration, index entry and statistics of models, for the Open Inference Protocol."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.frontend.job import Job
from cluster_serving.frontend.models.models import Served
from cluster_serving.frontend.v2.metadata import index_entry, model_config, model_metadata
from cluster_serving.frontend.v2.statistics import model_statistics
from support.heartbeats import described

INPUTS = (TensorSpec("pixels", "float32", (8, 3, None)), TensorSpec("words", "str", None))


def node(**rest: Any) -> Heartbeat:
    fields = {"node": "n1", "backend": "onnx", "inputs": INPUTS, "outputs": (TensorSpec("y", "bool", (None,)),)}
    return described(**fields | {"batch_size": 4} | rest)


def served(*nodes: Heartbeat, reachable: bool = True) -> Served:
    """Return a served model that cannot be called: it has no connection."""
    backend: Any = SimpleNamespace(link=None, later=None, registry=SimpleNamespace(reachable=reachable))
    unused: Any = None
    return Served("name", "3", Job("j", nodes), backend, unused, None, None, unused)


def test_free_and_unknown_dimensions_are_minus_one() -> None:
    metadata = model_metadata(served(node()))

    assert (metadata["name"], metadata["versions"], metadata["platform"]) == ("name", ["3"], "onnxruntime_onnx")
    assert metadata["inputs"] == [
        {"name": "pixels", "datatype": "FP32", "shape": [-1, 3, -1]},
        {"name": "words", "datatype": "BYTES", "shape": [-1]},
    ]
    assert metadata["outputs"] == [{"name": "y", "datatype": "BOOL", "shape": [-1]}]


def test_whole_batches_have_the_models_own_batch_dimension() -> None:
    specs = tuple(msgspec.structs.replace(spec, batch_axis=None) for spec in INPUTS)
    described = served(node(already_batched=True, backend="bigdl", inputs=specs))

    assert model_metadata(described)["inputs"][0]["shape"] == [8, 3, -1]
    assert model_metadata(described)["platform"] == "bigdl"
    config = model_config(described, 100)
    assert (config["max_batch_size"], config["input"][0]["dims"]) == (0, [8, 3, -1])


def test_the_configuration_leaves_out_the_batch_dimension() -> None:
    config = model_config(served(node()), 100)

    assert (config["max_batch_size"], config["backend"]) == (100, "onnxruntime")
    assert config["input"] == [
        {"name": "pixels", "data_type": "TYPE_FP32", "dims": [3, -1]},
        {"name": "words", "data_type": "TYPE_STRING", "dims": [-1]},
    ]
    assert config["output"] == [{"name": "y", "data_type": "TYPE_BOOL", "dims": []}]


@pytest.mark.parametrize(
    ("state", "entry"), [("ready", ("READY", "")), ("starting", ("UNAVAILABLE", "n1 is starting"))]
)
def test_the_index_says_who_can_be_called(state: str, entry: tuple[str, str]) -> None:
    found = index_entry(served(node(state=state)))

    assert (found["state"], found["reason"]) == entry
    assert index_entry(served(node(state=state), reachable=False))["state"] == "UNAVAILABLE"


def test_statistics_are_the_sums_of_all_nodes() -> None:
    histogram = {"le": [0.5, 1], "counts": [3, 1, 0], "sum": 1.25}
    first = node(figures={"rows": 40, "runs": 4, "answered": 38, "failed": 2, "histograms": {"inference": histogram}})
    older = node(figures={"rows": 10, "runs": 5, "answered": 10, "failed": 0})

    found = model_statistics(served(*(Heartbeat.decode(each.encode()) for each in (first, older))))

    assert (found["inference_count"], found["execution_count"]) == (50, 9)
    assert found["inference_stats"]["success"]["count"] == 48
    assert found["inference_stats"]["fail"]["count"] == 2
    assert found["inference_stats"]["compute_infer"] == {"count": 4, "ns": 1_250_000_000}
    assert found["inference_stats"]["queue"] == {"count": 0, "ns": 0}


@pytest.mark.parametrize(
    "damage",
    [
        {"rows": None, "answered": "x", "runs": [1], "failed": 10**400},
        {"histograms": []},
        {"histograms": {"inference": None}},
        {"histograms": {"inference": {"counts": "x"}}},
    ],
)
def test_a_damaged_node_leaves_the_statistics_of_the_others(damage: dict[str, Any]) -> None:
    good, damaged = (
        Heartbeat.decode(node(figures=figures).encode()) for figures in ({"rows": 40, "failed": 2}, damage)
    )

    assert model_statistics(served(good, damaged)) == model_statistics(served(good))
