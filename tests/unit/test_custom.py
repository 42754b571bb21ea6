"""The user's class: how it is loaded, what its methods give, and what is said when they fail."""

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.user_code import UserFault
from cluster_serving.node.processing.custom import Processing, load


def write(folder: Path, code: str, name: str = "steps.py") -> Path:
    path = folder / name
    path.write_text(dedent(code))
    return path


def load_from(folder: Path, code: str) -> Processing:
    return load(f"{write(folder, code)}:Steps")


def failure(setting: str) -> str:
    with pytest.raises(ModelError) as caught:
        load(setting)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_object_is_made_and_loaded_once(tmp_path: Path) -> None:
    processing = load_from(
        tmp_path,
        """
        from pathlib import Path

        class Steps:
            def __init__(self):
                self.calls = ["init"]

            def load(self):
                self.calls.append(Path(__file__).name)

            def preprocess(self, record):
                return self.calls
        """,
    )

    assert (processing.has_preprocess, processing.has_postprocess) == (True, False)
    assert processing.preprocess({}) == ["init", "steps.py"]
    assert processing.preprocess({}) == ["init", "steps.py"]


def test_modules_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    write(tmp_path, "FACTOR = 3", "factors_of_steps.py")
    processing = load_from(
        tmp_path,
        """
        import factors_of_steps

        class Steps:
            def postprocess(self, outputs):
                return factors_of_steps.FACTOR
        """,
    )

    assert processing.postprocess({}) == b"3"


def test_files_of_two_folders_import_modules_of_one_name_from_their_own(tmp_path: Path) -> None:
    found: list[Processing] = []
    for factor in (2, 3, 2):
        folder = tmp_path / f"times_{factor}"
        (folder / "namesakes").mkdir(parents=True, exist_ok=True)
        write(folder, f"FACTOR = {factor}", "namesake.py")
        write(folder / "namesakes", "", "__init__.py")
        write(folder / "namesakes", f"TERM = 10 * {factor}", "terms.py")
        code = """
            from namesake import FACTOR
            from namesakes.terms import TERM

            class Steps:
                def postprocess(self, outputs):
                    return FACTOR + TERM
            """
        found.append(load_from(folder, code))

    assert [steps.postprocess({}) for steps in found] == [b"22", b"33", b"22"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "class Steps: pass",
            "line 1: class Steps has neither preprocess(self, record) nor postprocess(self, outputs).",
        ),
        ("class Other: pass\nclass _Own: pass", "has no class Steps; its classes: Other."),
        ("Steps = 3", "has no class Steps; its classes: none."),
        ("import not_there", "line 1: ModuleNotFoundError: No module named 'not_there'"),
        ("class Steps:\n  def __init__(self):\n    1 / 0", "line 3: ZeroDivisionError: division by zero"),
        ("class Steps:\n  def load(self):\n    raise SystemExit(1)", "line 3: SystemExit: 1"),
        ("class Steps:\n  def preprocess(self, record)", "line 2: SyntaxError: expected ':'"),
    ],
)
def test_what_is_wrong_with_the_file_is_said_with_its_line(tmp_path: Path, code: str, expected: str) -> None:
    path = write(tmp_path, code)

    text = failure(f"{path}:Steps")

    assert str(path) in text
    assert text.endswith(expected)


@pytest.mark.parametrize("name", ["absent.py", ""])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    assert "there is no file" in failure(f"{tmp_path / name}:Steps")


def test_what_a_method_raises_comes_with_file_and_line(tmp_path: Path) -> None:
    processing = load_from(
        tmp_path,
        """
        class Steps:
            def preprocess(self, record):
                return record["image"] + 1

            def postprocess(self, outputs):
                raise ValueError("first line\\nsecond line")
        """,
    )

    with pytest.raises(UserFault, match=r"^preprocess: KeyError: 'image' \(steps.py, line 4\)$"):
        processing.preprocess({})
    with pytest.raises(UserFault, match=r"^postprocess: ValueError: first line \(steps.py, line 7\)$"):
        processing.postprocess({})


class Echo:
    """Gives one answer."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def postprocess(self, outputs: dict[str, Any]) -> Any:
        """The answer."""
        return self._answer


def made(answer: Any) -> Any:
    return Processing(Echo(answer), Path("/steps.py")).postprocess({})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, None),
        ("text", "text"),
        ({}, {}),
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
        (np.longdouble(0.5), 0.5),
        ([np.zeros(2, np.longdouble)], [[0, 0]]),
        (np.array([[1, 2]]), [[1, 2]]),
        ({"a": np.array([True]), "b": (1, "x")}, {"a": [True], "b": [1, "x"]}),
        ({1: np.str_("x")}, {"1": "x"}),
        ([np.zeros(2), {"n": np.bool_(1)}], [[0, 0], {"n": True}]),
    ],
)
def test_what_json_can_say_becomes_json(answer: Any, expected: Any) -> None:
    found = made(answer)

    assert isinstance(found, bytes)
    assert json.loads(found) == expected


def test_a_dict_of_arrays_stays_one() -> None:
    arrays = {"a": np.zeros(2), "t": np.array(["x"])}

    assert made(arrays) is arrays


def test_masked_values_are_null_in_json_and_refused_in_arrays() -> None:
    masked = np.ma.array([1.0, 2.0], mask=[False, True])

    assert json.loads(made([masked])) == [[1, None]]
    assert made({"a": np.ma.array([1.0, 2.0])})["a"].tolist() == [1, 2]
    with pytest.raises(
        UserFault, match=r"^postprocess: ValueError: 'b' has masked values: fill them, as numpy.ma.filled"
    ):
        made({"a": np.zeros(1), "b": masked})


def test_what_json_cannot_say_is_the_records_fault() -> None:
    with pytest.raises(UserFault, match=r"^postprocess: TypeError: a object cannot be sent: return numbers, text"):
        made([object()])
