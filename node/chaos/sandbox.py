"""Sandbox of a run: a directory, a Redis and two nodes, all gone after the run."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.node.chaos import processes
from cluster_serving.node.chaos.nodes import Node, NodeEnded, node_environment, run_config, write_config
from cluster_serving.node.config.loading import Config
from cluster_serving.node.job.private_redis import PrivateRedis


class Sandbox:
    """Directory with the logs of all processes. If `keep` is set, the directory stays after the run."""

    def __init__(self, config: Config, directory: Path) -> None:
        self.directory = directory
        self.poison = directory / "poison.json"
        self.keep = False
        self.redis = PrivateRedis(directory, node_environment(os.environ, directory, self.poison))
        self.config = run_config(config, self.redis.url)
        path = directory / "config.yaml"
        write_config(self.config, path)
        self.nodes = [
            Node(number, directory, path, self.config.job_name, self.redis, self.poison) for number in range(2)
        ]

    @property
    def job(self) -> str:
        """Stream of the run."""
        return self.config.job_name


@contextmanager
def sandbox(config: Config) -> Generator[Sandbox]:
    """Yield a sandbox with its Redis started. After the block, no process is left, and the directory only if kept."""
    place = Sandbox(config, Path(tempfile.mkdtemp(prefix="cluster-serving-chaos-")))
    try:
        place.redis.start()
        yield place
    except NodeEnded as ended:
        place.keep = True
        raise NodeEnded(f"{ended} (logs are kept in {place.directory})") from None
    except Exception as error:
        place.keep = not isinstance(error, Fault)
        error.add_note(f"logs: {place.directory}")
        raise
    finally:
        processes.kill_all(place.poison)
        if not place.keep:
            shutil.rmtree(place.directory, ignore_errors=True)
