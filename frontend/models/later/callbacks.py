"""Results posted to callbacks, at least once each.

    node                                    any frontend process
    finish.lua: all results are there  ──►  lease.lua: the call is mine for a while  ──►  post  ──►  settle.lua: done, or again

A process that dies leaves its leases to end, and other processes post the results. A host that hangs has one post under way in each
process, so that the results for other hosts do not wait.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import structlog
from sanic import HTTPResponse

from cluster_serving.client import keys
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.aio.tasks import cancel
from cluster_serving.client.errors import ClusterServingError
from cluster_serving.client.protocol.resp import Script
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.frontend.config.settings import FrontendConfig, signing_key
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.metrics.timers import Count, WorkerTimers
from cluster_serving.frontend.models.later.kept import Kept
from cluster_serving.frontend.models.later.target import Forbidden, Target
from cluster_serving.frontend.models.later.webhook import post, signed

log = structlog.get_logger(__name__)

Render = Callable[[Kept], HTTPResponse]
"""Makes the answer of a call that is done."""

_LEASE = Script(Path(__file__).with_name("lease.lua").read_text())
_SETTLE = Script(Path(__file__).with_name("settle.lua").read_text())
_LOOK_S = 0.1
_AT_ONCE = 256
_AT_ONCE_OF_HOST = 64
_HOST_IS_FULL_S = 1.0
_SILENT_S = 60.0
_LONGEST_PAUSE_S = 600.0
_TELL_S = 10.0


class Callbacks:
    """Posts the results of calls of one Redis, as one of many processes.

    Args:
        settings: settings of the Redis.
        config: settings of the frontend, with `callbackSecret`.
        timers: timers of this process.
        render: makes the answer of a call.
    """

    def __init__(self, settings: RedisSettings, config: FrontendConfig, timers: WorkerTimers, render: Render) -> None:
        self._link = AsyncLink(settings)
        self._key = signing_key(config.callback_secret.get_secret_value() if config.callback_secret else "")
        self._exempt = config.callback_hosts
        self._timeout_s = config.callback_timeout_s
        self._timers = timers
        self._render = render
        self._posting: set[asyncio.Task[None]] = set()
        self._of_host = Counter[bytes]()  # posts under way
        self._silent_until_s = dict[bytes, float]()  # of hosts that have let a post time out
        self._told_s: dict[str, float] = {}
        self._loop = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop. The results under way are posted again, by another process, when their leases have ended."""
        await cancel([self._loop, *self._posting])
        await self._link.close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                if room := _AT_ONCE - len(self._posting):
                    limits = round(3000 * self._timeout_s), room, _AT_ONCE_OF_HOST, round(1000 * _HOST_IS_FULL_S)
                    ends, leased = await self._link.run(_LEASE, [keys.CALLBACKS], [*limits, *self._places()])
                    for key, host in zip(leased[::2], leased[1::2], strict=True):
                        self._of_host[host] += 1
                        task = asyncio.create_task(self._post(key, host, ends))
                        self._posting.add(task)
                        task.add_done_callback(self._posting.discard)
            except Exception as error:  # nothing may end the posting
                self._tell("callbacks cannot be read from Redis", str(error))

    def _places(self) -> list[bytes | int]:
        """Return the hosts that have fewer places than others, each with the number of its places."""
        now_s = time.monotonic()
        self._of_host = +self._of_host
        self._silent_until_s = {host: until_s for host, until_s in self._silent_until_s.items() if until_s > now_s}
        most = dict.fromkeys(self._of_host, _AT_ONCE_OF_HOST) | dict.fromkeys(self._silent_until_s, 1)
        return [part for host, places in most.items() for part in (host, places - self._of_host[host])]

    async def _post(self, key: bytes, host: bytes, ends: bytes) -> None:
        try:
            (found,) = await self._link.call_checked(("HGETALL", key))
            kept = Kept.alone(key, dict(zip(found[::2], found[1::2], strict=True)))
            pause = b"" if kept is None else await self._attempt(kept, host)
            await self._link.run(_SETTLE, [keys.CALLBACKS, key], [ends, pause])
        except ClusterServingError as error:  # the lease ends, and the result is posted again
            self._tell("the outcome of a callback could not be noted", str(error))
        except Exception as error:  # one result must not end the posting of others
            log.error("a callback failed", exc_info=error)
        finally:
            self._of_host[host] -= 1

    async def _attempt(self, kept: Kept, host: bytes) -> bytes:
        """Post a result to a host. Return the milliseconds until the next attempt, or an empty text for none."""
        answer = self._render(kept)
        body = answer.body or b""
        headers = {
            **{name: value for name, value in answer.headers.items() if name.lower().startswith("inference-")},
            "Content-Type": str(answer.content_type),
            "Result-Status": str(answer.status),
            "Result-Location": kept.call.path,
            **signed(self._key, kept.message, int(time.time()), body),
        }
        try:
            status = await post(Target.parse(kept.callback, self._exempt), headers, body, self._timeout_s)
        except (Forbidden, BadRequest, UnicodeError) as error:  # UnicodeError: the name is none of DNS
            return self._failed(host, str(error), is_final=True, tried=kept.tried)
        except OSError as error:
            if isinstance(error, TimeoutError):
                self._silent_until_s[host] = time.monotonic() + _SILENT_S
            return self._failed(host, str(error) or type(error).__name__, is_final=False, tried=kept.tried)
        self._silent_until_s.pop(host, None)
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return self._failed(host, f"HTTP status {status}", is_final=status == HTTPStatus.GONE, tried=kept.tried)
        self._timers.count(Count.CALLBACKS)
        return b""

    def _failed(self, host: bytes, reason: str, *, is_final: bool, tried: int) -> bytes:
        self._timers.count(Count.CALLBACKS_FAILED)
        self._tell(
            "a callback is given up" if is_final else "a callback failed, and is tried again",
            reason,
            host=host.decode(),
        )
        pause_s = min(2.0 ** min(tried, 20), _LONGEST_PAUSE_S) * random.uniform(0.5, 1)  # noqa: S311 - no secret
        return b"" if is_final else b"%d" % (1000 * pause_s)

    def _tell(self, what: str, reason: str, **more: str) -> None:
        """Log a trouble, of each kind at most one in `_TELL_S`."""
        now_s = time.monotonic()
        if now_s - self._told_s.get(what, float("-inf")) >= _TELL_S:
            self._told_s[what] = now_s
            log.warning(what, reason=reason, **more)
