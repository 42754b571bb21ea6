"""An S3 server of a test's own: moto's, which speaks S3 over HTTP and keeps the objects in memory."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from support.wait import wait_until

# `-p 0` takes any free port; the log says which.
_COMMAND = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]


class S3Server:
    """One bucket, `models`; moto wants a signature, and looks at none."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._put("", b"")

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables that lead a client to this server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "key-of-test",
            "AWS_SECRET_ACCESS_KEY": "secret-of-test",
            "AWS_REGION": "us-east-1",
        }

    def put(self, key: str, content: bytes) -> None:
        """Store an object."""
        self._put(f"/{key}", content)

    def _put(self, path: str, content: bytes) -> None:
        headers = {"Content-Type": "application/octet-stream", "Authorization": "AWS key:signature"}
        request = Request(f"{self.url}/models{path}", content, headers, method="PUT")  # noqa: S310 - http
        with urlopen(request, timeout=30):  # noqa: S310 - http
            pass


@contextmanager
def s3_server(directory: Path) -> Generator[S3Server]:
    """A server for a block."""
    log = directory / "s3.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(_COMMAND, stdout=stream, stderr=stream)
    try:
        line = wait_until(
            lambda: [line for line in log.read_text().splitlines() if "Running on http" in line], "S3 runs"
        )
        yield S3Server(line[0].rpartition(" ")[2])
    finally:
        process.terminate()
        process.wait(120)
