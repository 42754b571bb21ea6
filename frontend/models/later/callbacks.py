"""Results posted to callbacks, at least once each.

    node                                    any frontend process
    finish.lua: all results are there  ──►  lease.lua: the call is mine for a while  ──►  post  ──►  settle.lua: done, or again

A process that dies leaves its leases to end, and other processes post the results.
"""

import asyncio
import random
import time
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
                    ends, due = await self._link.run(_LEASE, [keys.CALLBACKS], [round(3000 * self._timeout_s), room])
                    for key in due:
                        task = asyncio.create_task(self._post(key, ends))
                        self._posting.add(task)
                        task.add_done_callback(self._posting.discard)
            except Exception as error:  # nothing may end the posting
                self._tell("callbacks cannot be read from Redis", str(error))

    async def _post(self, key: bytes, ends: bytes) -> None:
        try:
            (found,) = await self._link.call_checked(("HGETALL", key))
            kept = Kept.alone(key, dict(zip(found[::2], found[1::2], strict=True)))
            pause = b"" if kept is None else await self._attempt(kept)
            await self._link.run(_SETTLE, [keys.CALLBACKS, key], [ends, pause])
        except ClusterServingError as error:  # the lease ends, and the result is posted again
            self._tell("the outcome of a callback could not be noted", str(error))
        except Exception as error:  # one result must not end the posting of others
            log.error("a callback failed", exc_info=error)

    async def _attempt(self, kept: Kept) -> bytes:
        """Post a result. Return the milliseconds until the next attempt, or an empty text for none."""
        answer = self._render(kept)
        body = answer.body or b""
        headers = {
            **{name: value for name, value in answer.headers.items() if name.lower().startswith("inference-")},
            "Content-Type": str(answer.content_type),
            "Result-Status": str(answer.status),
            "Result-Location": kept.call.path,
            **signed(self._key, kept.message, int(time.time()), body),
        }
        host = ""
        try:
            target = Target.parse(kept.callback, self._exempt)
            host = target.host
            status = await post(target, headers, body, self._timeout_s)
        except (Forbidden, BadRequest, UnicodeError) as error:  # UnicodeError: the name is none of DNS
            return self._failed(host, str(error), is_final=True, tried=kept.tried)
        except OSError as error:  # TimeoutError is one
            return self._failed(host, str(error) or type(error).__name__, is_final=False, tried=kept.tried)
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return self._failed(host, f"HTTP status {status}", is_final=status == HTTPStatus.GONE, tried=kept.tried)
        self._timers.count(Count.CALLBACKS)
        return b""

    def _failed(self, host: str, reason: str, *, is_final: bool, tried: int) -> bytes:
        self._timers.count(Count.CALLBACKS_FAILED)
        self._tell("a callback is given up" if is_final else "a callback failed, and is tried again", reason, host=host)
        pause_s = min(2.0 ** min(tried, 20), _LONGEST_PAUSE_S) * random.uniform(0.5, 1)  # noqa: S311 - no secret
        return b"" if is_final else b"%d" % (1000 * pause_s)

    def _tell(self, what: str, reason: str, **more: str) -> None:
        """Log a trouble, of each kind at most one in `_TELL_S`."""
        now_s = time.monotonic()
        if now_s - self._told_s.get(what, float("-inf")) >= _TELL_S:
            self._told_s[what] = now_s
            log.warning(what, reason=reason, **more)
