"""Predictions over HTTP, for programs written for the original's frontend."""

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from cluster_serving.client.errors import (
    ClusterServingError,
    CodecError,
    ConnectionLost,
    InvalidValue,
    QueueFull,
    RecordFailed,
    ResultTimeout,
    Unavailable,
)
from cluster_serving.client.http.reply import parse_prediction

_GRACE_S = 1.0


class Frontend:
    """HTTP frontend of a cluster. The constructor prints whether the frontend can be reached.

    Raises:
        InvalidValue: from `predict`: the URL is none of `http://` or `https://`. Programs of the original make such queues.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        try:
            self._check()
            self._open(self._request(""), timeout=5).close()
            print("Attempt connecting to Cluster Serving frontend success")
        except (OSError, ValueError, HTTPException, InvalidValue) as error:
            print(f"Connection error, please check your HTTP server. Error msg is  {error}")

    def predict(self, request: str | dict[str, Any], timeout: float) -> Any:
        """Post a request to `/predict` and return the first prediction, parsed.

        Args:
            request: the JSON text of a request, or the same as a dict.
            timeout: seconds.

        Raises:
            InvalidValue: JSON cannot hold the request.
            RecordFailed: the frontend refused the request, or the record failed.
            QueueFull: the queue has no room now.
            ResultTimeout: no result came in time.
            ConnectionLost: the frontend cannot be reached, or no node serves now.
        """
        self._check()
        try:
            body = request if isinstance(request, str) else json.dumps(request)
        except (TypeError, ValueError) as error:
            raise InvalidValue(
                f"over HTTP, predict takes JSON text or the same as a dict, {{'instances': [{{'x': [1.0, 2.0]}}]}}: {error}"
            ) from error
        try:
            # The frontend learns the timeout, so that no node runs an abandoned record. _GRACE_S is for the frontend's
            # answer that the time is over.
            with self._open(self._request("/predict", body.encode(), timeout), timeout + _GRACE_S) as reply:
                first = str(json.load(reply)["predictions"][0])
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error.code, error.read().decode(errors="replace")) from error
        except TimeoutError as error:
            raise ResultTimeout(f"no answer of the frontend at {self._url} in {timeout:g} s") from error
        except (OSError, HTTPException) as error:
            raise ConnectionLost(f"frontend at {self._url}: {error}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise CodecError(f"the frontend at {self._url} answered without predictions: {error!r}") from error
        return parse_prediction(first)

    def _check(self) -> None:
        if not self._url.startswith(("http://", "https://")):
            shown = self._url.rpartition("@")[2]  # a URL of Redis may have a password
            raise InvalidValue(
                f"frontend_url begins with http:// or https://, not {shown!r}; for Redis, say host= and port=, or url="
            )

    def _refusal(self, status: int, body: str) -> ClusterServingError:
        """Return the error for an HTTP status and body."""
        try:
            reason = str(json.loads(body)["error"])
        except (ValueError, LookupError, TypeError):
            reason = body  # a proxy, or the original: plain text
        match status:
            case 429:
                return QueueFull(f"frontend at {self._url}: {reason}")
            case 503:
                return Unavailable(f"frontend at {self._url}: {reason}")
            case 504:
                return ResultTimeout(f"frontend at {self._url}: {reason}")
            case _:
                return RecordFailed(f"HTTP {status}", reason, self._url)

    def _request(self, path: str, body: bytes | None = None, timeout: float | None = None) -> urllib.request.Request:
        headers = {"Content-Type": "application/json"}
        if timeout is not None:
            headers["X-Request-Timeout"] = f"{timeout:g}"
        return urllib.request.Request(self._url + path, data=body, headers=headers)  # noqa: S310 - the user's own URL

    def _open(self, request: urllib.request.Request, timeout: float) -> Any:
        return urllib.request.urlopen(request, timeout=timeout)  # noqa: S310 - the user's own URL


def perdict(frontend_url: str, request_str: str) -> Any:
    """Call `Frontend.predict` under the name that the original's programs use."""
    return Frontend(frontend_url).predict(request_str, timeout=5)
