"""A Redis that cannot write its snapshot, and therefore refuses writes."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.private_redis import PrivateRedis
from support.wait import wait_until


@contextmanager
def failed_snapshot(server: PrivateRedis) -> Generator[Any]:
    """A client of a Redis whose last snapshot has failed. It makes snapshots by itself until the block ends."""
    with server.client() as client:
        config: Any = client.config_get("d*")
        Path(config["dir"], config["dbfilename"], "in the way").mkdir(parents=True)
        client.config_set("save", "3600 1")
        client.bgsave()
        wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "it has failed")
        try:
            yield client
        finally:
            client.config_set("save", "")  # with snapshots it would not end
