"""`/models`: the models that can be called, and predictions by name and version."""

from time import perf_counter
from typing import Any
from urllib.parse import unquote

import msgspec
from sanic import HTTPResponse, Request, Sanic

from cluster_serving.frontend.errors import UnknownModel
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.metrics.timers import Timer
from cluster_serving.frontend.models.models import Models, Served
from cluster_serving.frontend.routes.gate import route
from cluster_serving.frontend.routes.predict import answer


def add(app: Sanic[Any, Any]) -> None:
    """Add the routes."""
    route(app, "/models", ["GET"], _all, name="models")
    route(app, "/models/<name:str>", ["GET"], _versions, name="model")
    route(app, "/models/<name:str>/predict", ["POST"], _predict, name="model_predict")
    route(app, "/models/<name:str>/versions/<version:str>", ["GET"], _one, name="model_version")
    route(app, "/models/<name:str>/versions/<version:str>/predict", ["POST"], _predict, name="model_version_predict")


async def _all(request: Request) -> HTTPResponse:
    return json_response(_list(request, None))


async def _versions(request: Request, name: str) -> HTTPResponse:
    name = unquote(name)
    # If the list is empty, `find` says why.
    return json_response(_list(request, name) or [_describe(_find(request, name, None))])


async def _one(request: Request, name: str, version: str) -> HTTPResponse:
    return json_response(_describe(_find(request, unquote(name), unquote(version))))


async def _predict(request: Request, name: str, version: str | None = None) -> HTTPResponse:
    return await answer(_find(request, unquote(name), version and unquote(version)), request)


def _list(request: Request, name: str | None) -> list[dict[str, Any]]:
    """Return the models of a name, or all models."""
    begun_s = perf_counter()
    found = [_describe(served) for served in _models(request).all() if name in (None, served.name)]
    request.app.ctx.frontend.timers.observe(Timer.LIST_MODELS, perf_counter() - begun_s)
    return found


def _models(request: Request) -> Models:
    models: Models = request.app.ctx.frontend.models
    return models


def _find(request: Request, name: str, version: str | None) -> Served:
    try:
        return _models(request).find(name, version)
    except UnknownModel as error:
        raise UnknownModel(f"Model Not Found. Err: {error}") from error


def _describe(served: Served) -> dict[str, Any]:
    """Return a model's entry of servables-conf.yaml, under the original's names, and the state of its nodes."""
    job = served.job
    described = job.described
    stated: dict[str, Any] = {} if served.servable is None else served.servable.metadata()
    return {
        "modelName": served.name,
        "modelVersion": served.version,
        **stated,
        "job": job.name,
        "state": described.state,
        "backend": described.backend,
        "nodes": [{"name": node.node, "state": node.state} for node in job.nodes],
        "inputs": msgspec.to_builtins(job.inputs),
        "outputs": msgspec.to_builtins(job.outputs),
    }
