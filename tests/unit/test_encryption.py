"""The formats of the original, byte for byte, and what happens to what was not sealed so."""

import base64
import hashlib
import io
import sys
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cluster_serving.client.wire.encryption import SEALED_HEAD_BYTES, ModelCipher, RecordCipher, looks_sealed

KEY = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 65536, 16)
IV = bytes(range(16))
# By `openssl kdf` and `openssl enc -aes-128-cbc`.
OPENSSL = b"AAECAwQFBgcICQoLDA0OD1SVJsIyvOwWKOD5Ii0J4Co="
TEXT = b"attack at dawn"


@pytest.fixture(scope="module")
def model_cipher() -> ModelCipher:
    return ModelCipher("secret", "salt")


@pytest.fixture(scope="module")
def record_cipher() -> RecordCipher:
    return RecordCipher("secret", "salt")


def cbc(content: bytes) -> bytes:
    """The format of models, but for the padding."""
    encryptor = Cipher(algorithms.AES(KEY), modes.CBC(IV)).encryptor()
    return base64.b64encode(IV + encryptor.update(content) + encryptor.finalize())


def test_the_key_is_that_of_openssl() -> None:
    assert KEY.hex() == "7a687b1daaf63cbface7cd89bcb4ae54"
    assert cbc(TEXT + b"\x02\x02") == OPENSSL


def test_a_model_that_somebody_else_sealed_opens(model_cipher: ModelCipher) -> None:
    assert model_cipher.open(OPENSSL) == TEXT


def test_a_sealed_model_is_in_the_format_of_the_original(model_cipher: ModelCipher) -> None:
    sealed = base64.b64decode(model_cipher.seal(TEXT), validate=True)

    decryptor = Cipher(algorithms.AES(KEY), modes.CBC(sealed[:16])).decryptor()
    assert decryptor.update(sealed[16:]) + decryptor.finalize() == TEXT + b"\x02\x02"


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000, (3 << 20) - 1, (3 << 20) + 5, 7 << 20])
def test_a_model_of_any_size_comes_back(model_cipher: ModelCipher, size: int) -> None:
    content = bytes(range(251)) * (size // 251 + 1)
    sealed = model_cipher.seal(content[:size])

    assert looks_sealed(sealed[:SEALED_HEAD_BYTES])
    assert model_cipher.open(sealed) == content[:size]


def test_no_two_seals_are_the_same(model_cipher: ModelCipher, record_cipher: RecordCipher) -> None:
    assert model_cipher.seal(TEXT) != model_cipher.seal(TEXT)
    assert record_cipher.seal(TEXT) != record_cipher.seal(TEXT)


@pytest.mark.parametrize("separator", [b"\n", b"\r\n"])
def test_a_sealed_model_with_line_breaks_opens(model_cipher: ModelCipher, separator: bytes) -> None:
    sealed = model_cipher.seal(TEXT * 100)
    lines = separator.join(sealed[at : at + 76] for at in range(0, len(sealed), 76)) + separator

    assert model_cipher.open(lines) == TEXT * 100


@pytest.mark.parametrize(
    ("sealed", "reason"),
    [
        (cbc(TEXT + b"\x02\x03"), "another secret or salt, or it is damaged"),
        (OPENSSL[:-4] + b"AAAA", "another secret or salt, or it is damaged"),
        (base64.b64encode(base64.b64decode(OPENSSL) + b"more"), "another secret or salt, or it is damaged"),
        (cbc(TEXT * 8)[:-2], "it is cut off"),
        (OPENSSL[:20], "it is not encrypted, or cut off"),
        (b"", "it is not encrypted, or cut off"),
        (b"<?xml version='1.0'?>", "it is not encrypted, or damaged"),
        (OPENSSL[:30] + b"\xff" + OPENSSL[31:], "it is not encrypted, or damaged"),
    ],
)
def test_a_model_that_cannot_be_opened(model_cipher: ModelCipher, sealed: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        model_cipher.open(sealed)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("secret", "salt"), [("Secret", "salt"), ("secret", "Salt")])
def test_another_secret_or_salt_opens_neither(
    model_cipher: ModelCipher, record_cipher: RecordCipher, secret: str, salt: str
) -> None:
    with pytest.raises(ValueError, match="another secret or salt"):
        ModelCipher(secret, salt).open(OPENSSL)
    with pytest.raises(ValueError, match="another secret or salt"):
        RecordCipher(secret, salt).open(record_cipher.seal(TEXT))


def test_a_file_is_opened_as_it_is_read(model_cipher: ModelCipher) -> None:
    target = io.BytesIO()
    model_cipher.open_file(io.BytesIO(OPENSSL), target)

    assert target.getvalue() == TEXT


@pytest.mark.parametrize(
    "clear", [b"", b"cat\ndog\n" * 20, b'{"input_names": ["x:0"]}' * 5, b"\x08\x08\x12" * 20, b"A" * 43]
)
def test_what_is_no_sealed_model(clear: bytes) -> None:
    assert not looks_sealed(clear[:SEALED_HEAD_BYTES])


def test_a_record_is_in_the_format_of_the_original(record_cipher: RecordCipher) -> None:
    sealed = record_cipher.seal(TEXT)

    assert len(sealed) == 12 + len(TEXT) + 16
    assert AESGCM(KEY).decrypt(sealed[:12], sealed[12:], None) == TEXT


@pytest.mark.parametrize("wrapped", [bytes, base64.b64encode, base64.encodebytes])
@pytest.mark.parametrize("content", [b"", TEXT, TEXT * 1000])
def test_a_record_comes_back_from_bytes_and_from_base64(
    record_cipher: RecordCipher, wrapped: Callable[[bytes], bytes], content: bytes
) -> None:
    sealed = IV[:12] + AESGCM(KEY).encrypt(IV[:12], content, None)

    assert record_cipher.open(wrapped(sealed)) == content


@pytest.mark.parametrize("at", [0, 15, -1])
def test_a_record_that_was_changed_does_not_open(record_cipher: RecordCipher, at: int) -> None:
    sealed = bytearray(record_cipher.seal(TEXT))
    sealed[at] ^= 1

    with pytest.raises(
        ValueError, match="it is not encrypted, or was encrypted with another secret or salt, or it is damaged"
    ):
        record_cipher.open(bytes(sealed))


@pytest.mark.parametrize(
    "clear", [b"", b"\xff\xd8\xff\xe0", b"abcd" * 10, b"abcd" * 9 + b"abc", b"\x89PNG\r\n\x1a\n" * 9]
)
def test_a_record_that_is_not_sealed_does_not_open(record_cipher: RecordCipher, clear: bytes) -> None:
    with pytest.raises(ValueError, match="it is not encrypted"):
        record_cipher.open(clear)


@pytest.mark.parametrize("cipher", [ModelCipher, RecordCipher])
@pytest.mark.parametrize(("secret", "salt", "missing"), [("", "x", "secret"), ("x", "", "salt")])
def test_there_is_a_secret_and_a_salt(
    cipher: type[ModelCipher | RecordCipher], secret: str, salt: str, missing: str
) -> None:
    with pytest.raises(ValueError, match=f"the {missing} is empty"):
        cipher(secret, salt)


@pytest.mark.parametrize("cipher", [ModelCipher, RecordCipher])
def test_without_the_package_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, cipher: type[ModelCipher | RecordCipher]
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)

    with pytest.raises(ModuleNotFoundError, match="pip install cryptography"):
        cipher("secret", "salt")
