"""The filters: their grammar, their lists, their numbers and their texts."""

import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cluster_serving.node.models.base import ModelError
from cluster_serving.node.processing.filter_text import java_float
from cluster_serving.node.processing.labels import with_labels
from cluster_serving.node.processing.topn import Filter, apply, apply_to_rows, parse_filter


@pytest.mark.parametrize("text", ["", "  ", "None", " None "])
def test_no_filter(text: str) -> None:
    assert parse_filter(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("topN(5)", Filter("topN", 5)), (" topN( 1 ) ", Filter("topN", 1)), ("pickTopN(20)", Filter("pickTopN", 20))],
)
def test_filters(text: str, expected: Filter) -> None:
    assert parse_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("topN", "please check your filter format, should be filter_name(filter_args): 'topN' is not"),
        ("topN(1", "please check your filter format, should be filter_name(filter_args)"),
        ("topN((1)", "please check your filter format, should be filter_name(filter_args)"),
        ("topN(1,2)", "topN filter only support 1 argument, please check."),
        ("pickTopN(1,2)", "pickTopN filter only support 1 argument, please check."),
        ("topn(1)", "there is no filter 'topn': it must be one of topN, pickTopN"),
        ("topN()", "the argument of topN must be a whole number"),
        ("topN(2.5)", "the argument of topN must be a whole number"),
        ("topN(0)", "the argument of topN must be 1 or more, not 0"),
        ("topN(-1)", "the argument of topN must be 1 or more, not -1"),
    ],
)
def test_what_is_no_filter(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared in full below
        parse_filter(text)

    assert str(caught.value).startswith(reason)


def test_top_n_of_the_original_products_example() -> None:
    output = np.array([3, 2, 1, 4, 5], np.float32)

    assert Filter("topN", 2)(output) == [[4, 5.0], [3, 4.0]]
    assert json.dumps(Filter("topN", 2)(output)) == "[[4, 5.0], [3, 4.0]]"


def test_top_n_flattens_and_gives_all_when_there_are_fewer() -> None:
    assert Filter("topN", 9)(np.array([[1, 2], [4, 3]], np.float32)) == [[2, 4.0], [3, 3.0], [1, 2.0], [0, 1.0]]
    assert Filter("topN", 1)(np.array(7, np.float32)) == [[0, 7.0]]
    assert Filter("topN", 1)(np.empty(0, np.float32)) == []


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int64", "bool"])
@pytest.mark.parametrize("n", [1, 2, 5, 99, 100])
def test_top_n_takes_the_earlier_of_equals(dtype: str, n: int) -> None:
    values = np.random.default_rng(n).integers(0, 6, 100).astype(dtype)

    found = Filter("topN", n)(values)

    by_value = sorted(range(100), key=lambda index: (-float(values[index]), index))
    assert found == [[index, float(values[index])] for index in by_value[:n]]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 9])
def test_top_n_puts_nan_behind_infinities(n: int) -> None:
    values = np.array([np.nan, -np.inf, np.nan, 2], np.float32)

    assert [index for index, _ in Filter("topN", n)(values)] == [3, 1, 0, 2][:n]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_top_n_puts_nan_last(n: int) -> None:
    values = np.array([np.nan, 1, np.nan, 3, 2], np.float32)

    assert Filter("topN", n)(values) == [[3, 3.0], [4, 2.0], [1, 1.0]][:n]


def test_numbers_print_as_the_shortest_digits_of_their_dtype() -> None:
    assert json.dumps(Filter("topN", 1)(np.array([0.1306194], np.float32))) == "[[0, 0.1306194]]"
    assert json.dumps(Filter("pickTopN", 1)(np.array([[0.1, 1e-7]], np.float16))) == "[[0.1, 1e-07]]"
    assert json.dumps(Filter("topN", 1)(np.array([0.1], np.float64))) == "[[0, 0.1]]"
    assert json.dumps(Filter("topN", 1)(np.array([5], np.int32))) == "[[0, 5.0]]"


@pytest.mark.parametrize("shape", [(2, 2), (1, 2, 2)])
def test_pick_top_n_takes_the_first_rows(shape: tuple[int, ...]) -> None:
    output = np.array([[2, 2], [3, 3]], np.float32).reshape(shape)

    assert Filter("pickTopN", 1)(output) == [[2.0, 2.0]]
    assert Filter("pickTopN", 5)(output) == [[2.0, 2.0], [3.0, 3.0]]


@pytest.mark.parametrize("shape", [(4,), (2, 2, 2), (1, 1, 2, 2), ()])
def test_pick_top_n_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^pickTopN post-processing only take 2 or 3 output dim tensor: "):
        Filter("pickTopN", 1)(np.zeros(shape, np.float32))


def test_one_output_gives_its_list_and_several_a_dict() -> None:
    outputs: dict[str, NDArray[np.float32]] = {
        "a": np.array([1, 2], np.float32),
        "b": np.array([4, 3], np.float32),
    }

    assert apply(Filter("topN", 1), outputs) == {"a": [[1, 2.0]], "b": [[0, 4.0]]}
    assert apply(Filter("topN", 1), {"a": outputs["a"]}) == [[1, 2.0]]


def test_a_failing_output_is_named() -> None:
    with pytest.raises(ValueError, match=r"^output 'a': pickTopN"):
        apply(Filter("pickTopN", 1), {"a": np.zeros(3, np.float32)})


def test_a_filter_goes_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Filter("topN", 3))) == Filter("topN", 3)  # noqa: S301 - our own bytes


@pytest.mark.parametrize("name", ["topN", "pickTopN"])
@pytest.mark.parametrize("dtype", [object, str])
def test_text_is_not_filtered(name: str, dtype: type) -> None:
    with pytest.raises(ValueError, match=rf"^output 't': {name} takes numbers, and this is text$"):
        apply(Filter(name, 1), {"t": np.array(["a", "b"], dtype)})


def test_a_whole_batch_is_filtered_row_by_row() -> None:
    outputs: dict[str, NDArray[np.float64]] = {"a": np.array([[1.0, 2], [4, 3]]), "b": np.array([5.0, 6])}

    assert apply_to_rows(Filter("topN", 1), {"a": outputs["a"]}) == [[[1, 2.0]], [[0, 4.0]]]
    assert apply_to_rows(Filter("topN", 1), outputs) == [
        {"a": [[1, 2.0]], "b": [[0, 5.0]]},
        {"a": [[0, 4.0]], "b": [[0, 6.0]]},
    ]


@pytest.mark.parametrize("shape", [(), (3, 1)])
def test_a_whole_batch_without_rows_is_not_filtered(shape: tuple[int, ...]) -> None:
    outputs: dict[str, NDArray[np.float64]] = {"a": np.zeros((2, 2)), "b": np.zeros(shape)}

    with pytest.raises(
        ValueError, match=rf"the outputs have not the same rows: 'a' \[2, 2\], 'b' \[{str(shape)[1:-1]}\]$"
    ):
        apply_to_rows(Filter("topN", 1), outputs)
    with pytest.raises(ValueError, match="row by row"):
        apply_to_rows(Filter("topN", 1), {"b": np.zeros(())})


def test_labels_name_the_classes(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_bytes("\ufeffthe cat\r\n\r\n Hündin \r\n\r\n".encode())

    chosen = with_labels(Filter("topN", 4), str(path))

    assert chosen is not None
    assert chosen(np.array([1, 2, 3, 4])) == [[3, 4.0, None], [2, 3.0, "Hündin"], [1, 2.0, ""], [0, 1.0, "the cat"]]
    assert with_labels(Filter("topN", 4), "") == Filter("topN", 4)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file"),
        (b" \n\n", "is empty"),
        (b"cat\n\xff\xfe", "is not UTF-8 text: invalid start byte at"),
    ],
)
def test_labels_that_cannot_be_read(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "labels.txt"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ModelError) as caught:
        with_labels(Filter("topN", 1), str(path))

    assert str(caught.value).startswith(f"labels: {path} {reason}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("chosen", [None, Filter("pickTopN", 1)])
def test_labels_without_top_n(chosen: Filter | None) -> None:
    with pytest.raises(
        ModelError, match=r"^labels is names\.txt, and only topN names classes: set postProcessing to topN\(5\)"
    ):
        with_labels(chosen, "names.txt")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5.0"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.1306194, "0.1306194"),
        (1e-3, "0.001"),
        (9.999e-4, "9.999E-4"),
        (-2.2538425e-4, "-2.2538425E-4"),
        (1e-4, "1.0E-4"),
        (9999999, "9999999.0"),
        (1e7, "1.0E7"),
        (-123456789, "-1.2345679E8"),
        (16777217, "1.6777216E7"),
        (1e-10, "1.0E-10"),
        (3.4028235e38, "3.4028235E38"),
        (1e39, "Infinity"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (1 / 3, "0.33333334"),
    ],
)
def test_numbers_as_java_prints_them(value: float, text: str) -> None:
    assert java_float(value) == text
