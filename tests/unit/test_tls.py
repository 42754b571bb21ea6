"""Certificates and keys from PEM and PKCS12 files."""

import os
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cluster_serving.frontend.config.tls import server_context, trusted_file
from support.certificates import PASSWORD, write_certificates


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of certificates, and of files that are none."""
    directory = tmp_path_factory.mktemp("tls")
    write_certificates(directory)
    (directory / "java.jks").write_bytes(bytes.fromhex("feedfeed00000002"))
    (directory / "old.keystore").write_bytes(b"whatever")
    (directory / "text.p12").write_bytes(b"neither")
    (directory / "empty.pem").write_bytes(b"-----BEGIN NOTHING-----\n")
    other = ec.generate_private_key(ec.SECP256R1())
    (directory / "other.pem").write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return directory


def open_files() -> set[str]:
    return {*os.listdir("/proc/self/fd")}  # noqa: PTH208 - names, and the directory is gone by then


def shake_hands(server: ssl.SSLContext, trusted: str) -> str | None:
    """The TLS version on which a client that trusts that file and a server agree."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with server.wrap_socket(theirs, server_side=True) as wrapped:
            wrapped.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ssl.create_default_context(cafile=trusted).wrap_socket(ours, server_hostname="localhost") as wrapped:
            version = wrapped.version()
            wrapped.send(b"x")
            return version
    finally:
        thread.join(120)


@pytest.mark.parametrize(
    ("store", "password", "key"),
    [("store.p12", PASSWORD, ""), ("cert.pem", None, "key.pem"), ("locked.pem", PASSWORD, "")],
)
@pytest.mark.parametrize("trust", ["cert.pem", "trust.p12", "store.p12"])
def test_every_form_of_one_certificate(files: Path, store: str, password: str | None, key: str, trust: str) -> None:
    trusted = trusted_file(str(files / trust), PASSWORD)
    context = server_context(str(files / store), password, str(files / key) if key else "")

    assert trusted is not None
    assert shake_hands(context, trusted) == "TLSv1.3"


def test_no_key_stays_open_and_none_is_on_a_disk(files: Path) -> None:
    before = open_files()

    server_context(str(files / "store.p12"), PASSWORD, "")

    assert open_files() <= before


def test_a_trust_store_is_opened_once(files: Path) -> None:
    assert trusted_file(str(files / "trust.p12"), PASSWORD) == trusted_file(str(files / "trust.p12"), PASSWORD)
    assert trusted_file("", None) is None


@pytest.mark.parametrize(
    ("store", "password", "key", "message"),
    [
        ("nope.p12", None, "", "nope.p12 cannot be read: No such file"),
        ("java.jks", None, "", "java.jks is a Java key store, .*keytool -importkeystore -srckeystore java.jks"),
        ("old.keystore", None, "", "old.keystore is a Java key store"),
        ("text.p12", None, "", "text.p12 is neither a PKCS12 nor a PEM file"),
        ("store.p12", None, "", "store.p12 needs a password"),
        ("store.p12", "wrong", "", "store.p12 needs another password"),
        ("trust.p12", PASSWORD, "", "trust.p12 holds no certificate with its key"),
        ("cert.pem", None, "", "cert.pem holds no key; name its file with httpsKeyPath"),
        ("cert.pem", None, "other.pem", "other.pem is not the key of the certificate"),
        ("cert.pem", None, "nope.pem", "nope.pem cannot be read: No such file"),
        ("locked.pem", None, "", "locked.pem has a key that needs another password"),
        ("locked.pem", "wrong", "", "locked.pem has a key that needs another password"),
        ("empty.pem", None, "key.pem", "cannot be used"),
    ],
)
def test_what_cannot_be_used_is_named(files: Path, store: str, password: str | None, key: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        server_context(str(files / store), password, str(files / key) if key else "")


@pytest.mark.parametrize(
    ("store", "password", "message"),
    [
        ("nope.pem", None, "nope.pem cannot be read"),
        ("java.jks", None, "Java key store"),
        ("trust.p12", "wrong", "needs another password"),
    ],
)
def test_a_trust_store_that_cannot_be_used_is_named(
    files: Path, store: str, password: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        trusted_file(str(files / store), password)
