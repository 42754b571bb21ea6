"""HTTP frontend: its routes, and predictions for programs written for the original's frontend."""

import json
import urllib.error
import urllib.request
from functools import cache
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, NamedTuple, Self
from urllib.parse import urlsplit

from cluster_serving.client.calls_by_name import call_for
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
from cluster_serving.client.http.login import login
from cluster_serving.client.http.reply import parse_prediction
from cluster_serving.client.wire.current_trace import current_traceparent

_GRACE_S = 1.0
_LONGEST_S = 1e9  # 32 years: a socket takes 292 at most, and no infinity


class Reply(NamedTuple):
    """Answer of a route: the document in the body, and the header `Server-Timing`, which may be empty."""

    document: Any
    server_timing: str


class Frontend:
    """HTTP frontend of a cluster.

    Args:
        url: `http://…` or `https://…`. User and password in the URL are sent as HTTP Basic authentication, for a proxy.
        api_key: API key, where the frontend wants one.

    Raises:
        InvalidValue: from every call: the URL is none of `http://` or `https://`. Programs of the original make such queues.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._url, self._login = login(url.rstrip("/"), api_key)

    @classmethod
    def greeted(cls, url: str, api_key: str | None = None) -> Self:
        """Return the frontend at a URL, and print whether it can be reached."""
        frontend = cls(url, api_key)
        try:
            frontend._check()
            frontend._open(frontend._request(""), timeout=5).close()
            print("Attempt connecting to Cluster Serving frontend success")
        except (OSError, ValueError, HTTPException, InvalidValue) as error:
            print(f"Connection error, please check your HTTP server. Error msg is  {error}")
        return frontend

    def describe(self) -> str:
        """Return the URL for people and logs, without user and password."""
        scheme, separator, rest = self._url.rpartition("://")
        return f"{scheme}{separator}{rest.rpartition('@')[2]}"

    def predict(self, request: object, timeout: float) -> Any:
        """Post a request to `/predict` and return the first prediction, parsed.

        Args:
            request: the JSON text of a request, or the same as a dict.
            timeout: seconds.

        Raises:
            CodecError: the answer has no predictions.
            ClusterServingError: an error of `ask`.
        """
        return parse_prediction(self.prediction(self.ask("/predict", timeout, request)))

    def ask(self, path: str, timeout: float, request: object = None) -> Reply:
        """Get a path, or post a request to the path.

        Args:
            path: path of a route, quoted.
            timeout: seconds.
            request: the JSON text of a request, or the same as a dict. None: get.

        Raises:
            InvalidValue: JSON cannot hold the request, or HTTP the URL or the API key, or the frontend has moved.
            RecordFailed: the frontend refused the request, or the record failed.
            QueueFull: the queue has no room now.
            ResultTimeout: no result came in time.
            ConnectionLost: the frontend cannot be reached, its answer breaks off, or no node serves now.
            CodecError: the answer is not JSON.
        """
        self._check()
        try:
            text = request if isinstance(request, str | None) else json.dumps(request)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidValue(
                f"over HTTP, predict takes JSON text or the same as a dict, {{'instances': [{{'x': [1.0, 2.0]}}]}}: {error}"
            ) from error
        body = None if text is None else text.encode()
        within_s = min(float(timeout), _LONGEST_S)
        late = ResultTimeout(f"no answer of the frontend at {self.describe()} in {within_s:g} s")
        if not within_s > 0:
            raise late
        try:
            status, timing, answer = self._exchange(path, body, within_s)
        except TimeoutError as error:
            raise late from error
        except (OSError, HTTPException) as error:
            raise ConnectionLost(f"frontend at {self.describe()}: {getattr(error, 'reason', error)}") from error
        except ValueError as error:
            raise InvalidValue(f"the URL {self.describe()} or the API key cannot be sent: {error}") from error
        if not 200 <= status < 300:
            raise self._refusal(status, answer.decode(errors="replace"))
        try:
            return Reply(json.loads(answer), timing)
        except (ValueError, RecursionError) as error:
            raise CodecError(f"the frontend at {self.describe()} answered without JSON: {error!r}") from error

    def prediction(self, reply: Reply) -> str:
        """Return the first prediction in the answer of a route that predicts, for `parse_prediction`.

        Raises:
            CodecError: the answer has no predictions.
        """
        try:
            return str(reply.document["predictions"][0])
        except (LookupError, TypeError) as error:
            raise CodecError(f"the frontend at {self.describe()} answered without predictions: {error!r}") from error

    def _check(self) -> None:
        if not self._url.startswith(("http://", "https://")):
            raise InvalidValue(
                f"frontend_url begins with http:// or https://, not {self.describe()!r}; for Redis, write "
                f"{call_for('InputQueue', self._url)}"
            )

    def _exchange(self, path: str, body: bytes | None, timeout: float) -> tuple[int, str, bytes]:
        """Return the status, the header `Server-Timing` and the body of an answer."""
        # The frontend learns the timeout, so that no node runs an abandoned record. _GRACE_S is for the frontend's answer that
        # the time is over.
        try:
            reply = self._open(self._request(path, body, timeout), timeout + _GRACE_S)
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            return reply.code, reply.headers.get("Server-Timing", ""), reply.read()

    def _refusal(self, status: int, body: str) -> ClusterServingError:
        """Return the error for an HTTP status and body."""
        try:
            reason = str(json.loads(body)["error"])
        except (ValueError, LookupError, TypeError):
            reason = body  # a proxy, or the original: plain text
        match status:
            case 429:
                return QueueFull(f"frontend at {self.describe()}: {reason}")
            case 503:
                return Unavailable(f"frontend at {self.describe()}: {reason}")
            case 504:
                return ResultTimeout(f"frontend at {self.describe()}: {reason}")
            case _:
                return RecordFailed(f"HTTP {status}", reason, self._url)

    def _request(self, path: str, body: bytes | None = None, timeout: float | None = None) -> urllib.request.Request:
        headers = {"Content-Type": "application/json", **self._login}
        if timeout is not None:
            headers["X-Request-Timeout"] = f"{timeout:g}"
        if traceparent := current_traceparent():
            headers["traceparent"] = traceparent
        return urllib.request.Request(self._url + path, data=body, headers=headers)  # noqa: S310 - the user's own URL

    def _open(self, request: urllib.request.Request, timeout: float) -> Any:
        return _opener().open(request, timeout=timeout)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect of a GET within the frontend. Any other host would get the API key, and a POST would become a GET."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """Return the next request.

        Raises:
            InvalidValue: the redirect is not followed.
        """
        if req.get_method() == "GET" and urlsplit(req.full_url)[:2] == urlsplit(newurl)[:2]:
            return super().redirect_request(req, fp, code, msg, headers, newurl)
        fp.close()
        raise InvalidValue(f"the frontend redirects to {newurl} (HTTP {code}): give its URL there")


@cache
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_Redirects)


def perdict(frontend_url: str, request_str: str) -> Any:
    """Call `Frontend.predict` under the name that the original's programs use."""
    return Frontend.greeted(frontend_url).predict(request_str, timeout=5)
