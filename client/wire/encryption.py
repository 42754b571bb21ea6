"""Encryption of models and records with a secret and a salt, in the formats of the original.

    key      PBKDF2-HMAC-SHA256 of the secret, 65536 iterations, 128 bit, with secret and salt in UTF-8
    model    base64 of:  | iv 16 | AES-CBC of the file, padded as in PKCS 7 |
    record   | iv 12 | AES-GCM of the image | tag 16 |, or base64 of it

GCM authenticates: a record that opens is unchanged since it was sealed. CBC does not: a tampered model file may still open.
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
_IV_BYTES = 12  # of GCM. The IV of CBC is one block
_TAG_BYTES = 16
# A multiple of 3 and of 4, so that the base64 of a chunk continues the base64 of the chunk before.
_CHUNK_BYTES = 3 << 20
_WHITESPACE = b" \t\r\n"
_BASE64 = re.compile(rb"[A-Za-z0-9+/\s]{38,}={0,2}\s*")
# The shortest sealed file is an IV and one block: 44 characters of base64. No label or word is so long.
_SEALED_HEAD = re.compile(rb"[A-Za-z0-9+/]{43}[A-Za-z0-9+/=]")
SEALED_HEAD_BYTES = 44

_UNREADABLE = "it was encrypted with another secret or salt, or it is damaged"


class ModelCipher:
    """Encrypts and decrypts the files of a model.

    Args:
        secret: secret text, known only to readers of the model.
        salt: any text, the same to seal and to open.

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
        """Return the encrypted content, in base64 on one line."""
        sealed = io.BytesIO()
        self.seal_file(io.BytesIO(content), sealed)
        return sealed.getvalue()

    def open(self, sealed: bytes) -> bytes:
        """Return the content that `seal` encrypted. Line breaks in the base64 are allowed.

        Raises:
            ValueError: the text was sealed with another secret or salt, is damaged, or is not encrypted.
        """
        content = io.BytesIO()
        self.open_file(io.BytesIO(sealed), content)
        return content.getvalue()

    def seal_file(self, source: BinaryIO, target: BinaryIO) -> None:
        """Encrypt a file of any size as `seal` does: read `source` to its end and write to `target`."""
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
        """Decrypt a file of any size as `open` does: read `source` to its end and write to `target`.

        Raises:
            ValueError: as for `open`. `target` then holds the content up to the fault.
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
        except ValueError as error:  # a partial block, or no padding at the end of the last block
            raise ValueError(_UNREADABLE) from error

    def _cbc(self, iv: bytes) -> Any:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        return Cipher(algorithms.AES(self._key), modes.CBC(iv))


class RecordCipher:
    """Encrypts and decrypts the images of records, for a job with `recordEncrypted`.

        cipher = RecordCipher(secret, salt)
        sealed = cipher.seal(Path("cat.jpg").read_bytes())
        queue.enqueue("cat", image=sealed)                                     # bytes, in either dialect
        queue.enqueue("cat", image={"b64": base64.b64encode(sealed).decode()})   # as text

    Args:
        secret: value of `recordSecret`.
        salt: value of `recordSalt`.

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
        """Return the encrypted content, 28 bytes longer than the content."""
        iv = os.urandom(_IV_BYTES)
        return iv + self._gcm.encrypt(iv, content, None)

    def open(self, sealed: bytes) -> bytes:
        """Return the content that `seal` encrypted, from the sealed bytes or from their base64, with or without line breaks.

        Raises:
            ValueError: the bytes were sealed with another secret or salt, were changed, or are not encrypted.
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
    """Return whether a file is encrypted. `head` is its first `SEALED_HEAD_BYTES` bytes, or the whole of a shorter file."""
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
        from cluster_serving.client.extras import install_command

        raise ModuleNotFoundError(
            f"encryption needs the package cryptography: pip install cryptography, or for a node: {install_command('node')}",
            name=error.name,
        ) from error
