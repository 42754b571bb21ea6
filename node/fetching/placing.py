"""From a configuration that names a URL to one that names a directory."""

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
    """What to fetch for a job whose model is remote."""
    directory = Path(config.model_cache) / job.directory.name if config.model_cache else job.directory / "models"
    return Request(config.model_path, config.model_checksum, directory, config.model_max_bytes)


def placed(config: Config, entry: Entry) -> Config:
    """The same configuration, with the model where it was fetched to."""
    return config.model_copy(update={"model_path": str(entry.path), "model_checksum": ""})


def begin(config: Config, job: Job) -> UnderWay:
    """Begin to fetch the model of a job."""
    if not config.model_checksum:
        log.warning("modelChecksum is not set: whatever the URL holds is served", url=mask_address(config.model_path))
    return UnderWay(request_of(config, job))


def fetched(config: Config, job: Job, say: Callable[[str], None]) -> tuple[Config, Entry | None]:
    """Fetch the model if it is remote, and wait for it.

    Returns:
        The configuration with a model on this machine, and what keeps it there.

    Raises:
        ModelFault: it cannot be had.
    """
    if not config.model_is_remote:
        return config, None
    entry = begin(config, job).wait(say)
    return placed(config, entry), entry
