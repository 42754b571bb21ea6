"""Calls of a model to paste."""

import ast
import json
import subprocess
from pathlib import Path

import pytest

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.node.commands.calls import curl, example, python

URL = "http://localhost:10020"


def body_of(call: str, directory: Path) -> str:
    """Return the body that the shell passes to curl, or pipes into curl."""
    (directory / "curl").write_text('#!/bin/sh\n[ "$3" = @- ] && exec cat || printf %s "$3"\n')
    (directory / "curl").chmod(0o700)
    path = f"{directory}:/usr/bin:/bin"
    return subprocess.run(
        ["/bin/sh", "-c", call], capture_output=True, text=True, check=True, env={"PATH": path}
    ).stdout


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (TensorSpec("x", "float32", (None, 2)), [0.5, 0.5]),
        (TensorSpec("it's", "int64", (None, 1)), [1]),
        (TensorSpec("on", "bool", (None,)), True),
        (TensorSpec("state", "float32", (2, None, 3), 1), [[0.5] * 3] * 2),
        (TensorSpec("large", "float32", (None, 100, 7)), [[0.5] * 7] * 100),
        (TensorSpec("free", "int32", (None, None)), [1] * 8),
        (TensorSpec("text", "str", (None,)), "text"),
        (TensorSpec("texts", "str", (None, 2)), ["text", "text"]),
    ],
)
def test_curl_sends_a_row_of_the_shape(spec: TensorSpec, value: object, tmp_path: Path) -> None:
    made = example(spec)
    assert made is not None
    call = curl(URL, "a job", [(spec.name, made)], whole=False)

    assert call.find(f"{URL}/v1/models/a%20job:predict") >= 0
    assert json.loads(body_of(call, tmp_path)) == {"instances": [{spec.name: value}]}
    assert max(map(len, call.splitlines())) <= 80


def test_a_call_of_the_model_by_itself_has_its_batch_dimension(tmp_path: Path) -> None:
    made = example(TensorSpec("x", "float32", (None, 2), None))
    assert made is not None

    assert json.loads(body_of(curl(URL, "j", [("x", made)], whole=True), tmp_path)) == {"inputs": {"x": [[0.5, 0.5]]}}


@pytest.mark.parametrize("shape", [(None, 3, 224, 224), (None, 28, 28, 1), (None, 3, None, None), None])
def test_models_of_images_get_a_short_image(shape: tuple[int | None, ...] | None) -> None:
    made = example(TensorSpec("image", "float32", shape))

    assert made is not None
    assert json.loads(made.json).startswith("iVBOR")
    assert len(made.json) < 200


ODD = "first input, of the model, with words: that, go, on and on"


@pytest.mark.parametrize("names", [(ODD, f"{ODD}, again"), ("😀", "ü"), ('a "b", c', "it's, \\"), ("x" * 200, "a\nb")])
@pytest.mark.parametrize("size", [2, 100])
def test_names_of_inputs_are_as_they_are(names: tuple[str, ...], size: int, tmp_path: Path) -> None:
    made = example(TensorSpec("x", "float32", (None, size)))
    assert made is not None
    values = [(name, made) for name in names]

    program = ast.parse(python(RedisSettings.parse("localhost:6379"), names[0], values))

    strings = [node.value for node in ast.walk(program) if isinstance(node, ast.Constant)]
    assert {*names} <= {*strings}
    assert strings.count(names[0]) == 2  # of the job too
    (record,) = json.loads(body_of(curl(URL, "j", values, whole=False), tmp_path))["instances"]
    assert record == dict.fromkeys(names, [0.5] * size)


def test_a_map_has_no_example() -> None:
    assert example(TensorSpec("m", "map", None)) is None


def test_the_python_program_has_the_address_and_no_password() -> None:
    made = example(TensorSpec("x", "float32", (None, 2)))
    assert made is not None

    plain = python(RedisSettings(), "serving_stream", [("x", made)])
    secret = python(RedisSettings("redis", 6380, password="geheim"), "j", [("x", made)])  # noqa: S106 - of no server

    assert "with InputQueue() as queue:" in plain
    assert 'url="redis://redis:6380/0", name="j", password=os.environ["CLUSTER_SERVING_REDIS_PASSWORD"]' in secret
    assert "geheim" not in secret
    for text in (plain, secret):
        compile(text, "pasted", "exec")
