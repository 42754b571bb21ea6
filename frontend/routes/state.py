"""What one process of a frontend holds."""

from dataclasses import dataclass

from cluster_serving.frontend.config.api_keys import ApiKeys
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.metrics.timers import Timers, WorkerTimers
from cluster_serving.frontend.models.models import Models
from cluster_serving.frontend.models.token_bucket import TokenBucket


@dataclass(frozen=True)
class Frontend:
    """Found by handlers as `request.app.ctx.frontend`.

    Attributes:
        config: the settings.
        models: what can be called.
        timers: of this process.
        all_timers: of all processes.
        bucket: limits requests a second; None: nothing does.
        api_keys: who may call; None: everybody.
    """

    config: FrontendConfig
    models: Models
    timers: WorkerTimers
    all_timers: Timers
    bucket: TokenBucket | None
    api_keys: ApiKeys | None
