"""Certificates and keys: PEM files, and PKCS12 files as in the original.

OpenSSL reads certificates and keys from files only. The content of a PKCS12 file is put into a file in memory (memfd) that no
other process can open, so a key is never written to a disk without its password.
"""

import os
import ssl
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

_JKS_MAGIC = bytes.fromhex("feedfeed")
_JKS_SUFFIXES = {".jks", ".keystore"}
_PEM_MARK = b"-----BEGIN "


def server_context(store: str, password: str | None, key: str) -> ssl.SSLContext:
    """Return the TLS context of an HTTPS listener.

    Args:
        store: file of certificate, chain and key: PKCS12 or PEM.
        password: password of the PKCS12 file, or of an encrypted PEM key.
        key: PEM file of the key, or empty if `store` holds the key.

    Raises:
        ValueError: a file cannot be used. The message begins with the file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    content = _read(store)
    # The empty password keeps OpenSSL from asking on a terminal: an encrypted key without a password is an error.
    secret = password or ""
    if _PEM_MARK in content:
        try:
            context.load_cert_chain(store, key or None, secret)
        except (ssl.SSLError, OSError) as error:
            raise ValueError(f"{key or store} {_pem_fault(content, key, error)}") from None
        return context
    bundle = _open(store, content, password)
    if bundle.key is None or bundle.cert is None:
        raise ValueError(f"{store} holds no certificate with its key")
    chain = [bundle.cert, *bundle.additional_certs]
    pem = bundle.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    descriptor = _in_memory(pem + b"".join(each.certificate.public_bytes(Encoding.PEM) for each in chain))
    try:
        context.load_cert_chain(_path_of(descriptor))
    finally:
        os.close(descriptor)
    return context


@cache
def trusted_file(store: str, password: str | None) -> str | None:
    """Return a PEM file of the certificates in a trust store, or None without a store.

    Args:
        store: PEM file, returned as is, or PKCS12 file, whose certificates go into a file in memory for the life of this
            process.
        password: password of the PKCS12 file.

    Raises:
        ValueError: the store cannot be used. The message begins with the file.
    """
    if not store:
        return None
    content = _read(store)
    if _PEM_MARK in content:
        return store
    bundle = _open(store, content, password)
    trusted = [*([bundle.cert] if bundle.cert else []), *bundle.additional_certs]
    if not trusted:
        raise ValueError(f"{store} holds no certificate")
    return _path_of(_in_memory(b"".join(each.certificate.public_bytes(Encoding.PEM) for each in trusted)))


def _read(store: str) -> bytes:
    path = Path(store)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{store} cannot be read: {error.strerror}") from None
    if content.startswith(_JKS_MAGIC) or (path.suffix.lower() in _JKS_SUFFIXES and not content.startswith(b"\x30")):
        raise ValueError(
            f"{store} is a Java key store, which cannot be read; convert it: keytool -importkeystore -srckeystore {path.name} "
            f"-destkeystore {path.stem}.p12 -deststoretype PKCS12"
        )
    return content


def _open(store: str, content: bytes, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(content, password.encode() if password else None)
    except ValueError as error:
        if "password" not in str(error).lower():
            raise ValueError(f"{store} is neither a PKCS12 nor a PEM file") from None
        wrong = "needs another password" if password else "needs a password"
        raise ValueError(f"{store} {wrong}") from None


def _pem_fault(certificate: bytes, key: str, error: OSError) -> str:
    """Describe the fault of a PEM file. OpenSSL's own text names a place in OpenSSL's code."""
    text = str(error)
    if error.filename is not None or isinstance(error, FileNotFoundError):
        return f"cannot be read: {error.strerror}"
    if "MISMATCH" in text:
        return "is not the key of the certificate"
    if not key and b"PRIVATE KEY-----" not in certificate:
        return "holds no key; name its file with httpsKeyPath"
    if "DECRYPT" in text.upper() or "PASSWORD" in text.upper() or b"ENCRYPTED" in certificate:
        return "has a key that needs another password (httpsKeyStoreToken)"
    return f"cannot be used: {getattr(error, 'reason', None) or text}"


def _in_memory(content: bytes) -> int:
    descriptor = os.memfd_create("certificates")
    os.write(descriptor, content)
    return descriptor


def _path_of(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"
