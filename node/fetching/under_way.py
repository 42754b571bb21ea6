"""A fetch in a thread of its own: the node serves meanwhile, and signals are acted on."""

import threading
from collections import deque
from collections.abc import Callable, Iterator

from cluster_serving.node.fetching.cache import Entry
from cluster_serving.node.fetching.fetch import Request, fetch
from cluster_serving.node.fetching.progress import GivenUp, Progress

_LOOK_S = 0.2


class UnderWay:
    """One fetch, begun when it is made."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._given_up = threading.Event()
        self._news: deque[str] = deque()
        self._entry: Entry | None = None
        self._error: Exception | None = None
        # A daemon: a node that is told to end does not wait for what is on its way.
        self._thread = threading.Thread(target=self._run, name="fetch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._entry = fetch(self._request, Progress(self._news.append, self._given_up))
            if self._given_up.is_set():
                self._entry.release()
        except Exception as error:  # told by `result`, in the thread that asked
            self._error = error

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return not self._thread.is_alive()

    def news(self) -> Iterator[str]:
        """What there is to tell since the last time."""
        while self._news:
            yield self._news.popleft()

    def result(self) -> Entry:
        """The model, once it is `done`.

        Raises:
            ModelFault: it cannot be had.
        """
        if self._entry is None:
            raise self._error or GivenUp
        return self._entry

    def wait(self, say: Callable[[str], None]) -> Entry:
        """Wait for the result, and say how it goes.

        Raises:
            ModelFault: it cannot be had.
        """
        try:
            while not self.done:
                self._thread.join(_LOOK_S)  # a signal is acted on in between
                for text in self.news():
                    say(text)
        except BaseException:
            self.give_up()
            raise
        for text in self.news():
            say(text)
        return self.result()

    def give_up(self) -> None:
        """It is not wanted any more; ends as soon as the next bytes come."""
        self._given_up.set()
        if self._entry is not None:
            self._entry.release()
