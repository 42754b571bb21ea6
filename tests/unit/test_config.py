"""Every spelling of the configuration, and every way to get it wrong."""

import pickle
import textwrap
from pathlib import Path
from typing import Any

import pytest

from cluster_serving.client.servers.config.values import mask_url, split_password
from cluster_serving.node.config.loading import Config, ConfigError, LoadedConfig, effective, load_config


def load(tmp_path: Path, text: str, environ: dict[str, str] | None = None, **flags: object) -> LoadedConfig:
    file = tmp_path / "config.yaml"
    file.write_text(textwrap.dedent(text))
    return load_config(file, environ or {}, flags)


SAMPLE_0_7 = """
    ## Analytics-zoo Cluster Serving
    model:
      # model path must be provided
      path: /opt/work/model
    data:
      # default, localhost:6379
      src:
      # default, 3,224,224
      image_shape: 3,224,224
    params:
      # default, 4
      batch_size: 16
      # default, 1
      top_n: 5
    spark:
      # default, local[*], change this to spark://, yarn, k8s:// etc if you want to run on cluster
      master: local[*]
      driver_memory: 4g
      executor_memory:
      num_executors:
      executor_cores: 4
      total_executor_cores:
    """
SAMPLE_0_8 = """
    model:
      path: /opt/work/model
      inputs:
      outputs:
    data:
      src: redis:6380
      image_shape: 3,227,227
      filter: topN(1)
    params:
      batch_size:
      performance_mode: OFF
    spark:
    redis:
      maxmem: 8g
    """
SAMPLE_0_9 = """
    model:
      path: /opt/work/model
      name: resnet
    data:
      src: localhost:6379
      shape: [[3, 224, 224]]
      type: image
      filter: None
      resize: true
    params:
      core_number: 4
      model_number: 2
    redis:
      timeout: 9000
    secure:
      secure_enabled: false
      secure_trust_store_path: keys/keystore.jks
      secure_struct_store_password: 1234qwer
      model_encrypted: false
    flink:
      rest: localhost:8081
    """
SAMPLE_0_10 = """
    modelPath: /opt/work/model
    jobName:
    # postProcessing
    postProcessing:
    imageResize: 224,227
    redisUrl: localhost:6379
    redisMaxmemory: 8g
    secureEnabled: false
    secureTrustStorePath:
    secureStructStorePassword:
    modelEncrypted: FALSE
    recordEncrypted: false
    flinkRestUrl: localhost:8081
    performance_mode: OFF
    modelParallelism: 10
    threadPerModel: "2"
    inputAlreadyBatched: TRUE
    """
SAMPLE_2 = """
    modelPath: file:///opt/work/model
    jobName: 123456
    redisSecureStructStorePassword: 123456
    coreNumberPerMachine: 4
    queueUsed: redis
    kafkaUrl: localhost:9092
    """


@pytest.mark.parametrize(
    ("sample", "expected", "ignored"),
    [
        pytest.param(
            SAMPLE_0_7,
            {"batch_size": 16, "post_processing": "topN(5)", "image_resize": (224, 224)},
            {"spark.master", "spark.driver_memory", "spark.executor_cores"},
            id="0.7",
        ),
        pytest.param(
            SAMPLE_0_8,
            {"redis_url": "redis:6380", "post_processing": "topN(1)", "image_resize": (227, 227), "batch_size": None},
            {"params.performance_mode"},
            id="0.8",
        ),
        pytest.param(
            SAMPLE_0_9,
            {"job_name": "resnet", "post_processing": "", "core_number_per_machine": 4, "model_parallelism": 2},
            {"data.shape", "data.type", "data.resize", "flink.rest"},
            id="0.9",
        ),
        pytest.param(
            SAMPLE_0_10,
            {
                "job_name": "serving_stream",
                "image_resize": (224, 227),
                "redis_max_memory": 8 << 30,
                "model_parallelism": 10,
                "thread_per_model": 2,
                "input_already_batched": True,
            },
            {"flinkRestUrl", "performance_mode"},
            id="0.10",
        ),
        pytest.param(
            SAMPLE_2,
            {"job_name": "123456", "core_number_per_machine": 4},
            {"queueUsed", "kafkaUrl"},
            id="2.x",
        ),
    ],
)
def test_samples_of_every_version_load(
    tmp_path: Path, sample: str, expected: dict[str, Any], ignored: set[str]
) -> None:
    loaded = load(tmp_path, sample)

    assert {name: getattr(loaded.config, name) for name in expected} == expected
    assert loaded.config.model_path == "/opt/work/model"
    assert set(loaded.ignored) == ignored


@pytest.mark.parametrize(
    ("shape", "size"),
    [("3,100,200", (100, 200)), ("100, 200, 3", (100, 200)), ("[1, 28, 28]", (28, 28)), ("3,2,9", (2, 9))],
)
def test_an_old_image_shape_is_the_size_to_resize_to(tmp_path: Path, shape: str, size: tuple[int, int]) -> None:
    sample = f"model: {{path: /m}}\ndata: {{image_shape: '{shape}'}}\nimageResizeOrder: wh"

    assert load(tmp_path, sample).config.image_resize == size
    assert load(tmp_path, f"{sample}\nimageResize: 7,8").config.image_resize == (8, 7)


def test_password_keeps_its_text_and_is_masked(tmp_path: Path) -> None:
    """YAML would read 0123 as 83."""
    loaded = load(tmp_path, "redisPassword: 0123\nredisUrl: redis://me:secret@host:1/2")

    settings = loaded.config.redis_settings()
    assert (settings.username, settings.password) == ("me", "secret")
    assert loaded.config.redis_password is not None
    assert loaded.config.redis_password.get_secret_value() == "0123"
    assert effective(loaded)["redisPassword"] == "**********"
    assert effective(loaded)["redisUrl"] == "redis://me:***@host:1/2"


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "model:\nspark:\n"])
def test_empty_file_gives_defaults(tmp_path: Path, text: str) -> None:
    loaded = load(tmp_path, text)

    assert loaded.config == Config()
    assert set(loaded.sources.values()) == {"default"}


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("MODELPARALLELISM: 3", "model_parallelism", 3),
        ("model_parallelism: 3", "model_parallelism", 3),
        ("modelParallelism: auto", "model_parallelism", None),
        ("modelParallelism: ~", "model_parallelism", None),
        ("jobName: on", "job_name", "on"),
        ("max_batch_size: 0", "batching", "none"),
        ("max_batch_size: 1", "batching", "none"),
        ("max_batch_size: 8", "batch_size", 8),
        ("max_batch_size: 8", "batching", "auto"),
        ("max_batch_size: 0\nbatching: rows", "batching", "rows"),
        ("dynamic_batching: {preferred_batch_size: [4]}", "batching", "auto"),
        ("sequence_batching: {}", "batching", "auto"),
        ("batching: NONE", "batching", "none"),
        ("inputAlreadyBatched: on", "input_already_batched", True),
        ("slotBytes: 64m", "slot_bytes", 64 << 20),
        ("slotBytes: 1.5 MiB", "slot_bytes", 3 << 19),
        ("redisMaxMemory: 8G", "redis_max_memory", 8 << 30),
        ("redisMaxMemory: 0", "redis_max_memory", 0),
        ("redisMaxMemory: 1000", "redis_max_memory", 1000),
        ("imageResize: 227, 224", "image_resize", (227, 224)),
        ("imageResize: [227, 224]", "image_resize", (227, 224)),
        ('imageResize: ""', "image_resize", None),
        ("imageResize: 227,224\nimageResizeOrder: WH", "image_resize", (224, 227)),
        ("resultTimeToLive: 0", "result_time_to_live_s", 0),
        ("modelType: ONNX", "model_type", "onnx"),
        ("modelType: Auto", "model_type", None),
        ("drainTimeout: 2.5", "drain_timeout_s", 2.5),
        ("precision: BF16", "precision", "bf16"),
        ("secureTrustStorePassword: x", "redis_timeout", 5000),
        ("model: {path: /a}\nmodelPath: /b", "model_path", "/b"),
        ("modelPath: /b\nmodel: {path: /a}", "model_path", "/b"),
        ("data: {filter: topN(2)}\nparams: {top_n: 3}", "post_processing", "topN(2)"),
        ("params: {top_n: 3}\ndata: {filter: topN(2)}", "post_processing", "topN(2)"),
    ],
)
def test_spellings(tmp_path: Path, line: str, name: str, value: object) -> None:
    assert getattr(load(tmp_path, line).config, name) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nmodelPth: /m", "config.yaml, line 2: unknown key modelPth; did you mean modelPath?"),
        ("qqqqqq: 1", "config.yaml, line 1: unknown key qqqqqq"),
        (
            "params:\n  batchsize: 1",
            "config.yaml, line 2: unknown key params.batchsize; did you mean params.batch_size?",
        ),
        ("batchSize: many", "config.yaml, line 1: batchSize is many, but must be a whole number"),
        ("batchSize: 0", "config.yaml, line 1: batchSize is 0, but must be 1 or more"),
        ("batchSize: 1.5", "config.yaml, line 1: batchSize is 1.5, but must be a whole number"),
        ("batchSize: [1]", "config.yaml, line 1: batchSize is ['1'], but must be a whole number"),
        ("jobName: [a]", "config.yaml, line 1: jobName is ['a'], but must be one text"),
        ("jobName: ' '", "config.yaml, line 1: jobName is ' ', but must not be empty"),
        (
            "jobName: 'a:b'",
            "jobName is a:b, but must have no ':', because results of a:b would be results of the job a too",
        ),
        (
            "inputAlreadyBatched: perhaps",
            "config.yaml, line 1: inputAlreadyBatched is perhaps, but must be true or false",
        ),
        ("precision: f16", "config.yaml, line 1: precision is f16, but must be 'auto', 'f32', 'bf16' or 'int8'"),
        (
            "precision: int8",
            "precision is int8, which is calibrated and proven on records of yours: set calibrationData",
        ),
        ("accuracyMetric: metric.py", "must be of the form file.py:function"),
        (
            "accuracyAgreement: 1",
            "config.yaml, line 1: accuracyAgreement is 1, but must be less than 1: no number of records proves that all agree",
        ),
        ("accuracyAgreement: 1.5", "config.yaml, line 1: accuracyAgreement is 1.5, but must be less than 1"),
        ("accuracyAgreement: 0", "config.yaml, line 1: accuracyAgreement is 0, but must be more than 0"),
        (
            "modelParallelism: 1025",
            "config.yaml, line 1: modelParallelism is 1025, but must be 1024 or less",
        ),
        ("threadPerModel: 1025", "config.yaml, line 1: threadPerModel is 1025, but must be 1024 or less"),
        ("modelType: onx", "config.yaml, line 1: modelType is onx, but must be one of onnx, openvino, "),
        (
            "postProcessing: top5",
            "config.yaml, line 1: postProcessing is top5, but please check your filter format",
        ),
        ("postProcessing: topM(5)", "config.yaml, line 1: postProcessing is topM(5), but there is no filter 'topM'"),
        (
            "redisUrl: localhost:70000",
            "line 1: redisUrl is localhost:70000: the port must be from 1 to 65535, not 70000",
        ),
        ("redisUrl: redis+sentinel://a:1,b:0/master", "the port must be from 1 to 65535, not 0"),
        ("resultTimeToLive: 1e14", "config.yaml, line 1: resultTimeToLive is 1e14, but must be 1e+10 or less"),
        ("maxDeadLetters: 100000000000000000", "but must be 1e+10 or less"),
        ("maxBatchDelayMs: nan", "config.yaml, line 1: maxBatchDelayMs is nan, but must be a number"),
        ("maxBatchDelayMs: -1", "config.yaml, line 1: maxBatchDelayMs is -1, but must be 0 or more"),
        (
            "slotBytes: big",
            "config.yaml, line 1: slotBytes is big, but must be a size such as 64m, 4g or a number of bytes",
        ),
        (f"slotBytes: {'9' * 400}", "9, but must be a size such as 64m, 4g or a number of bytes"),
        ("imageResize: 1,2,3", "config.yaml, line 1: imageResize is 1,2,3, but Image dim must be 2"),
        ("imageResize: 0,5", "Image dim must be 2"),
        ("imageResize: 20000,20000", "imageResize is 20000,20000, but must have 178956970 pixels at most"),
        ("imageResize: a,b", "Image dim must be 2"),
        ("secure: {record_encrypted: TRUE}", "recordEncrypted is true, so recordSecret and recordSalt must be set"),
        ("modelSecret: a", "modelSecret and modelSalt belong together"),
        ("shadow: 101%", "config.yaml, line 1: shadow is 101%, but must be 1 or less"),
        ("shadow: few%", "config.yaml, line 1: shadow is few%, but must be a share such as 0.01 or 1%"),
        (
            "shadow: 1%\nrecordEncrypted: true\nrecordSecret: a\nrecordSalt: b",
            "shadow is set, and recordEncrypted is true: what is encrypted is opened by workers alone",
        ),
        ("labels: names.txt", "labels has names for the classes that topN finds"),
        ("processing: code.py", "config.yaml, line 1: processing is code.py, but must be of the form file.py:Class"),
        ("modelInputs: x floot", "config.yaml, line 1: modelInputs is x floot, but 'x floot': there is no dtype floot"),
        ("modelInputs: 'x float32 [N,a]'", "'x float32 [N,a]': a dimension is a number, N or ?"),
        ("modelInputs: 'x float32 [N,-1]'", "'x float32 [N,-1]': a dimension is a number, N or ?"),
        (f"modelInputs: 'x float32 [N,{1 << 63}]'", "a dimension is a number, N or ?"),
        ("modelOutputs: 'y float32 [-1,5]'", "'y float32 [-1,5]': a dimension is a number, N or ?"),
        ("modelOutputs: 'y floot [N,5]'", "'y floot [N,5]': there is no dtype floot"),
        (
            "modelInputs:\n  - ids\n  -",
            "config.yaml, line 1: modelInputs is ['ids', None], but must be a list without empty items",
        ),
        (
            "modelInputs: ['x {float32}']",
            "modelInputs is ['x {float32}'], but 'x {float32}' is not of the form: name dtype",
        ),
        ("postProcessing: topN({5})", "the argument of topN must be a whole number: 'topN({5})' is not"),
        ("imageMean: 1,b", "config.yaml, line 1: imageMean is 1,b, but must be numbers, such as 104, 117, 123"),
        ("data: {image_shape: 3}", "data.image_shape is 3, but must be channels, height, width"),
        ("imageChannels: 2", "config.yaml, line 1: imageChannels is 2, but must be 1, 3 or 4"),
        ("engine: caffe", "config.yaml, line 1: engine is caffe, but must be 'auto', 'native' or 'openvino'"),
        ("queueUsed: kafka", "config.yaml, line 1: queueUsed is kafka, but only Redis is supported as the queue"),
        ("modelPath: hdfs://h/m", "config.yaml, line 1: modelPath is hdfs://h/m, but must be a local path"),
        (
            "redisUrl: localhost:abc",
            "Your redis host and port are not valid, please check. config.yaml, line 1: redisUrl is localhost:abc: ",
        ),
        ("redisUrl: http://x", "Your redis host and port are not valid, please check. "),
        ("batchSize: 1\nbatchSize: 2", "config.yaml, line 2: batchSize was given another value in line 1"),
        (
            "data:\n  src: a:1\n  src: b:1",
            "config.yaml, line 3: src was given another value in line 2",
        ),
        (
            "data: {src: a:1}\nparams: {batch_size: 4}\ndata: {src: b:1}",
            "config.yaml, line 3: data.src was given another value in line 1",
        ),
        ("padding:\n  ids: 0\n  ids: 1", "config.yaml, line 3: ids was given another value in line 2"),
        ("padding: ids=0, ids=1", "config.yaml, line 1: padding is ids=0, ids=1, but must have one number by name"),
        ("a: b: c", "config.yaml, line 1: not valid YAML: mapping values are not allowed here"),
        ("just text", "config.yaml, line 1: expected lines of the form key: value"),
        ("- a", "config.yaml, line 1: expected lines of the form key: value"),
        ("a: \x01", "config.yaml: not valid YAML: "),
        ("modelInputs: &a [*a]", "config.yaml: a value is nested too deeply, or holds itself by an alias"),
        ("frontend: &a\n  port: *a", "config.yaml: a value is nested too deeply, or holds itself by an alias"),
        ("model: yolo", "config.yaml, line 1: unknown key model"),
        (
            "legacyStreams: 0.7",
            "legacyStreams is 0.7, whose clients read the classes that topN finds: set postProcessing",
        ),
        (
            "legacyStreams: 0.6",
            "config.yaml, line 1: legacyStreams is 0.6, but must be 'off', '0.7', '0.8' or 'nightly'",
        ),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "flags", "lines"),
    [
        (
            "modelPath: m\nmodelParalelism: 2\nparams: {batch_sise: 3}\n",
            {"--set modlPath": "x"},
            [
                "config.yaml, line 3: unknown key params.batch_sise; did you mean params.batch_size?",
                "config.yaml, line 2: unknown key modelParalelism; did you mean modelParallelism?",
                "--set modlPath: unknown key modlPath; did you mean modelPath?",
            ],
        ),
        (
            "imageChannels: 2\nbatchSize: 0\n",
            {"--set lease": "1"},
            [
                "config.yaml, line 1: imageChannels is 2, but must be 1, 3 or 4",
                "config.yaml, line 2: batchSize is 0, but must be 1 or more",
                "--set lease: lease is 1, but must be 2 or more",
            ],
        ),
    ],
)
def test_all_mistakes_are_told_at_once(tmp_path: Path, text: str, flags: dict[str, object], lines: list[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load_config(path, {}, flags)

    assert str(caught.value).splitlines() == lines


@pytest.mark.parametrize("url", ["file:///opt/my%20model", "file://localhost/opt/my%20model"])
def test_a_url_of_a_file_is_its_path(tmp_path: Path, url: str) -> None:
    assert load(tmp_path, f"modelPath: {url}").config.model_path == "/opt/my model"


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: there is no such file"):
        load_config(tmp_path / "nowhere.yaml", {}, {})


def test_directory_as_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the file: Is a directory"):
        load_config(tmp_path, {}, {})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("store.jks", b"anything", "is a Java key store, which is not supported"),
        ("store", bytes.fromhex("feedfeed00"), "is a Java key store, which is not supported"),
        ("store.p12", b"\x30\x82", "is not a PEM file"),
        (None, b"", "cannot be read: No such file"),
    ],
)
def test_trust_store_that_cannot_be_read(tmp_path: Path, name: str | None, content: bytes, message: str) -> None:
    if name:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(ConfigError, match=message):
        load(tmp_path, f"redisSecureEnabled: true\nredisSecureTrustStorePath: {name or 'missing.pem'}")


def test_pem_trust_store_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")

    settings = load(tmp_path, "secureEnabled: true\nsecureTrustStorePath: ca.pem").config.redis_settings()

    assert settings.tls
    assert settings.ca_file == str(tmp_path / "ca.pem")


def test_precedence_and_sources(tmp_path: Path) -> None:
    """Flag, then environment, then file, then default."""
    file = tmp_path / "c.yaml"
    file.write_text("jobName: file\nmodelPath: file\nbatchSize: 1\n")
    environ = {"CLUSTER_SERVING_MODEL_PATH": "/env", "CLUSTER_SERVING_BATCH_SIZE": "2", "CLUSTER_SERVING_PRECISION": ""}

    loaded = load_config(file, environ, {"--parallelism": 3, "--set batch_size": "4", "--model-path": None})

    config = loaded.config
    assert (config.job_name, config.model_path, config.batch_size, config.model_parallelism) == ("file", "/env", 4, 3)
    assert loaded.sources["jobName"] == "c.yaml"
    assert loaded.sources["modelPath"] == "CLUSTER_SERVING_MODEL_PATH"
    assert loaded.sources["batchSize"] == "--set batch_size"
    assert loaded.sources["modelParallelism"] == "--parallelism"
    assert loaded.sources["precision"] == "default"


def test_relative_model_path_starts_where_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    assert load(tmp_path, "modelPath: m").config.model_path == str(tmp_path / "m")
    assert load(tmp_path, "", modelPath="m").config.model_path == str(elsewhere / "m")


def test_the_home_of_an_unknown_user_is_a_name_as_any_other(tmp_path: Path) -> None:
    assert load(tmp_path, "modelPath: ~no-such-user/m").config.model_path == str(tmp_path / "~no-such-user/m")
    assert load(tmp_path, "modelPath: ~/m").config.model_path == str(Path.home() / "m")


def test_secret_from_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    text = "s3cret"
    secret.write_text(f"{text}\n")

    loaded = load(tmp_path, "", {"CLUSTER_SERVING_REDIS_PASSWORD_FILE": str(secret)})

    assert loaded.config.redis_settings().password == text
    assert loaded.sources["redisPassword"] == "CLUSTER_SERVING_REDIS_PASSWORD_FILE"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"CLUSTER_SERVING_REDIS_PASSWORD_FILE": "/nowhere"}, "cannot read /nowhere: No such file"),
        (
            {"CLUSTER_SERVING_REDIS_PASSWORD_FILE": "/x", "CLUSTER_SERVING_REDIS_PASSWORD": "y"},
            "CLUSTER_SERVING_REDIS_PASSWORD is set too",
        ),
        ({"CLUSTER_SERVING_BATCH_SIZE": "x"}, "CLUSTER_SERVING_BATCH_SIZE: batchSize is x, but must be a whole number"),
    ],
)
def test_mistakes_in_the_environment(tmp_path: Path, environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, "", environ)


def test_misspelled_variable_is_named_and_others_are_not(tmp_path: Path) -> None:
    environ = {"CLUSTER_SERVING_MODLE_PATH": "/m", "CLUSTER_SERVING_HOME": "/h", "CLUSTER_SERVING_PORT": "tcp://1"}
    environ |= {"CLUSTER_SERVING_MODELS": "/srv/models"}  # of a stack file

    ignored = load(tmp_path, "", environ).ignored

    assert ignored == {"CLUSTER_SERVING_MODLE_PATH": "no such variable; did you mean CLUSTER_SERVING_MODEL_PATH?"}


@pytest.mark.parametrize(
    ("text", "tuning"),
    [
        ("performance_mode: ON", "start"),
        ("params: {performance_mode: on}", "start"),
        ("performance_mode: OFF", "cached"),
        ("performance_mode: ON\ntuning: off", "off"),
        ("tuning: off\nperformance_mode: ON", "off"),
    ],
)
def test_performance_mode_measures_before_the_first_start(tmp_path: Path, text: str, tuning: str) -> None:
    assert load(tmp_path, text).config.tuning == tuning


@pytest.mark.parametrize(
    ("text", "objective"),
    [
        ("", "throughput"),
        ("objective: Throughput", "throughput"),
        ("objective: {latency: 20}", "latency: 20"),
        ("objective: 'latency:2.5 ms'", "latency: 2.5"),
    ],
)
def test_objective(tmp_path: Path, text: str, objective: str) -> None:
    assert load(tmp_path, text).config.objective == objective


def test_objective_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"config.yaml, line 1: objective is fast, but must be throughput, or latency"
    ):
        load(tmp_path, "objective: fast")


def test_unknown_key_of_set() -> None:
    with pytest.raises(ConfigError, match=r"--set modlePath: unknown key modlePath; did you mean modelPath\?"):
        load_config(None, {}, {"--set modlePath": "x"})


@pytest.mark.parametrize(
    ("settings", "backend", "budget", "expected"),
    [
        ({}, "onnx", 1, (1, 1)),
        ({}, "onnx", 15, (15, 1)),
        ({"thread_per_model": 4}, "onnx", 16, (4, 4)),
        ({"model_parallelism": 2}, "onnx", 8, (2, 4)),
        ({"model_parallelism": 8}, "onnx", 2, (8, 1)),
        ({"model_parallelism": 3, "thread_per_model": 2}, "onnx", 2, (3, 2)),
        ({}, "onnx", 2000, (1024, 1)),
        ({"core_number_per_machine": 2000}, "onnx", 128, (1024, 1)),
        ({"core_number_per_machine": 4}, "tensorflow", 16, (4, 1)),
        ({"core_number_per_machine": 4}, "openvino", 16, (1, 4)),
        ({"core_number_per_machine": 4, "model_parallelism": 2}, "openvino", 16, (2, 4)),
        ({"core_number_per_machine": -1}, "openvino", 3, (3, 1)),
    ],
)
def test_parallelism(settings: dict[str, int], backend: str, budget: int, expected: tuple[int, int]) -> None:
    assert Config.model_validate(settings).resolved_parallelism(backend, budget) == expected


@pytest.mark.parametrize(
    ("settings", "copies", "expected"),
    [({}, 3, (3, 2)), ({}, 1, (1, 8)), ({"thread_per_model": 2}, 1, (1, 2)), ({"model_parallelism": 5}, 1, (5, 1))],
)
def test_parallelism_where_memory_has_room_for_few_copies(
    settings: dict[str, int], copies: int, expected: tuple[int, int]
) -> None:
    assert Config.model_validate(settings).resolved_parallelism("onnx", 8, copies) == expected


@pytest.mark.parametrize(
    ("url", "public", "password"),
    [
        ("localhost:6379", "localhost:6379", None),
        (":pw@h:1", "h:1", "pw"),
        ("redis://:p%40w@h:1/2", "redis://h:1/2", "p@w"),
        ("rediss://u:p@w@h", "rediss://u@h", "p@w"),
        ("redis+sentinel://u:pw@a:1,b:2/m", "redis+sentinel://u@a:1,b:2/m", "pw"),
        ("redis://u:@h", "redis://u@h", None),
        ("unix:///a:b@c", "unix:///a:b@c", None),
    ],
)
def test_password_of_a_url(url: str, public: str, password: str | None) -> None:
    assert split_password(url) == (public, password)
    assert password is None or password not in mask_url(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:pa/ss@h:1/0", "redis://:***@h:1/0"),
        (":pa/s:s@h:1", ":***@h:1"),
        ("rediss://u:p/a@s?s#@h", "rediss://u:***@h"),
        ("redis://u/v:pass@h", "redis://u/v:***@h"),
        ("redis+sentinel://u:p/w@a:1,b:2/m", "redis+sentinel://u:***@a:1,b:2/m"),
        ("redis://u@h:1/0", "redis://u@h:1/0"),
        ("unix:///a:b@c", "unix:///a:b@c"),
    ],
)
def test_a_password_that_is_not_encoded_is_not_shown(url: str, shown: str) -> None:
    assert mask_url(url) == shown


def test_parameters_of_a_url_may_hold_a_password() -> None:
    assert mask_url("redis://u:pw@h/0?password=pw&db=1") == "redis://u:***@h/0?***"
    assert mask_url("unix:///run/r.sock?db=12") == "unix:///run/r.sock?db=12"


def test_config_survives_spawn() -> None:
    """Child processes get it pickled; (height, width) must not be swapped again."""
    config = Config.model_validate({"imageResize": "227,224", "imageResizeOrder": "wh", "redisPassword": "x"})

    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301  # our own bytes
    assert Config.model_validate(config.model_dump()).image_resize == (224, 227)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "modelPath is not set"),
        ("/path/to/model/directory", "modelPath is still /path/to/model/directory"),
    ],
)
def test_model_path_must_be_given(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(model_path=path).check_model_path()


def test_every_field_says_what_it_is() -> None:
    assert all(field.description for field in Config.model_fields.values())


def test_template_is_valid_and_shows_the_defaults() -> None:
    """Uncommenting every line of the template changes nothing but the model's path."""
    template = Path(__file__).parents[2] / "node" / "config" / "config.yaml"
    lines = [line.removeprefix("# ") for line in template.read_text().splitlines()]
    shown = [
        line for line in lines if line.split(":")[0] in {str(field.alias) for field in Config.model_fields.values()}
    ]

    values = {line.split(":")[0]: line.split(": ")[1].split(" #")[0].strip() for line in shown if ": " in line}
    del values["imageResize"], values["postProcessing"]
    loaded = load_config(template, {}, values)

    assert loaded.config == Config(model_path="/path/to/model/directory")
    assert len(shown) >= len(Config.model_fields) - 2  # all but what is only accepted from older files
