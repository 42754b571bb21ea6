"""The private Redis of a trial."""

import socket
from pathlib import Path

import pytest
import redis

from cluster_serving.node.config.loading import Config
from cluster_serving.node.job.redis_errors import RedisUnavailable
from cluster_serving.node.tuning.trial_redis import on_trial_redis
from support.private_redis import free_port


@pytest.mark.parametrize("name", ["short", "long" * 25])
def test_a_trial_has_a_redis_wherever_temporary_files_are(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a Unix socket has at most 107 bytes."""
    directory = tmp_path / name
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    nobody = Config(redis_url="redis://127.0.0.1:1/0")

    with on_trial_redis(nobody) as private, private.redis_settings().client() as client:
        client.set("key", "value")
        path = Path(private.redis_url.removeprefix("unix://"))
        assert path.is_socket()
        assert client.config_get("appendonly") == {"appendonly": "no"}

    assert not path.parent.exists()
    assert not list(directory.iterdir())


def test_a_trial_of_costs_has_a_redis_like_one_in_service() -> None:
    port = free_port()

    with on_trial_redis(Config(), port=port) as private, private.redis_settings().client() as client:
        assert private.redis_url.endswith(f"@127.0.0.1:{port}/0")
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        with pytest.raises(redis.AuthenticationError), redis.Redis(port=port) as stranger:
            stranger.ping()


def test_a_port_that_is_taken_is_an_error_and_no_redis_in_service() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with (
            pytest.raises(RedisUnavailable, match="the redis-server of this run does not start"),
            on_trial_redis(Config(), port=listener.getsockname()[1]),
        ):
            pass
