"""One attempt to post a result, signed in the manner of Standard Webhooks.

    webhook-id: <id of the message>, equal in every attempt
    webhook-timestamp: <Unix time in s of the attempt>
    webhook-signature: v1,<base64 of HMAC-SHA256 over "<id>.<timestamp>.<body>">

Standard Webhooks: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
The request is written here, and not by a library: each library of HTTP resolves the host by itself, follows redirects or reads the
body of the answer.
"""

import asyncio
import base64
import hmac
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

from cluster_serving import __version__
from cluster_serving.frontend.models.later.target import Target

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
_MOST_LINE = 1 << 14
_MOST_LINES = 200


def signed(key: bytes, message: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a message.

    Args:
        key: signing key.
        message: id of the message.
        timestamp: Unix time in s.
        body: body of the request.
    """
    digest = hmac.digest(key, f"{message}.{timestamp}.".encode() + body, "sha256")
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": message, "webhook-timestamp": str(timestamp), "webhook-signature": signature}


async def post(target: Target, headers: Mapping[str, str], body: bytes, timeout_s: float) -> int:
    """Post a body, and return the HTTP status of the answer. Redirects are not followed, and the body of the answer is not read.

    Args:
        target: target of the callback.
        headers: headers of the request.
        body: body of the request.
        timeout_s: seconds until the answer, at most.

    Raises:
        Forbidden: the target has an address that is not public.
        OSError: the target cannot be reached, or does not answer in HTTP in time.
    """
    async with asyncio.timeout(timeout_s):
        failure: OSError = OSError("the host has no address")
        for address in await target.addresses():
            try:
                return await _post(target, address, headers, body)
            except OSError as error:
                failure = error
        raise failure


async def _post(target: Target, address: str, headers: Mapping[str, str], body: bytes) -> int:
    """Post to one address, which the connection uses as it is: no second look-up may lead elsewhere."""
    tls, name = (tls_context(), target.host) if target.is_tls else (None, None)
    reader, writer = await asyncio.open_connection(
        address, target.port, limit=_MOST_LINE, ssl=tls, server_hostname=name
    )
    try:
        head = {
            "Host": target.authority,
            "User-Agent": f"cluster-serving/{__version__}",
            "Content-Length": str(len(body)),
            "Connection": "close",
            **headers,
        }
        lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        writer.write("\r\n".join(lines).encode("latin-1") + body)
        with suppress(ConnectionError):  # the answer may have come before the end of the body
            await writer.drain()
        return await _status(reader)
    finally:
        writer.transport.abort()


async def _status(reader: asyncio.StreamReader) -> int:
    """Return the status of the answer, behind interim answers (1xx)."""
    status = 0
    for _ in range(_MOST_LINES):
        try:
            line = await reader.readuntil(b"\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise OSError("the answer is cut off or too long") from error
        if not status:
            found = _STATUS.match(line)
            if found is None:
                raise OSError("the answer is not HTTP")
            status = int(found[1])
        if status >= 200:
            return status
        if line in (b"\r\n", b"\n"):
            status = 0
    raise OSError("the answer has too many lines")


@cache
def tls_context() -> ssl.SSLContext:
    """Return the TLS context of all posts, with the authorities of the system."""
    return ssl.create_default_context()
