"""The application: its routes, and the start and end of each process."""

import asyncio
from typing import Any

from sanic import Sanic

from cluster_serving.frontend.config.api_keys import ApiKeys
from cluster_serving.frontend.config.servables import read_servables
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.dashboard.history import Recorder
from cluster_serving.frontend.http import cors
from cluster_serving.frontend.http.application import Application
from cluster_serving.frontend.metrics.timers import Timers, WorkerTimers
from cluster_serving.frontend.metrics.use_reports import UseReporter
from cluster_serving.frontend.models.limits import bucket_of
from cluster_serving.frontend.models.models import Models
from cluster_serving.frontend.routes import dashboard, docs, health, metrics, models, predict, results, secure, v1, v2
from cluster_serving.frontend.routes.errors import add_error_handlers
from cluster_serving.frontend.routes.state import Frontend

_FLUSH_S = 0.25
_APIS = (predict, models, results, secure, v1, v2, health, metrics, docs)


def create_app(config: FrontendConfig, timers: Timers, process: int = 0) -> Sanic[Any, Any]:
    """Return the application of one process.

    Args:
        config: settings of the frontend.
        timers: timers of all processes.
        process: number of the process, from 0.
    """
    app = Application("cluster-serving", configure_logging=False, env_prefix="CLUSTER_SERVING_SANIC_")
    app.config.FALLBACK_ERROR_FORMAT = "json"
    for api in (*_APIS, dashboard) if config.dashboard else _APIS:
        api.routes.add(app)
    add_error_handlers(app)
    if config.cors_origins:
        cors.add(app, config.cors_origins)

    async def begin(app: Sanic[Any, Any]) -> None:
        path = config.servable_manager_conf_path
        servables = read_servables(path, config.redis_settings()) if path else []
        own = timers.of(process)
        frontend = app.ctx.frontend = Frontend(
            config=config,
            models=Models(config, servables, own),
            timers=own,
            all_timers=timers,
            bucket=bucket_of(config, config),
            api_keys=ApiKeys(config.api_keys_file) if config.api_keys_file else None,
        )
        await frontend.models.start()
        frontend.models.call_back(results.answer)
        reporter = UseReporter(frontend.models.link, config.job_name, process, own)
        app.ctx.tasks = [asyncio.create_task(flush(own)), asyncio.create_task(reporter.run())]
        if config.dashboard:
            app.ctx.tasks.append(asyncio.create_task(Recorder(frontend.models).run()))

    async def flush(timers: WorkerTimers) -> None:
        while True:
            await asyncio.sleep(_FLUSH_S)
            timers.flush()

    async def end_waits(app: Sanic[Any, Any]) -> None:
        app.ctx.frontend.models.end_waits()

    async def end(app: Sanic[Any, Any]) -> None:
        for task in app.ctx.tasks:
            task.cancel()
        app.ctx.frontend.timers.flush()
        await app.ctx.frontend.models.close()

    app.before_server_start(begin)
    app.before_server_stop(end_waits)
    app.after_server_stop(end)
    return app
