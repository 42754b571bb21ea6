"""`/metrics`: the timers as the JSON of the original, or everything for Prometheus if `Accept` asks for Prometheus."""

import asyncio
from time import perf_counter

from sanic import HTTPResponse, Request

from cluster_serving.frontend.metrics.metrics_json import timers_json
from cluster_serving.frontend.metrics.prometheus import prometheus_text
from cluster_serving.frontend.metrics.timers import Timer
from cluster_serving.frontend.routes.routes import Routes
from cluster_serving.frontend.routes.state import Frontend

routes = Routes()

_TYPES = {
    "application/json": "application/json",
    "application/openmetrics-text": "application/openmetrics-text; version=1.0.0; charset=utf-8",
    "text/plain": "text/plain; version=0.0.4; charset=utf-8",
}
"""Content type of the answer, by type in `Accept`. The first is for clients that accept everything (curl, browsers)."""


@routes.get("/metrics", "metrics", is_limited=False)
async def metrics(request: Request) -> HTTPResponse:
    """Return 200 and the metrics of all processes, as JSON or as text of Prometheus."""
    begun_s = perf_counter()
    frontend: Frontend = request.app.ctx.frontend
    wanted = request.accept.match(*_TYPES)
    mime = str(wanted.mime) if wanted else "application/json"
    reading = frontend.all_timers.read()
    if mime == "application/json":
        body = timers_json(reading, [(served.name, served.version) for served in frontend.models.all()])
    else:
        nodes = [node for each in frontend.models.registries for job in each.jobs.values() for node in job.nodes]
        is_openmetrics = mime == "application/openmetrics-text"
        # In a thread, because a hundred nodes take a fifth of a second.
        body = await asyncio.to_thread(prometheus_text, reading, nodes, is_openmetrics=is_openmetrics)
    frontend.timers.observe(Timer.METRICS, perf_counter() - begun_s)
    return HTTPResponse(body, headers={"Vary": "Accept"}, content_type=_TYPES[mime])
