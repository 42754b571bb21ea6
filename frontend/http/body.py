"""The body of a request: decompressed, and read in a thread beside the event loop if the reading takes long."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sanic import Request

from cluster_serving.frontend.http.compression import inflate
from cluster_serving.frontend.http.errors import UnsupportedMediaType

Read = TypeVar("Read")

_LARGE_BYTES = 1 << 20
# One thread: other requests are answered meanwhile, and no two of the largest bodies are in memory as objects at a time.
_reading = ThreadPoolExecutor(1, "large-bodies")


async def read(request: Request, most: int, reader: Callable[[bytes], Read]) -> Read:
    """Return the result of a reader for the body of a request.

    Args:
        request: request with the body.
        most: largest size of the decompressed body, in bytes.
        reader: called with the body, in another thread if the body is large or compressed. 100 MB of JSON then stop the event
            loop for the 0.3 s of the parser, instead of 0.6 s.

    Raises:
        PayloadTooLarge: the decompressed body has more than `most` bytes.
        BadRequest: the compression is damaged.
        UnsupportedMediaType: the compression is neither gzip nor deflate.
    """
    body, told = request.body, request.headers.get("content-encoding")
    encoding = told.strip().lower() if told else ""
    if encoding not in ("", "identity"):
        return await _beside(lambda: reader(inflate(body, encoding, most)))
    return reader(body) if len(body) < _LARGE_BYTES else await _beside(lambda: reader(body))


def check_no_file(request: Request, model: str) -> None:
    """Check that the body of a request for JSON is neither an image nor a form by its content type. curl says neither JSON.

    Raises:
        UnsupportedMediaType: the body is an image or a form. The message names the path for the body.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].lower()
    if kind.startswith(("image/", "multipart/")):
        raise UnsupportedMediaType(f"a body of {kind[:40]} goes to /predict/{model}; here JSON is wanted")


async def _beside(work: Callable[[], Read]) -> Read:
    return await asyncio.get_running_loop().run_in_executor(_reading, work)
