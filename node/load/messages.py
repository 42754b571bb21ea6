"""Messages between a command and its sending processes: one line of JSON each.

    command ──Order──► standard input      standard output ──Tick, Tick, ...──► command

All times are seconds of the machine's monotonic clock, which all processes share.
"""

import msgspec

from cluster_serving.client.redis_settings import RedisSettings

OK = ""
"""Code of a request that was answered without an error."""


class QueueTarget(msgspec.Struct, frozen=True, tag="queue"):
    """Job, its Redis, and the records in wire format, without a uri."""

    redis: RedisSettings
    job: str
    records: list[list[bytes]]


class HttpTarget(msgspec.Struct, frozen=True, tag="http"):
    """Frontend, the path of a route that predicts, the API key, and the bodies of the requests, JSON."""

    url: str
    path: str
    api_key: str | None
    bodies: list[bytes]


class Order(msgspec.Struct, frozen=True):
    """Load of one sending process.

    Attributes:
        target: receiver of the requests.
        connections: most requests under way.
        rate: requests a second of an open loop, sent when they are due. 0: a closed loop, in which each answer lets the next
            request go.
        arrivals: `poisson` for the times of callers that know nothing of each other, or `fixed`.
        seed: seed of the times.
        timeout_s: seconds from when a request was due until no answer counts any more.
        life_s: seconds after which no node begins with a request any more.
    """

    target: QueueTarget | HttpTarget
    connections: int
    rate: float
    arrivals: str
    seed: int
    timeout_s: float
    life_s: float


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """Stages of one answer in milliseconds, and the number of rows in its batch. 0 rows: not told."""

    stages_ms: dict[str, float]
    rows: int = 0


class Tick(msgspec.Struct):
    """Answers of the last moments.

    Attributes:
        since_s: begin of the time of the tick.
        until_s: end of the time. Every answer that came before the end is in this tick or in an earlier tick.
        due_s: when each request was due, by the code of its outcome, float64 in the machine's own byte order.
        done_s: when its outcome was known, in the same order.
        samples: stages of some of the answers.
        busy: share of a core that the process used.
        late_s: longest time for which a request of an open loop was due and not sent yet.
        under_way: requests at the end that were sent and have no answer.
        unsent: requests at the end that were due and not sent.
        oldest_s: time since the oldest of both was due.
        messages: text of the first error of each code.
        error: error that ended the load, or an empty text.
        is_lost: True when `error` is a lost connection to Redis.
    """

    since_s: float
    until_s: float
    due_s: dict[str, bytes] = {}
    done_s: dict[str, bytes] = {}
    samples: list[Sample] = []
    busy: float = 0.0
    late_s: float = 0.0
    under_way: int = 0
    unsent: int = 0
    oldest_s: float = 0.0
    messages: dict[str, str] = {}
    error: str = ""
    is_lost: bool = False
