"""State of one process of a frontend."""

from dataclasses import dataclass

from cluster_serving.frontend.config.api_keys import ApiKeys
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.metrics.timers import Timers, WorkerTimers
from cluster_serving.frontend.models.models import Models
from cluster_serving.frontend.models.token_bucket import TokenBucket


@dataclass(frozen=True)
class Frontend:
    """State of one process, found by handlers as `request.app.ctx.frontend`.

    Attributes:
        config: settings of the frontend.
        models: models that can be called.
        timers: timers of this process.
        all_timers: timers of all processes.
        bucket: token bucket that limits requests per second. None: no limit.
        api_keys: keys that may call. None: everybody may call.
    """

    config: FrontendConfig
    models: Models
    timers: WorkerTimers
    all_timers: Timers
    bucket: TokenBucket | None
    api_keys: ApiKeys | None
