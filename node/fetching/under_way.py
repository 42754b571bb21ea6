"""Fetch in a thread of its own: meanwhile, the node serves and acts on signals."""

import threading
from collections import deque
from collections.abc import Callable, Iterator

from cluster_serving.node.fetching.cache import Entry
from cluster_serving.node.fetching.fetch import Request, fetch
from cluster_serving.node.fetching.progress import GivenUp, Progress

_LOOK_S = 0.2


class UnderWay:
    """Fetch in a thread, which the constructor starts."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._given_up = threading.Event()
        self._news: deque[str] = deque()
        self._entry: Entry | None = None
        self._error: Exception | None = None
        # A daemon thread: a node that is told to end does not wait for the fetch.
        self._thread = threading.Thread(target=self._run, name="fetch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._entry = fetch(self._request, Progress(self._news.append, self._given_up))
            if self._given_up.is_set():
                self._entry.release()
        except Exception as error:  # raised by `result`, in the thread of the caller
            self._error = error

    @property
    def done(self) -> bool:
        """True if the fetch has ended."""
        return not self._thread.is_alive()

    def news(self) -> Iterator[str]:
        """Yield the messages since the last call."""
        while self._news:
            yield self._news.popleft()

    def result(self) -> Entry:
        """Return the model. Call after the fetch is `done`.

        Raises:
            ModelFault: the model cannot be fetched.
        """
        if self._entry is None:
            raise self._error or GivenUp
        return self._entry

    def wait(self, say: Callable[[str], None]) -> Entry:
        """Wait for the result, and pass every message to `say`.

        Raises:
            ModelFault: the model cannot be fetched.
        """
        try:
            while not self.done:
                self._thread.join(_LOOK_S)  # signals are acted on in between
                for text in self.news():
                    say(text)
        except BaseException:
            self.give_up()
            raise
        for text in self.news():
            say(text)
        return self.result()

    def give_up(self) -> None:
        """Give up the fetch, which ends as soon as the next bytes come."""
        self._given_up.set()
        if self._entry is not None:
            self._entry.release()
