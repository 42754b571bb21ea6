"""Forms to their parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.values.forms import Part, read_form

TYPE = "multipart/form-data; boundary=bound"
HEAD = b'Content-Disposition: form-data; name="x"'
KINDS = st.sampled_from(["text/plain", "image/png"])


def form(*parts: bytes) -> bytes:
    return b"".join(b"--bound\r\n%b\r\n" % part for part in parts) + b"--bound--\r\n"


def test_parts_come_in_order_also_of_one_name() -> None:
    file = b'Content-Disposition: form-data; name="x"; filename="a.png"\r\nContent-Type: IMAGE/png; a=b\r\n\r\n\xff\r\n\x00'
    body = form(HEAD + b"\r\n\r\n1", file, HEAD + b"\r\n\r\n")

    assert read_form(body, TYPE) == [
        Part("x", False, "", b"1"),
        Part("x", True, "image/png", b"\xff\r\n\x00"),
        Part("x", False, "", b""),
    ]


@pytest.mark.parametrize(
    ("words", "name", "is_file"),
    [
        ('name="a b"', "a b", False),
        ("name=a", "a", False),
        ('name="a"; filename=""', "a", True),
        ('name="a"; filename="b;c=\\"d\\".png"', "a", True),
        ('filename="name=b"; name="a"', "a", True),
        ('name="a%22b"', 'a"b', False),
        ('name="tëst"', "tëst", False),
        ('filename="a"', "", True),
    ],
)
def test_names_as_programs_write_them(words: str, name: str, is_file: bool) -> None:
    body = form(f"Content-Disposition: form-data; {words}\r\n\r\n1".encode())

    assert read_form(body, TYPE) == [Part(name, is_file, "", b"1")]


@pytest.mark.parametrize("word", [b"bound", b"\xff"])
def test_data_may_hold_the_word_of_the_boundary(word: bytes) -> None:
    body = b'--%b\r\nContent-Disposition: form-data; name="x"; filename="a"\r\n\r\na%bc\r\n--%b--' % (word, word, word)
    boundary = word.decode(errors="surrogateescape")  # as Sanic reads headers

    assert read_form(body, f'multipart/form-data; boundary="{boundary}"') == [Part("x", True, "", b"a%bc" % word)]


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", "multipart/form-data; boundary=", 'multipart/form-data; boundary=""']
)
def test_a_form_without_boundary(kind: str) -> None:
    with pytest.raises(BadRequest, match="has no boundary"):
        read_form(form(HEAD + b"\r\n\r\n1"), kind)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "Unexpected end"),
        (b"--bound", "Unexpected end"),
        (b"--other\r\n" + HEAD + b"\r\n\r\n1\r\n--other--", "Unexpected end"),
        (b"--bound\r\n" + HEAD + b"\r\n\r\n1", "Unexpected end"),
        (b"--bound\r\n" + HEAD + b"\r\n\r\n1\r\n--bound\r\n", "Unexpected end"),
        (b"--bound\r\n" + HEAD + b"\r\n\r\n1\r\n--boundary--", "Unexpected bytes after boundary"),
        (form(b"no colon\r\n\r\n1"), "Malformed segment header"),
        (form(b"\xff: x\r\n\r\n1"), "Segment header failed to decode"),
        (form(b"Content-Type: text/plain\r\n\r\n1"), "Missing Content-Disposition segment header"),
        (form(HEAD.replace(b"form-data", b"attachment") + b"\r\n\r\n1"), "Wrong type"),
        (form(HEAD + b"\r\nContent-Length: 2\r\n\r\n1"), "Segment size does not match Content-Length header"),
        (form(HEAD + b"\n\n1"), "Malformed segment header"),
    ],
)
def test_bodies_that_are_no_form(body: bytes, reason: str) -> None:
    with pytest.raises(BadRequest, match=f"^the form cannot be read: .*{reason}"):
        read_form(body, TYPE)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (form(*[HEAD + b"\r\n\r\n1"] * 16_385), "Maximum segment count exceeded"),
        (form(HEAD + b"; filename=" + b"a" * 9000 + b"\r\n\r\n1"), "Maximum segment header length exceeded"),
        (form(HEAD + b"\r\nX: y" * 9 + b"\r\n\r\n1"), "Maximum segment header count exceeded"),
    ],
)
def test_forms_beyond_the_limits(body: bytes, reason: str) -> None:
    limits = "a form has at most 16384 parts, and each header 8192 bytes"

    with pytest.raises(BadRequest, match=f"^the form cannot be read: {reason}; {limits}$"):
        read_form(body, TYPE)


def test_as_many_parts_as_allowed() -> None:
    assert len(read_form(form(*[HEAD + b"\r\n\r\n1"] * 16_384), TYPE)) == 16_384


@given(st.lists(st.tuples(st.text("ab \"\\;='ä", min_size=1), st.booleans(), KINDS, st.binary())))
def test_a_form_is_read_as_browsers_write_it(parts: list[tuple[str, bool, str, bytes]]) -> None:
    """See https://html.spec.whatwg.org/multipage/form-control-infrastructure.html#multipart-form-data."""
    written = [
        b'Content-Disposition: form-data; name="%b"%b\r\nContent-Type: %b\r\n\r\n%b'
        % (name.replace('"', "%22").encode(), b'; filename="a"' * is_file, kind.encode(), content)
        for name, is_file, kind, content in parts
    ]

    assert read_form(form(*written), TYPE) == [Part(*part) for part in parts]
