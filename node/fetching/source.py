"""Content of a URL: a file or archive, or on S3 also all the objects below a prefix.

obstore reads, retries and resumes: the `object_store` of Apache Arrow, https://docs.rs/object_store. The S3 client of obstore
reads the usual `AWS_*` variables. This module reads the file in `AWS_SHARED_CREDENTIALS_FILE`, for instance a Docker secret.
"""

import base64
import configparser
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from cluster_serving.node.fetching.errors import ChangedError, FetchError

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta
    from obstore.store import ClientConfig, RetryConfig, S3Config

_CHUNK_BYTES = 1 << 20
_RETRIES: "RetryConfig" = {
    "max_retries": 5,
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=5), "base": 2},
    "retry_timeout": timedelta(seconds=60),
}
_NO_TIME = datetime.fromtimestamp(0, UTC)
# Patterns for errors of obstore, which show the nested errors, the innermost last.
_STATUS = re.compile(r"status code: (\d{3} [A-Z][\w ]*)")
_S3_CODE = re.compile(r"<Code>(\w+)</Code>")
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")
_MESSAGE = re.compile(r'(?:message|error): "([^"]+)"')
_UNTRUSTED = "has a certificate that is not trusted here ({}); SSL_CERT_FILE may name a file of further authorities"


@dataclass(frozen=True)
class Part:
    """Object at a URL: path within the model, size, and version. An empty version: the server does not tell a version."""

    name: str
    size_bytes: int
    version: str
    _open: "Callable[[], GetResult]"

    def read(self) -> Iterator[memoryview]:
        """Yield the content in pieces.

        Raises:
            ChangedError: the server has another version than it had told.
            FetchError: the content cannot be read.
        """
        with _told():
            opened = self._open()
            if opened.meta["size"] != self.size_bytes or _version(opened.meta) != self.version:
                raise ChangedError
            for chunk in opened.stream(min_chunk_size=_CHUNK_BYTES):
                yield memoryview(chunk)


@dataclass(frozen=True)
class RemoteModel:
    """Content of a URL: a single part, or the parts of a `folder`, at least one part, sorted by name."""

    parts: list[Part]
    folder: bool = False

    @property
    def size_bytes(self) -> int:
        """Size of all parts."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def version(self) -> str:
        """Version, which changes with the content. Empty: the server does not tell a version."""
        if not self.folder:
            return self.parts[0].version
        return "\n".join(f"{part.name} {part.version}" for part in self.parts)


def find(url: str, environ: Mapping[str, str] = os.environ) -> RemoteModel:
    """Find the content of a URL.

    Raises:
        FetchError: there is no content, or the URL cannot be reached.
    """
    from obstore import get
    from obstore.store import HTTPStore

    with _told():
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        if scheme == "s3":
            return _find_on_s3(url, environ)
        login, at, host = parts.netloc.rpartition("@")
        # A redirect does not lead from https to http, and never to a different scheme.
        options = _client_options(scheme == "http")
        if at:
            # After a redirect to a different host, the header is not sent.
            basic = base64.b64encode(unquote(login).encode()).decode()
            options["default_headers"] = {"Authorization": f"Basic {basic}"}
        address = parts._replace(netloc=host, fragment="").geturl()
        store = HTTPStore(address, client_options=options, retry_config=_RETRIES)
        name = PurePosixPath(unquote(parts.path)).name or "model"
        # GET instead of HEAD, because a signed URL is valid for GET alone.
        return RemoteModel([_part(name, get(store, ""), lambda: get(store, ""))])


def _find_on_s3(url: str, environ: Mapping[str, str]) -> RemoteModel:
    from obstore import get
    from obstore import list as listing
    from obstore.store import S3Store

    parts = urlsplit(url)
    key = unquote(parts.path).lstrip("/")
    endpoint = next((environ[name] for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") if environ.get(name)), "")
    options = _client_options(endpoint.lower().startswith("http://"))
    store = S3Store(parts.netloc, config=_credentials(environ), client_options=options, retry_config=_RETRIES)
    if key and not key.endswith("/"):
        try:
            return RemoteModel([_part(PurePosixPath(key).name, get(store, key), lambda: get(store, key))])
        except FileNotFoundError:
            pass  # the key may be a prefix
    prefix = f"{key.rstrip('/')}/".lstrip("/")
    found = sorted((meta for batch in listing(store, prefix or None) for meta in batch), key=lambda meta: meta["path"])
    objects: list[Part] = []
    for meta in found:
        path = meta["path"]  # has no `..` and no empty steps, because obstore refuses both
        if not path.endswith("/"):
            objects.append(Part(path.removeprefix(prefix), meta["size"], _version(meta), partial(get, store, path)))
    if not objects:
        raise FetchError("is not there: there is no such object, and none below this prefix")
    return RemoteModel(objects, folder=True)


def _credentials(environ: Mapping[str, str]) -> "S3Config":
    """Read the file of credentials, if there is a file and the environment has no key. A section is a profile, as in the AWS CLI.

    Raises:
        FetchError: the file cannot be read, or lacks the profile.
    """
    path, profile = environ.get("AWS_SHARED_CREDENTIALS_FILE"), environ.get("AWS_PROFILE") or "default"
    if not path or environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(Path(path).read_text(encoding="utf-8"))
        section = parser[profile]
        config: S3Config = {
            "access_key_id": section["aws_access_key_id"],
            "secret_access_key": section["aws_secret_access_key"],
        }
    except (OSError, ValueError, KeyError, configparser.Error) as error:
        why = (
            f"has no complete profile {profile}"
            if isinstance(error, KeyError)
            else "is no readable file of credentials"
        )
        raise FetchError(f"cannot be read: AWS_SHARED_CREDENTIALS_FILE, {path}, {why}") from error
    if token := section.get("aws_session_token"):
        config["session_token"] = token
    return config


def _part(name: str, first: "GetResult", again: "Callable[[], GetResult]") -> Part:
    opened = [first]
    return Part(name, first.meta["size"], _version(first.meta), lambda: opened.pop() if opened else again())


def _version(meta: "ObjectMeta") -> str:
    # A list on S3 tells fractions of a second, and an object none.
    changed = meta["last_modified"].replace(microsecond=0)
    told = meta["e_tag"] or ("" if changed == _NO_TIME else changed.isoformat())
    return f"{told} {meta['size']}" if told else ""


def _client_options(allow_http: bool) -> "ClientConfig":
    # The overall timeout, 30 s by default, would end every long fetch.
    return {"allow_http": allow_http, "timeout": "7days", "read_timeout": "30s", "connect_timeout": "10s"}


@contextmanager
def _told() -> Generator[None]:
    """Turn errors of obstore into `FetchError`, with half a sentence as the message."""
    from obstore import exceptions

    try:
        yield
    except FileNotFoundError as error:
        raise FetchError("is not there (404)") from error
    except exceptions.PermissionDeniedError as error:
        raise FetchError("may not be read: access is denied (403)") from error
    except exceptions.UnauthenticatedError as error:
        raise FetchError("may not be read without the right user and password (401)") from error
    except (exceptions.BaseError, ValueError) as error:
        text = str(error)
        if "Content-Length Header missing" in text:
            reason = "cannot be fetched: the server does not tell how long it is (Content-Length)"
        elif "169.254.169.254" in text or "169.254.170.2" in text:
            reason = "cannot be read: there are no S3 credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        elif certificate := _CERTIFICATE.search(text):
            reason = _UNTRUSTED.format(certificate[1])
        elif status := _STATUS.search(text):
            code = _S3_CODE.search(text)
            reason = f"cannot be fetched: the server answers {status[1].strip()}{f' ({code[1]})' if code else ''}"
        elif messages := _MESSAGE.findall(text):
            reason = f"cannot be reached: {messages[-1]}"
        else:
            reason = f"cannot be fetched: {text.partition(chr(10))[0]}"
        raise FetchError(reason) from error
