"""Rows of different length share a batch: padded in, cut back out, and proven."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from bench.in_process import Serving
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.node.engines.padding import groups
from cluster_serving.node.models.base import ModelError

FILLS = {"ids": 3, "mask": 0}


def encoder(path: Path, mask: str = "1") -> Path:
    """Return a model whose outputs carry the length once, not at all, and twice."""
    file = path / "model.py"
    file.write_text(
        dedent(
            f"""
            import numpy

            class Model:
                inputs = {{"ids": "int64 [N,?]", "mask": "int64 [N,?]"}}
                outputs = {{"tokens": "float32 [N,?,2]", "mean": "float32 [N]", "pairs": "float32 [N,?,?]"}}

                def predict(self, batch):
                    ids, mask = batch["ids"].astype("float32"), batch["mask"] * {mask}
                    mean = (ids * mask).sum(1) / numpy.maximum(mask.sum(1), 1)
                    tokens = numpy.stack([ids, ids * mean[:, None]], axis=2)
                    return {{"tokens": tokens, "mean": mean, "pairs": ids[:, :, None] - ids[:, None, :]}}
            """
        )
    )
    return file


def record(ids: Sequence[int]) -> dict[str, Any]:
    return {"ids": np.array(ids, np.int64), "mask": np.ones(len(ids), np.int64)}


def check(outputs: dict[str, Any], ids: Sequence[int]) -> None:
    expected = np.array(ids, np.float32)
    mean = expected.mean() if len(ids) else np.float32(0)
    np.testing.assert_allclose(outputs["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(outputs["tokens"], np.stack([expected, expected * mean], axis=1), rtol=1e-5)
    np.testing.assert_allclose(outputs["pairs"], expected[:, None] - expected[None, :], rtol=1e-5)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=64))
def test_a_quarter_of_a_batch_is_padding_at_most(lengths: list[int]) -> None:
    found = list(groups(lengths))

    assert sorted(chain.from_iterable(found)) == list(range(len(lengths)))
    for group in found:
        taken = [lengths[at] for at in group]
        assert sum(taken) >= 0.75 * max(taken) * len(taken)


def test_half_of_the_rows_of_any_length_are_one_batch() -> None:
    sizes = [len(group) for group in groups(range(1, 65))]
    assert sizes[0] >= 32
    assert sizes == sorted(sizes, reverse=True)


def test_rows_ride_together_and_get_what_they_get_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    sent = [rng.integers(1, 90, length).tolist() for length in (14, 18, 15, 200, 14, 0, 1, 16, 18)]
    with Serving(encoder(tmp_path), padding=FILLS) as serving:
        results = serving.results([record(ids) for ids in sent])
        alone = serving.results([record(sent[0])])
        whole = serving.predict({"ids": np.array([sent[0], sent[4]]), "mask": np.ones((2, 14), np.int64)})
        batches = serving.batches

    assert batches == [len(sent), 1, 1]
    for ids, result in zip(sent, results, strict=True):
        assert result.error is None
        check(result.outputs, ids)
    assert serving.proof is not None
    assert not serving.proof.fault
    check(alone[0].outputs, sent[0])
    np.testing.assert_allclose(whole[1], [np.mean(sent[0]), np.mean(sent[4])], rtol=1e-5)


def test_a_row_at_fault_in_a_padded_batch_is_answered_alone(tmp_path: Path) -> None:
    file = encoder(tmp_path)
    file.write_text(
        file.read_text().replace("ids, mask =", "assert not (batch['ids'] == 66).any(), 'no 66'\n        ids, mask =")
    )
    sent = [[5, 6, 7, 8], [66, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [9, 9, 9, 9, 9, 9], [7] * 5]
    with Serving(file, padding=FILLS) as serving:
        results = serving.results([record(ids) for ids in sent])

    assert [result.error is None for result in results] == [len(ids) == 4 or 66 not in ids for ids in sent]
    assert results[1].error is not None
    assert "no 66" in results[1].error[1]
    for ids, result in zip(sent, results, strict=True):
        if 66 not in ids:
            check(result.outputs, ids)


def test_a_model_that_ignores_its_mask_runs_rows_one_by_one(tmp_path: Path) -> None:
    sent = [[1, 2, 3, 4, 5], [5, 6, 7, 8, 9, 10], [90, 80, 70, 60, 50], [4, 4, 4, 4, 5, 6]]
    with Serving(encoder(tmp_path, mask="0 + 1"), padding=FILLS) as serving:
        even = serving.results([record(ids) for ids in (sent[0], sent[2])])
        assert serving.proof is not None
        assert not serving.proof.fault
        results = serving.results([record(ids) for ids in sent])

    assert serving.proof.fault.startswith("row ")
    for ids, result in zip([sent[0], sent[2], *sent], [*even, *results], strict=True):
        check(result.outputs, ids)


def test_inputs_of_a_record_that_differ_in_length_share_a_batch_with_their_like_alone(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        dedent(
            """
            class Model:
                inputs = {"a": "float32 [N,?]", "b": "float32 [N,?]"}
                outputs = {"y": "float32 [N]"}

                def predict(self, batch):
                    return {"y": batch["a"].sum(1) + batch["b"].sum(1)}
            """
        )
    )
    sizes = [(5, 6), (5, 6), (6, 5), (6, 6), (5, 5)]
    with Serving(file, padding={"a": 0, "b": 0}) as serving:
        results = serving.results([{"a": np.ones(a, np.float32), "b": np.ones(b, np.float32)} for a, b in sizes])

    assert [result.outputs["y"].item() for result in results] == [a + b for a, b in sizes]


@pytest.mark.parametrize(
    ("fills", "message"),
    [
        ({"idz": 0}, "padding names 'idz', and the model takes ids int64 [N,?], mask int64 [N,?]"),
        ({"ids": 0.5}, "padding of 'ids': input 'ids' takes int64, and 0.5"),
    ],
)
def test_padding_that_does_not_fit_the_model(tmp_path: Path, fills: dict[str, float], message: str) -> None:
    with pytest.raises(ModelError) as raised:
        Serving(encoder(tmp_path), padding=fills)

    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("inputs", "output", "message"),
    [
        (
            "[N,?]",
            "x[:, ::2]",
            "padding cannot be cut off output 'y': its rows have shape [3] for a length of 5, and [4] for 7",
        ),
        (
            "[N,4]",
            "x",
            "padding is for inputs of numbers with one free dimension beside the batch, and x float32 [N,4] is none",
        ),
        ("[N,?,?]", "x", "padding is for inputs of numbers with one free dimension beside the batch"),
    ],
)
def test_models_that_cannot_be_padded(tmp_path: Path, inputs: str, output: str, message: str) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        dedent(
            f"""
            class Model:
                inputs = {{"x": "float32 {inputs}"}}
                outputs = {{"y": "float32 {inputs}"}}

                def predict(self, batch):
                    x = batch["x"]
                    return {{"y": {output}}}
            """
        )
    )
    with pytest.raises(ModelError) as raised:
        Serving(file, padding={"x": 0})

    assert str(raised.value).startswith(message)
