"""Conversion of config texts to values (sizes, image sizes, paths), and masking of passwords in URLs."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from urllib.parse import parse_qsl, unquote, urlsplit

_SIZE = re.compile(r"(\d{1,18}(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_SEPARATOR = re.compile(r",(?![^\[]*\])")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_JKS_MAGIC = bytes.fromhex("feedfeed")
_PEM_MARK = b"-----BEGIN "
_SIGNATURE_LENGTH = 16  # a shorter value in a query is no secret, but a common word in logs
_PARAMETERS = re.compile(r"\?(?!db=\d+$).+")
# Also with a / that is not encoded.
_LIKE_LOGIN = re.compile(r"(?!unix://)(?P<before>(?:[^/@]*://)?[^@:]*):(?!//).*@(?P<after>.*)")
_LOGIN = re.compile(r"(?P<before>(?:[^/@]*://)?[^/@:]*):(?P<password>[^/]*)@(?P<after>.*)")


def parse_size(value: object) -> int:
    """Return the bytes of `4g`, `64m`, `512 KiB` or `1024`. k, m, g, t are powers of 1024 as in Redis and the JVM.

    Raises:
        ValueError: the value is not a size.
    """
    match = _SIZE.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool):
        raise ValueError("must be a size such as 64m, 4g or a number of bytes")
    return int(float(match[1]) * 1024 ** _POWERS[match[2].lower()])


def parse_share(value: object) -> object:
    """Return a share: 0.01 for `1%`. Any other value is returned as it is."""
    text = str(value).strip()
    try:
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else value
    except ValueError as error:
        raise ValueError("must be a share such as 0.01 or 1%") from error


def parse_digits(value: object) -> object:
    """Return the number that a text of digits stands for. Any other value stays, for a field with a few allowed numbers."""
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else value


def parse_pair(value: object) -> tuple[int, int] | None:
    """Return the two numbers of `227,227` (or of a list) in the order written, or None for an empty text.

    Raises:
        ValueError: the value is not two positive whole numbers.
    """
    if value is None or value == "":
        return None
    parts: list[object] = list(value) if isinstance(value, list | tuple) else list(str(value).split(","))
    try:
        numbers = [int(str(part)) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) != 2 or min(numbers) < 1:
        raise ValueError("Image dim must be 2: give height,width in pixels, such as 227,227")
    return numbers[0], numbers[1]


def parse_words(value: object) -> tuple[str, ...]:
    """Return the parts of `a, b` or of a list.

    A comma between brackets does not separate, so that a part may be `a float32 [N,3]`.

    Raises:
        ValueError: an item of the list is empty.
    """
    if isinstance(value, list | tuple):
        if any(part in (None, "") for part in value):
            raise ValueError("must be a list without empty items")
        return tuple(str(part) for part in value)
    return tuple(part.strip() for part in _SEPARATOR.split(str(value or "")) if part.strip())


def parse_numbers(value: object) -> tuple[float, ...]:
    """Return the numbers of `104, 117.5`, of one number, or of a list.

    Raises:
        ValueError: a part is not a number.
    """
    try:
        return tuple(float(part) for part in parse_words(value))
    except ValueError as error:
        raise ValueError("must be numbers, such as 104, 117, 123") from error


def parse_fills(value: object) -> object:
    """Return the numbers by name of `ids=0, mask=0` or `{ids: 0, mask: 0}`. A mapping stays as it is.

    Raises:
        ValueError: a part is not a name with a number, or a name has two.
    """
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    parts = [re.split(r"[=:](?=[^=:]*$)", part) for part in parse_words(str(value or "").strip("{} "))]
    try:
        fills = {name.strip(): float(fill) for name, fill in parts}
    except ValueError as error:
        raise ValueError("must be a number by name, such as ids=0, mask=0") from error
    if len(fills) < len(parts):
        raise ValueError("must have one number by name, and a name has two")
    return fills


def local_path(text: str, base: Path) -> str:
    """Return the absolute path of a local file or directory. A relative path starts at `base`.

    `file://` and `file://localhost` are removed.

    Raises:
        ValueError: the text is a URL of another scheme.
    """
    scheme, separator, rest = text.partition("://")
    if separator and scheme != "file":
        raise ValueError(f"must be a local path; copy what {scheme}:// holds to this machine first")
    rest = unquote(rest.removeprefix("localhost") if rest.startswith("localhost/") else rest) if separator else text
    # Unlike Path.expanduser, os.path.expanduser leaves the ~name of an unknown user as it is, as a shell does.
    return str(base / os.path.expanduser(rest)) if rest else ""  # noqa: PTH111


def check_pem(path: str) -> None:
    """Check that a trust store, a certificate or a key is a PEM file, the only kind that this version reads.

    Raises:
        ValueError: the file is missing, or of another kind.
    """
    file = Path(path)
    try:
        head = file.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    if file.suffix.lower() in {".jks", ".keystore"} or head.startswith(_JKS_MAGIC):
        raise ValueError(
            "is a Java key store, which is not supported; export its certificate as PEM (keytool -exportcert -rfc)"
        )
    if _PEM_MARK not in head:
        raise ValueError("is not a PEM file; convert it, for instance with openssl pkcs12 -nokeys")


def mask_url(url: str) -> str:
    """Return a URL of Redis with `***` for the password, and for parameters other than `db`, which may hold one."""
    match = _LIKE_LOGIN.fullmatch(url)
    shown = f"{match['before']}:***@{match['after']}" if match else url
    return _PARAMETERS.sub("?***", shown)


def is_remote(text: str) -> bool:
    """Return whether a path is a URL to fetch from."""
    return text.partition("://")[0].lower() in {"http", "https", "s3"} and "://" in text


def has_host(url: str) -> bool:
    """Return whether a URL names a host. False also for an invalid port."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def mask_address(text: str) -> str:
    """Return a path unchanged, or a URL without its secrets: user, password, and query (for signed URLs)."""
    scheme, separator, _ = text.partition("://")
    if not separator or scheme == "file":
        return text
    if not has_host(text):
        return f"{scheme}://***"  # the end of a password that is not encoded is unknown
    parts = urlsplit(text)
    _, at, host = parts.netloc.rpartition("@")
    return parts._replace(
        netloc=f"***@{host}" if at else host, query="***" if parts.query else "", fragment=""
    ).geturl()


def secrets_of_address(text: str) -> Iterator[str]:
    """Yield the secrets that `mask_address` hides, in the forms that may stand alone in a text."""
    if not is_remote(text) or not has_host(text):
        return
    parts = urlsplit(text)
    login = parts.netloc.rpartition("@")[0]
    yield from (login, unquote(login), unquote(login.rpartition(":")[2]))
    yield from (value for _, value in parse_qsl(parts.query) if len(value) >= _SIGNATURE_LENGTH)


def split_password(url: str) -> tuple[str, str | None]:
    """Return a URL without its password, and the password or None."""
    match = _LOGIN.fullmatch(url.strip())
    if match is None:
        return url, None
    before, password = match["before"], unquote(match["password"])
    user = before if not before or before.endswith("://") else f"{before}@"
    return f"{user}{match['after']}", password or None


def check_port(url: str) -> None:
    """Check that the ports of a Redis URL are in range.

    Raises:
        ValueError: a port is out of range.
    """
    parts = urlsplit(url if "://" in url else f"redis://{url}")
    if "@" in parts.path:
        return  # a password with a slash: the apparent port may be a part of the password
    for host in parts.netloc.rpartition("@")[2].split(","):
        _, colon, port = host.rpartition(":")
        if colon and port.isdecimal() and not 1 <= int(port) <= 65_535:
            raise ValueError(f"the port must be from 1 to 65535, not {port}")
