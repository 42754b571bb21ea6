from pathlib import Path

import yaml

from cluster_serving.node.chaos import pace
from cluster_serving.node.chaos.nodes import node_environment, run_config, write_config
from cluster_serving.node.config.loading import Config, load_config

URL = "unix:///a/redis.sock"


def written(tmp_path: Path, **settings: object) -> Config:
    """Return the configuration that a node of a run reads, made from these settings of the user."""
    source, path = tmp_path / "config.yaml", tmp_path / "run" / "config.yaml"
    path.parent.mkdir()
    source.write_text(yaml.safe_dump(settings))
    write_config(run_config(load_config(source, {}, {}).config, URL), path)
    assert path.stat().st_mode & 0o777 == 0o600
    return load_config(path, {}, {}).config


def test_what_the_user_has_set_counts_in_a_run(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        modelPath="models/mine",
        jobName="007",
        postProcessing="topN(2)",
        imageResizeOrder="wh",
        imageResize="320,240",
        imageMean=[1, 2, 3],
        modelInputs=["ids int64 [N,12]", "mask"],
        recordEncrypted=True,
        recordSecret="s3cret",
        recordSalt="s4lt",
        batchSize=4,
        modelParallelism=1,
    )

    assert config.model_path == str(tmp_path / "models" / "mine")
    assert config.job_name == "007"
    assert config.post_processing == "topN(2)"
    assert config.image_resize == (240, 320)
    assert config.image_mean == (1.0, 2.0, 3.0)
    assert config.model_inputs == ("ids int64 [N,12]", "mask")
    assert config.record_secret is not None
    assert config.record_secret.get_secret_value() == "s3cret"
    assert (config.batch_size, config.model_parallelism) == (4, 1)


def test_redis_is_that_of_the_run_and_the_pace_too(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        modelPath="m",
        redisUrl="rediss://user:word@far:7000/3",
        redisPassword="word",
        redisSecureEnabled=True,
        redisDb=3,
        batchSize=64,
        modelParallelism=30,
        lease=60,
        runTimeout=300,
        maxDeadLetters=0,
    )

    assert config.redis_settings().describe() == f"{URL}?db=0"
    assert config.redis_settings().password is None
    assert not config.redis_settings().tls
    assert (config.lease_s, config.run_timeout_s) == (pace.LEASE_S, pace.RUN_TIMEOUT_S)
    assert (config.batch_size, config.model_parallelism) == (pace.BATCH, pace.WORKERS)
    assert config.max_dead_letters > 10_000


def test_a_run_waits_and_sleeps_longer_than_a_lease_and_less_than_a_run_may_take() -> None:
    assert max(pace.LEASE_S, pace.REPLY_LIFE_S) < pace.PAUSE_S
    assert 2 * pace.LEASE_S <= pace.SLOW_S < pace.RUN_TIMEOUT_S
    assert pace.DRAIN_S > pace.SLOW_S


def test_the_environment_of_a_node_has_no_setting_of_the_user_s(tmp_path: Path) -> None:
    environ = {"PATH": "/bin", "CLUSTER_SERVING_REDIS_URL": "far:6379", "CLUSTER_SERVING_HOME": "/home/me"}

    found = node_environment(environ, tmp_path / "home", tmp_path / "poison.json")

    assert found == {
        "PATH": "/bin",
        "CLUSTER_SERVING_HOME": str(tmp_path / "home"),
        "CHAOS_POISON": str(tmp_path / "poison.json"),
    }
