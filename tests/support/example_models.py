"""The models of the examples in the OpenAPI document, with a frontend before them."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.models import MODELS
from support.private_redis import private_redis
from support.running_frontend import RunningFrontend, running_frontend
from support.running_node import running_node


@contextmanager
def example_models(home: Path, **config: Any) -> Generator[RunningFrontend]:
    """A frontend for a block, whose default job is iris.

    Args:
        home: a directory of its own.
        config: keys of the section `frontend:` of its config file.
    """
    (home / "redis").mkdir()
    with (
        private_redis(home / "redis") as server,
        running_node(home / "iris", server, modelPath=str(MODELS / "scores.py"), jobName="iris"),
        running_node(home / "price", server, modelPath=str(MODELS / "price.py"), jobName="price"),
        running_frontend(home / "frontend", server, jobName="iris", **config) as frontend,
    ):
        yield frontend
