"""Calls of the queues for threads, with a check of every answer."""

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import Any

from cluster_serving.client.errors import ConnectionLost, QueueFull, RecordFailed
from cluster_serving.client.protocol.results import Failed, plain_or_error
from cluster_serving.client.threads.input_queue import InputQueue
from cluster_serving.client.threads.output_queue import OutputQueue
from cluster_serving.node.chaos.callers.kit import Kit
from cluster_serving.node.chaos.callers.tally import Tally

_MOST = 16  # records of a loop
_KEPT = 16
_TURN_S = 0.01
_SHOWN = 200

Loop = Callable[[], Iterator[None]]


class Checks:
    """Draws records, and compares their answers with the model's own.

    Attributes:
        random: source of all choices of the caller.
        tally: report of the caller.
    """

    def __init__(self, caller: str, kit: Kit) -> None:
        self.kit = kit
        self.random = Random(f"{caller} {kit.seed}")  # noqa: S311 - not for secrets
        self.tally = Tally()
        self._caller = caller
        self._numbers = count()

    def draw(self, most: int = _MOST) -> list[int]:
        """Return the samples of some records."""
        samples = self.random.choices(self.kit.good, k=self.random.randint(1, most))
        self.tally.records += len(samples)
        return samples

    def uri(self, sample: int) -> str:
        """Return a uri that no record has had, in any process, and that tells the sample."""
        return f"{self._caller}.{os.getpid()}.{next(self._numbers)}.{sample}"

    def check(self, sample: int, answer: Any) -> None:
        """Compare an answer with the model's own."""
        if isinstance(answer, RecordFailed | Failed):
            self.tally.failed.append(f"a good record failed: {answer.code}: {answer.reason}"[:_SHOWN])
        elif self.kit.answers.own(sample, answer):
            self.tally.right += 1
        else:
            self.tally.wrong.append(f"sample {sample}: {answer!r}"[:_SHOWN])

    @contextmanager
    def counted(self) -> Generator[None]:
        """Count the error that ends the block."""
        try:
            yield
        except (ConnectionLost, QueueFull) as error:
            name = type(error).__name__
            self.tally.refused[name] = self.tally.refused.get(name, 0) + 1
        except Exception as error:
            self.tally.failed.append(f"{type(error).__name__}: {error}"[:_SHOWN])


def sample_of(uri: str) -> int:
    """Return the sample that the uri of a caller's record tells."""
    return int(uri.rpartition(".")[2])


class Calls(Checks):
    """The calls, each as a loop: it checks one answer at a time, so that a caller may pause, stop or be interrupted in between.

    Attributes:
        source_pause_s: seconds that the source of requests pauses once in `predict_many`.
    """

    def __init__(self, caller: str, kit: Kit) -> None:
        super().__init__(caller, kit)
        self.source_pause_s = 0.0
        self.input = InputQueue(url=kit.url, name=kit.job)
        self.output = OutputQueue(url=kit.url, name=kit.job)
        self._kept: list[str] = []

    def any_loop(self) -> Iterator[None]:
        """Begin a loop over one of the calls."""
        return self.random.choice([self.predict, self.predict_many, self.as_completed, self.enqueue, self.query])()

    def whole_loop(self) -> None:
        """Go through a loop over one of the calls, and count the error that ends the loop."""
        with self.counted():
            for _ in self.any_loop():
                pass

    def predict(self) -> Iterator[None]:
        """Send one record after the other."""
        for sample in self.draw(4):
            self.check(sample, self.input.predict(self.kit.inputs[sample], timeout=self.kit.timeout_s))
            yield

    def predict_many(self) -> Iterator[None]:
        """Send records, and get the answers in order."""
        samples = self.draw()
        window = self.random.randint(1, _MOST)
        answers = self.input.predict_many(self._source(samples), timeout=self.kit.timeout_s, window=window)
        for sample, answer in zip(samples, answers, strict=True):
            self.check(sample, answer)
            yield

    def _source(self, samples: list[int]) -> Iterator[Any]:
        pause_at = self.random.randrange(len(samples)) if self.source_pause_s else -1
        for number, sample in enumerate(samples):
            if number == pause_at:
                time.sleep(self.source_pause_s)
            yield self.kit.inputs[sample]

    def as_completed(self) -> Iterator[None]:
        """Send records with uris, and get the results as they come."""
        missing = {self.uri(sample) for sample in self.draw()}
        records = [(uri, self.kit.inputs[sample_of(uri)]) for uri in sorted(missing)]
        window = self.random.randint(1, _MOST)
        for result in self.input.as_completed(records, timeout=self.kit.timeout_s, window=window):
            self.check(sample_of(result.uri), plain_or_error(result))
            missing.remove(result.uri)  # KeyError: a result that came twice
            yield
        if missing:
            raise LookupError(f"as_completed ended without {missing}")

    def enqueue(self) -> Iterator[None]:
        """Enqueue records, and take the results off the queue."""
        for uri in self._enqueued():
            self._await(uri)
            self.tally.left[uri] = False
            self.check(sample_of(uri), self.output.query_and_delete(uri))
            del self.tally.left[uri]
            yield

    def query(self) -> Iterator[None]:
        """Read results that stay in Redis, again and again."""
        if not self._kept:
            kept = self._enqueued()
            for uri in kept:
                self._await(uri)
            self._kept = kept
        for uri in self.random.choices(self._kept, k=_KEPT):
            self.tally.records += 1
            self.check(sample_of(uri), self.output.query(uri))
            yield

    def _enqueued(self) -> list[str]:
        """Enqueue records, and return their uris."""
        uris = [self.uri(sample) for sample in self.draw()]
        self.tally.left |= dict.fromkeys(uris, False)
        accepted = 0
        try:
            accepted = self.input.enqueue_many((uri, self.kit.inputs[sample_of(uri)]) for uri in uris)
        except (ConnectionLost, QueueFull) as error:
            accepted = error.accepted
            raise
        finally:
            self.tally.left |= dict.fromkeys(uris[:accepted], True)
        return uris

    def _await(self, uri: str) -> None:
        deadline_s = time.monotonic() + self.kit.timeout_s
        while isinstance(answer := self.output.query(uri), str) and answer == "[]":
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"no result of {uri}")
            time.sleep(_TURN_S)
