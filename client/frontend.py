"""Predictions over HTTP, for programs that were written for the original's frontend."""

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from cluster_serving.client.errors import CodecError, ConnectionLost, RecordFailed
from cluster_serving.client.http_reply import parse_prediction


class Frontend:
    """The HTTP frontend of a cluster; says on construction whether it can be reached."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        try:
            self._open(self._request(""), timeout=5).close()
            print("Attempt connecting to Cluster Serving frontend success")
        except (OSError, ValueError, HTTPException) as error:
            print(f"Connection error, please check your HTTP server. Error msg is  {error}")

    def predict(self, request: str | dict[str, Any], timeout: float) -> Any:
        """POST to `/predict`; the first prediction, parsed.

        Args:
            request: the JSON text of a request, or a dict of it.
            timeout: seconds.

        Raises:
            RecordFailed: the frontend answered with an error.
            ConnectionLost: it cannot be reached.
        """
        body = request if isinstance(request, str) else json.dumps(request)
        try:
            with self._open(self._request("/predict", body.encode()), timeout) as reply:
                first = str(json.load(reply)["predictions"][0])
        except urllib.error.HTTPError as error:
            with error:
                raise RecordFailed(f"HTTP {error.code}", error.read().decode(errors="replace"), self._url) from error
        except (OSError, HTTPException) as error:
            raise ConnectionLost(f"frontend at {self._url}: {error}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise CodecError(f"the frontend at {self._url} answered without predictions: {error!r}") from error
        return parse_prediction(first)

    def _request(self, path: str, body: bytes | None = None) -> urllib.request.Request:
        headers = {"Content-Type": "application/json"}
        return urllib.request.Request(self._url + path, data=body, headers=headers)  # noqa: S310 - the user's own URL

    def _open(self, request: urllib.request.Request, timeout: float) -> Any:
        return urllib.request.urlopen(request, timeout=timeout)  # noqa: S310 - the user's own URL


def perdict(frontend_url: str, request_str: str) -> Any:
    """`Frontend.predict` by the name that the original's programs call it by."""
    return Frontend(frontend_url).predict(request_str, timeout=5)
