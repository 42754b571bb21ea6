"""The original's servables-conf.yaml."""

import re
from pathlib import Path

import pytest

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.frontend.config.loading import check_files
from cluster_serving.frontend.config.servables import Servable, read_servables, warn_of_moved
from cluster_serving.frontend.config.settings import FrontendConfig
from support.certificates import PASSWORD, write_certificates

HERE = RedisSettings("redis.here", 6380, password="pw", timeout_s=2)  # noqa: S106 - of no server
ORIGINAL = """---
modelMetaDataList:
 - !<ClusterServingMetaData>
    modelName: "m1"
    modelVersion: "1.0"
    redisHost: "localhost"
    redisPort: "6381"
    redisInputQueue: "serving_stream2"
    redisOutputQueue: "cluster-serving_serving_stream2:"
    timeWindow: 5
    countWindow: 56
    tokenBucketEnabled: true
    tokensPerSecond: 70
    redisSecureEnabled: false
    redisTrustStorePath: null
    redisTrustStoreToken: "1234qwer"
    inputCompileType: "instance"
    features: ["a", "b"]
 - !<%s>
    modelName: "m2"
    modelVersion: "1.0"
    modelPath: "/models/m2"
    modelType: "OpenVINO"
    weightPath: "/models/m2.bin"
    modelConCurrentNum: 3
    inputCompileType: "direct"
    features: ["a"]
"""


def read(directory: Path, text: str) -> list[Servable]:
    path = directory / "servables-conf.yaml"
    path.write_text(text)
    return read_servables(str(path), HERE)


def entry(**values: object) -> str:
    lines = "".join(f"\n    {key}: {value}" for key, value in values.items())
    return f"modelMetaDataList:\n  - !<ClusterServingMetaData>{lines}\n"


def test_a_job_on_a_redis_of_its_own(tmp_path: Path) -> None:
    first, _ = read(tmp_path, ORIGINAL % "InferenceModelMetaData")

    assert (first.name, first.version, first.job) == ("m1", "1.0", "serving_stream2")
    assert first.redis == RedisSettings("localhost", 6381, timeout_s=2)
    assert (first.time_window, first.count_window) == (5, 56)
    assert (first.token_bucket_enabled, first.tokens_per_second) == (True, 70)
    assert (first.input_compile_type, first.features) == ("instance", ("a", "b"))


@pytest.mark.parametrize("tag", ["InferenceModelMetaData", "InflerenceModelMetaData"])
def test_a_model_of_the_originals_frontend_is_the_job_of_its_name(
    tmp_path: Path, tag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, second = servables = read(tmp_path, ORIGINAL % tag)
    warn_of_moved(servables)

    assert (second.name, second.job, second.redis) == ("m2", "m2", HERE)
    printed = capsys.readouterr().out
    assert all(part in printed for part in ("runs in a node now", "/models/m2", "modelParallelism=3"))


def test_metadata_as_the_original_shows_it(tmp_path: Path) -> None:
    first, second = (servable.metadata() for servable in read(tmp_path, ORIGINAL % "InferenceModelMetaData"))

    assert first == {
        "type": "ClusterServingMetaData",
        "modelName": "m1",
        "modelVersion": "1.0",
        "redisHost": "localhost",
        "redisPort": "6381",
        "redisInputQueue": "serving_stream2",
        "redisOutputQueue": "cluster-serving_serving_stream2:",
        "timeWindow": 5,
        "countWindow": 56,
        "tokenBucketEnabled": True,
        "tokensPerSecond": 70,
        "redisSecureEnabled": False,
        "redisTrustStorePath": "*******",
        "redisTrustStoreToken": "*******",
        "inputCompileType": "instance",
        "features": ["a", "b"],
    }
    assert second == {
        "type": "InferenceModelMetaData",
        "modelName": "m2",
        "modelVersion": "1.0",
        "modelPath": "/models/m2",
        "modelType": "OpenVINO",
        "weightPath": "/models/m2.bin",
        "modelConCurrentNum": 3,
        "inputCompileType": "direct",
        "features": ["a"],
    }


@pytest.mark.parametrize(
    "text",
    [
        "modelMetaDataList:\n  - type: InferenceModelMetaData\n    modelName: m\n",
        "modelMetaDataList:\n  - type: InflerenceModelMetaData\n    modelName: m\n",
        "modelMetaDataList:\n  - !InferenceModelMetaData\n    modelName: m\n",
        "modelMetaDataList:\n  - modelName: m\n    redisInputQueue: m\n",
    ],
)
def test_other_ways_to_say_the_type(tmp_path: Path, text: str) -> None:
    (servable,) = read(tmp_path, text)

    assert (servable.name, servable.version, servable.job) == ("m", "1.0", "m")


@pytest.mark.parametrize("where", [{}, {"redisHost": "redis.here", "redisPort": 6380}, {"redisPort": 6380}])
def test_the_frontends_own_redis_keeps_its_login(tmp_path: Path, where: dict[str, object]) -> None:
    (servable,) = read(tmp_path, entry(modelName="m", **where))

    assert servable.redis is HERE


@pytest.mark.parametrize(("own", "named"), [("127.0.0.1", "localhost"), ("localhost", "127.0.0.1")])
def test_both_names_of_this_machine_are_the_frontends_own_redis(tmp_path: Path, own: str, named: str) -> None:
    path = tmp_path / "servables-conf.yaml"
    path.write_text(entry(modelName="m", redisHost=named))
    default = RedisSettings(own, password="secret")  # noqa: S106 - of no server

    (servable,) = read_servables(str(path), default)

    assert servable.redis is default


def test_no_password_goes_to_another_redis(tmp_path: Path) -> None:
    (servable,) = read(tmp_path, entry(modelName="m", redisHost="elsewhere"))

    assert servable.redis == RedisSettings("elsewhere", 6380, timeout_s=2)


def test_a_trust_store_beside_the_file(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    tls = {"redisSecureEnabled": "true", "redisTrustStorePath": "trust.p12", "redisTrustStoreToken": PASSWORD}

    (servable,) = read(tmp_path, entry(modelName="m", redisHost="elsewhere", **tls))

    assert servable.redis.tls
    assert servable.redis.ca_file is not None
    assert "CERTIFICATE" in Path(servable.redis.ca_file).read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            ORIGINAL.replace('"m1"', '"m2"') % "InferenceModelMetaData",
            "duplicated model info. Model Name: m2, Model Version: 1.0",
        ),
        ("", "expected modelMetaDataList: and below it a list of models"),
        ("modelMetaDataList: 3", "expected modelMetaDataList: and below it a list of models"),
        ("modelMetaDataList:\n  - [", "line 2: not valid YAML"),
        ("modelMetaDataList:\n  - 3\n", "model 1: "),
        ("modelMetaDataList:\n  - type: Other\n    modelName: m\n", r"model 1 \(m\): .*Other"),
        ("modelMetaDataList:\n  - !<ClusterServingMetaData> 3\n", "line 2: not valid YAML: expected keys and values"),
        ("modelMetaDataList:\n  - !!python/object/apply:os.getpid []\n", "line 2: not valid YAML: could not determine"),
        (entry(modelName="m", redisInputQueue="'a:b'"), r"model 1 \(m\): redisInputQueue: must have no ':', because"),
        (
            "modelMetaDataList:\n  - {type: InferenceModelMetaData, modelName: 'a:b'}\n",
            r"model 1 \(a:b\): modelName: must have no ':', because",
        ),
        (entry(modelVersion=1), "model 1: modelName: Field required"),
        (entry(modelName="m", redisPort="many"), r"model 1 \(m\): redisPort: Input should be a valid integer"),
        (entry(modelName="m", redisHost="a..b"), r"model 1 \(m\): redisHost: the name of a host has 1 to 63 letters"),
        (
            entry(modelName="m", timeWindow=60_001),
            r"model 1 \(m\): timeWindow: Input should be less than or equal to 60000",
        ),
        (entry(modelName="m", timeWindow=".inf"), r"model 1 \(m\): timeWindow: Input should be a finite number"),
        (
            entry(modelName="m", tokensPerSecond=".inf"),
            r"model 1 \(m\): tokensPerSecond: Input should be a finite number",
        ),
        (entry(modelName="m", inputCompileType="other"), r"model 1 \(m\): inputCompileType: Input should be"),
        (
            entry(modelName="m", redisHost="h", redisSecureEnabled="true", redisTrustStorePath="nope.p12"),
            "redisTrustStorePath of m: .*nope.p12 cannot be read",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, text)


def test_a_missing_file_in_the_originals_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="servable Manager config dir not exist"):
        read_servables(str(tmp_path / "servables-conf.yaml"), HERE)


def test_what_is_answered_later_is_kept_by_most_servers_on_every_redis(tmp_path: Path) -> None:
    path = tmp_path / "servables-conf.yaml"
    path.write_text(entry(modelName="m", redisHost="elsewhere"))
    keys = {
        "redisUrl": "redis+sentinel://a:26379/m",
        "laterDurability": "majority",
        "servableManagerConfPath": str(path),
    }

    with pytest.raises(ConfigError, match=f"so the model m of {re.escape(str(path))} must be on the Redis of redisUrl"):
        check_files(FrontendConfig.model_validate(keys))
