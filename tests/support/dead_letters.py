"""Dead letters of a test's own job, and the commands at it."""

import json
from collections import Counter
from collections.abc import Sequence

from click.testing import CliRunner, Result

from cluster_serving.client import keys
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.dead_letter import CUT, Reason
from cluster_serving.node.cli import main
from support.private_redis import PrivateRedis

DIED_MS = 1763657000000
MODEL = "sha256:0123456789abcdef"


class Letters:
    """Runs the commands at one job."""

    def __init__(self, server: PrivateRedis, job: str) -> None:
        self.server = server
        self.job = job
        self.redis = server.client()
        self._put: Counter[int] = Counter()
        self.where = ("--redis-url", server.url, "--job", job)

    def put(
        self,
        fields: Sequence[bytes],
        code: str = "WorkerDied",
        died_ms: int = DIED_MS,
        message: str = "it died",
        cut_bytes: int = 0,
    ) -> str:
        """A letter; of a record of `cut_bytes`, these fields are the first bytes."""
        reason = Reason(code, message, "Traceback: here", f"{died_ms - 1000}-0", "node-1", MODEL, died_ms, deliveries=2)
        cut = [CUT, b"%d" % cut_bytes] if cut_bytes else []
        entry = [keys.DEAD_LETTER, reason.encode(), *cut, *fields]
        added: bytes = self.redis.execute_command("XADD", keys.dead_key(self.job), self._next_id(died_ms), *entry)
        return added.decode()

    def _next_id(self, died_ms: int) -> str:
        # Redis 7 would take "<ms>-*", 6.2 does not.
        self._put[died_ms] += 1
        return f"{died_ms}-{self._put[died_ms] - 1}"

    def put_named(self, *names: str, code: str = "WorkerDied", died_ms: int = DIED_MS) -> list[str]:
        """Small letters with these uris."""
        return [self.put([b"uri", name.encode(), b"string:x", b'"text"'], code, died_ms) for name in names]

    def run(self, *words: str) -> Result:
        """A command."""
        return CliRunner().invoke(main, ["dead-letters", *words, *self.where], catch_exceptions=False)

    def listed(self, *words: str) -> list[str]:
        """The uris that `list` shows."""
        return [letter["uri"] for letter in json.loads(self.run("list", "--json", *words).stdout)["letters"]]

    def stream(self, job: str) -> list[list[bytes]]:
        """Return the entries in the stream of a job, each as `field, value, ...`."""
        link = Link(RedisSettings.parse(self.server.url))
        try:
            return [fields for _, fields in link.call("XRANGE", job, "-", "+")]
        finally:
            link.close()

    def uris(self, job: str) -> list[str]:
        """The names of the records in the stream of a job."""
        return [fields[1].decode() for fields in self.stream(job)]
