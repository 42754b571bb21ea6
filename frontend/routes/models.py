"""`/models`: the models that can be called, and predictions by name and version."""

from time import perf_counter
from typing import Any

import msgspec
from sanic import HTTPResponse, Request

from cluster_serving.frontend.http.errors import UnknownModel
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.metrics.timers import Timer
from cluster_serving.frontend.models.models import Served
from cluster_serving.frontend.routes.predict import answer
from cluster_serving.frontend.routes.routes import Routes
from cluster_serving.frontend.routes.state import Frontend

routes = Routes()


@routes.get("/models", "models")
async def every_model(request: Request) -> HTTPResponse:
    """Return 200 and the list of all versions of all models."""
    return json_response(_list(request))


@routes.get("/models/<name:str>", "model")
async def versions(request: Request, name: str) -> HTTPResponse:
    """Return 200 and the list of the versions of a model, 404 for an unknown model, or 503 for a model without a node."""
    # If the list is empty, `find` says why.
    return json_response(_list(request, name) or [_describe(_find(request, name))])


@routes.get("/models/<name:str>/versions/<version:str>", "model_version")
async def one_version(request: Request, name: str, version: str) -> HTTPResponse:
    """Return 200 and one version of a model, 404 for an unknown version, or 503 for a version without a node."""
    return json_response(_describe(_find(request, name, version)))


@routes.post("/models/<name:str>/predict", "model_predict")
@routes.post("/models/<name:str>/versions/<version:str>/predict", "model_version_predict")
async def predict(request: Request, name: str, version: str | None = None) -> HTTPResponse:
    """Return the predictions of a model: see `answer`."""
    return await answer(_find(request, name, version), request)


def _list(request: Request, name: str | None = None) -> list[dict[str, Any]]:
    """Return the models of a name, or all models."""
    begun_s = perf_counter()
    frontend: Frontend = request.app.ctx.frontend
    found = [_describe(served) for served in frontend.models.all() if name in (None, served.name)]
    frontend.timers.observe(Timer.LIST_MODELS, perf_counter() - begun_s)
    return found


def _find(request: Request, name: str, version: str | None = None) -> Served:
    frontend: Frontend = request.app.ctx.frontend
    try:
        return frontend.models.find(name, version)
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
