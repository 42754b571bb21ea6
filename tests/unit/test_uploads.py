"""Forms and files to instances."""

from typing import Any

import pytest

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.job import Job
from cluster_serving.frontend.values.uploads import form_instances, image_instances
from support.heartbeats import described

TYPE = "multipart/form-data; boundary=bound"


def job(*inputs: TensorSpec) -> Job:
    return Job("job", (described(inputs=inputs),))


def part(words: str, content: bytes, kind: str = "text/plain") -> bytes:
    return (
        f"--bound\r\nContent-Disposition: form-data; {words}\r\nContent-Type: {kind}\r\n\r\n".encode()
        + content
        + b"\r\n"
    )


def instances(*parts: bytes, inputs: tuple[TensorSpec, ...] = ()) -> list[dict[str, Any]]:
    return form_instances(b"".join([*parts, b"--bound--\r\n"]), TYPE, job(*inputs))


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"5", 5),
        (b"[1.5, 2]", [1.5, 2]),
        (b"a cat", "a cat"),
        (b'{"b64": "aGVsbG8="}', {"b64": "aGVsbG8="}),
    ],
)
def test_a_field_is_json_else_text(content: bytes, value: Any) -> None:
    assert instances(part('name="x"', content)) == [{"x": value}]


@pytest.mark.parametrize(
    ("shape", "content", "value"),
    [
        ((None,), b"5", "5"),
        ((None,), b'["a", "b"]', '["a", "b"]'),
        ((None, 2), b'["a", "b"]', ["a", "b"]),
        ((None, 1), b"5", "5"),
        (None, b"[1]", "[1]"),
    ],
)
@pytest.mark.parametrize("words", ['name="t"', 'name="t"; filename="a.txt"', 'name="another"'])
def test_for_an_input_of_text_it_is_text(shape: Any, content: bytes, value: Any, words: str) -> None:
    (instance,) = instances(part(words, content), inputs=(TensorSpec("t", "str", shape),))

    assert list(instance.values()) == [value]


def test_a_file_is_its_bytes() -> None:
    assert instances(part('name="x"; filename="a"', b"\xff\r\n\x00", "image/jpeg")) == [{"x": b"\xff\r\n\x00"}]


def test_text_that_is_not_utf_8() -> None:
    with pytest.raises(BadRequest, match="input 't': this part is text that is not UTF-8"):
        instances(part('name="t"; filename="a"', b"\xff"), inputs=(TensorSpec("t", "str", (None,)),))


def test_a_file_for_an_input_of_text_that_takes_bytes() -> None:
    takes_bytes = (TensorSpec("t", "str", (None, 1), takes_bytes=True),)

    assert instances(part('name="t"; filename="a"', b"\xff"), inputs=takes_bytes) == [{"t": b"\xff"}]
    assert instances(part('name="t"; filename="a"', b"text"), inputs=takes_bytes) == [{"t": "text"}]
    with pytest.raises(BadRequest, match="input 't': this part is text that is not UTF-8"):
        instances(part('name="t"', b"\xff"), inputs=takes_bytes)


def test_a_form_without_names() -> None:
    with pytest.raises(BadRequest, match="the form has no parts with a name"):
        instances(part('filename="a"', b"1"))


def test_parts_of_one_name_are_instances_in_order() -> None:
    parts = [part(f'name="{name}"', content) for name, content in (("x", b"1"), ("y", b"3"), ("x", b"2"), ("y", b"4"))]

    assert instances(*parts) == [{"x": 1, "y": 3}, {"x": 2, "y": 4}]
    with pytest.raises(BadRequest, match="the form has 2 of 'x', 1 of 'y'; each instance takes one of every name"):
        instances(*parts[:3])


@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
def test_a_form_is_no_way_round_the_limits_of_json(kind: str) -> None:
    words = 'name="x"; filename="a"' if kind == "application/json" else 'name="x"'
    with pytest.raises(BadRequest, match="lists, objects and texts"):
        instances(*[part(words, b"[%b]" % b",".join([b"[]"] * 500_000), kind)] * 9)


def test_an_image_is_one_instance() -> None:
    assert image_instances(b"file") == [{"image": b"file"}]
    with pytest.raises(BadRequest, match="is empty"):
        image_instances(b"")
