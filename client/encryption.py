"""Encryption of models and records with a secret and a salt, in the formats of the original.

    key      PBKDF2-HMAC-SHA256 of the secret, 65536 iterations, 128 bit; secret and salt in UTF-8
    model    base64 of:  | iv 16 | AES-CBC of the file, padded as in PKCS 7 |
    record   | iv 12 | AES-GCM of the image | tag 16 |, or base64 of it

A record that opens is what was sealed. CBC proves nothing like it: a model's file that was tampered with may still open.
"""

import base64
import binascii
import hashlib
import io
import os
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

_ITERATIONS = 65536
_KEY_BYTES = 16
_BLOCK_BYTES = 16
_IV_BYTES = 12  # of GCM; that of CBC is a block
_TAG_BYTES = 16
_CHUNK_BYTES = 3 << 20  # as a multiple of 3 and of 4: the base64 of one chunk continues that of the last
_WHITESPACE = b" \t\r\n"
_BASE64 = re.compile(rb"[A-Za-z0-9+/\s]{38,}={0,2}\s*")
# IV and one block are the least that there can be, and 44 characters; no label or word is so long.
_SEALED_HEAD = re.compile(rb"[A-Za-z0-9+/]{43}[A-Za-z0-9+/=]")
SEALED_HEAD_BYTES = 44

_UNREADABLE = "it was encrypted with another secret or salt, or it is damaged"


class ModelCipher:
    """Encrypts the files of a model, and opens them.

    Args:
        secret: what only those know who may read the model.
        salt: any text; the same to seal and to open.

    Raises:
        ValueError: secret or salt is empty.
        ModuleNotFoundError: the package cryptography is not installed.
    """

    def __init__(self, secret: str, salt: str) -> None:
        self._key = _derive(secret, salt)
        with _needs_cryptography():
            from cryptography.hazmat.primitives.padding import PKCS7
        self._padding = PKCS7(8 * _BLOCK_BYTES)

    def seal(self, content: bytes) -> bytes:
        """The content encrypted, in base64 on one line."""
        sealed = io.BytesIO()
        self.seal_file(io.BytesIO(content), sealed)
        return sealed.getvalue()

    def open(self, sealed: bytes) -> bytes:
        """The content of what `seal` gave; there may be line breaks in it.

        Raises:
            ValueError: it was sealed with another secret or salt, or is damaged, or is no such thing.
        """
        content = io.BytesIO()
        self.open_file(io.BytesIO(sealed), content)
        return content.getvalue()

    def seal_file(self, source: BinaryIO, target: BinaryIO) -> None:
        """`seal` for a file of any size: reads `source` to its end and writes to `target`."""
        iv = os.urandom(_BLOCK_BYTES)
        encryptor, padder = self._cbc(iv).encryptor(), self._padding.padder()
        pending = iv
        while chunk := source.read(_CHUNK_BYTES):
            pending += encryptor.update(padder.update(chunk))
            whole = len(pending) // 3 * 3
            target.write(base64.b64encode(pending[:whole]))
            pending = pending[whole:]
        target.write(base64.b64encode(pending + encryptor.update(padder.finalize()) + encryptor.finalize()))

    def open_file(self, source: BinaryIO, target: BinaryIO) -> None:
        """`open` for a file of any size: reads `source` to its end and writes to `target`.

        Raises:
            ValueError: as `open`; what could be opened is in `target`.
        """
        chunks = _decoded(source)
        head = next(chunks, b"")
        if len(head) < 2 * _BLOCK_BYTES:
            raise ValueError("it is not encrypted, or cut off")
        decryptor, unpadder = self._cbc(head[:_BLOCK_BYTES]).decryptor(), self._padding.unpadder()
        target.write(unpadder.update(decryptor.update(head[_BLOCK_BYTES:])))
        for chunk in chunks:
            target.write(unpadder.update(decryptor.update(chunk)))
        try:
            target.write(unpadder.update(decryptor.finalize()) + unpadder.finalize())
        except ValueError as error:  # no whole blocks, or no padding at the end of the last one
            raise ValueError(_UNREADABLE) from error

    def _cbc(self, iv: bytes) -> Any:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        return Cipher(algorithms.AES(self._key), modes.CBC(iv))


class RecordCipher:
    """Encrypts the images of records for a job with `recordEncrypted`, and opens them.

        cipher = RecordCipher(secret, salt)
        sealed = cipher.seal(Path("cat.jpg").read_bytes())
        queue.enqueue("cat", image=sealed)                                     # bytes, in either dialect
        queue.enqueue("cat", image={"b64": base64.b64encode(sealed).decode()})   # the same as text

    Args:
        secret: that of `recordSecret`.
        salt: that of `recordSalt`.

    Raises:
        ValueError: secret or salt is empty.
        ModuleNotFoundError: the package cryptography is not installed.
    """

    def __init__(self, secret: str, salt: str) -> None:
        key = _derive(secret, salt)
        with _needs_cryptography():
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        self._gcm = AESGCM(key)

    def seal(self, content: bytes) -> bytes:
        """The content encrypted: 28 bytes more."""
        iv = os.urandom(_IV_BYTES)
        return iv + self._gcm.encrypt(iv, content, None)

    def open(self, sealed: bytes) -> bytes:
        """The content of what `seal` gave, or of its base64, in which there may be line breaks.

        Raises:
            ValueError: it was sealed with another secret or salt, or was changed, or is no such thing.
        """
        from cryptography.exceptions import InvalidTag

        if _BASE64.fullmatch(sealed):
            sealed = _from_base64(sealed.translate(None, _WHITESPACE))
        if len(sealed) < _IV_BYTES + _TAG_BYTES:
            raise ValueError("it is not encrypted, or cut off")
        try:
            return self._gcm.decrypt(sealed[:_IV_BYTES], sealed[_IV_BYTES:], None)
        except InvalidTag as error:
            raise ValueError(f"it is not encrypted, or {_UNREADABLE.removeprefix('it ')}") from error


def looks_sealed(head: bytes) -> bool:
    """Whether a file that begins so is encrypted; `head` has `SEALED_HEAD_BYTES`, or what there is."""
    return _SEALED_HEAD.match(head) is not None


def _derive(secret: str, salt: str) -> bytes:
    if not secret or not salt:
        raise ValueError(f"the {'salt' if secret else 'secret'} is empty")
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), salt.encode(), _ITERATIONS, _KEY_BYTES)


def _decoded(source: BinaryIO) -> Iterator[bytes]:
    text = b""
    while chunk := source.read(_CHUNK_BYTES):
        text += chunk.translate(None, _WHITESPACE)
        whole = len(text) // 4 * 4
        yield _from_base64(text[:whole])
        text = text[whole:]
    if text:
        raise ValueError("it is cut off: the base64 ends in the middle")


def _from_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("it is not encrypted, or damaged: not base64 throughout") from error


@contextmanager
def _needs_cryptography() -> Generator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "encryption needs the package cryptography: pip install cryptography, or 'cluster-serving[node]' for a node",
            name=error.name,
        ) from error
