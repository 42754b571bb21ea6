"""Change of a configuration: from the URL of a model to the directory of the fetched model."""

from collections.abc import Callable
from pathlib import Path

import structlog

from cluster_serving.client.servers.config.values import mask_address
from cluster_serving.node.config.loading import Config
from cluster_serving.node.fetching.cache import Entry
from cluster_serving.node.fetching.fetch import Request
from cluster_serving.node.fetching.under_way import UnderWay
from cluster_serving.node.job.directory import Job

log = structlog.get_logger(__name__)


def request_of(config: Config, job: Job) -> Request:
    """Return the request for the remote model of a job."""
    directory = Path(config.model_cache) / job.directory.name if config.model_cache else job.directory / "models"
    return Request(config.model_path, config.model_checksum, directory, config.model_max_bytes)


def placed(config: Config, entry: Entry) -> Config:
    """Return the configuration with the path of the fetched model."""
    return config.model_copy(update={"model_path": str(entry.path), "model_checksum": ""})


def begin(config: Config, job: Job) -> UnderWay:
    """Begin to fetch the model of a job."""
    if not config.model_checksum:
        log.warning("modelChecksum is not set: any content of the URL is served", url=mask_address(config.model_path))
    return UnderWay(request_of(config, job))


def fetched(config: Config, job: Job, say: Callable[[str], None]) -> tuple[Config, Entry | None]:
    """Fetch a remote model, and wait for the end of the fetch.

    Returns:
        The configuration with a model on this machine, and the cache entry that keeps a fetched model there.

    Raises:
        ModelFault: the model cannot be fetched.
    """
    if not config.model_is_remote:
        return config, None
    entry = begin(config, job).wait(say)
    return placed(config, entry), entry
