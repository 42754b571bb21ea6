"""A certificate of a test's own, in every form that a frontend reads."""

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)

PASSWORD = "geheim-1234"  # noqa: S105 - of a test's own files


def write_certificates(directory: Path) -> None:
    """Write cert.pem and key.pem, locked.pem with both, store.p12 with both, trust.p12 with the certificate, for this machine.

    The key in locked.pem and both PKCS12 files want PASSWORD.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))]
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    locked = BestAvailableEncryption(PASSWORD.encode())
    certificate = made.public_bytes(Encoding.PEM)
    (directory / "cert.pem").write_bytes(certificate)
    (directory / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (directory / "locked.pem").write_bytes(certificate + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    (directory / "store.p12").write_bytes(serialize_key_and_certificates(b"s", key, made, None, locked))
    (directory / "trust.p12").write_bytes(serialize_java_truststore([PKCS12Certificate(made, b"ca")], locked))


def tls_of_redis(directory: Path, port: int) -> dict[str, str]:
    """Settings of a Redis or Sentinel that takes TLS on a port, with the certificates of a directory."""
    cert, key = (str(directory / name) for name in ("cert.pem", "key.pem"))
    files = {"tls-cert-file": cert, "tls-key-file": key, "tls-ca-cert-file": cert}
    return {"tls-port": str(port), **files, "tls-auth-clients": "no"}
