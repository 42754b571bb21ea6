"""Config files of every version of the original, with every key that a version had, brought over."""

import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.commands.migrate import migrate as command
from cluster_serving.node.config.loading import ConfigError, effective, load_config
from cluster_serving.node.config.migration import Change, Migration, migrate

SPARK = """
    spark:
      master: local[*]
      driver_memory: 4g
      executor_memory: 1g
      num_executors: 1
      executor_cores: 4
      total_executor_cores: 4
    """
FILES = {
    "0.7": """
    model:
      path: /opt/model
    data:
      src: localhost:6379
      image_shape: 3,224,320
    params:
      batch_size: 4
      top_n: 1
      engine_type: mklblas
    """
    + SPARK,
    "0.8": """
    model:
      path: /opt/model
      inputs: in
      outputs: out
    data:
      src: localhost:6379
      image_shape: 3,224,224
      filter:
    params:
      batch_size: 4
      performance_mode: OFF
      engine_type:
    redis:
      maxmem: 4g
    """
    + SPARK,
    "nightly": """
    model:
      path: /opt/model
      name: serving_stream
      mode: x
      inputs:
      outputs:
    data:
      src: localhost:6379
      image_shape: 3,224,224
      data_type: image
      tensor_shape: [[1], [2, 1, 2]]
      shape: [3, 224, 224]
      type: image, tensor
      filter: topN(5)
      resize: true
    params:
      batch_size:
      core_number: 4
      model_number: 1
      performance_mode: ON
    redis:
      maxmem: 8g
    secure:
      secure_enabled:
      secure_trust_store_path: keys/keystore.jks
      secure_struct_store_password: 1234qwer
      model_encrypted: false
    """
    + SPARK,
    "0.9": """
    model:
      path: file:///opt/model
      name: resnet
    data:
      src: localhost:6379
      shape: [3, 224, 224]
      type: sparse_tensor
      filter: None
      resize: true
      batched: false
    params:
      core_number: 4
      model_number: 2
      performance_mode: OFF
    redis:
      maxmem: 8g
      timeout: 5000
    secure:
      secure_enabled: false
      secure_trust_store_path:
      secure_struct_store_password:
      model_encrypted: false
      record_encrypted: true
    flink:
      rest: localhost:8081
    """,
    "0.10": """
    modelPath: /opt/model
    jobName:
    postProcessing: pickTopN(2)
    imageResize: 224,320
    inputAlreadyBatched: false
    coreNumberPerMachine: -1
    modelParallelism: 10
    threadPerModel: "1"
    flinkRestUrl: localhost:8081
    redisUrl: localhost:6379
    redisMaxmemory: 8g
    redisTimeout: 5000
    redisSecureEnabled: false
    redisSecureTrustStorePath: keys/keystore.jks
    redisSecureStructStorePassword: 1234qwer
    secureEnabled:
    secureTrustStorePath:
    secureStructStorePassword:
    modelEncrypted: false
    recordEncrypted: false
    performance_mode: OFF
    wrong_config: value
    """,
    "2.x": """
    MODELPATH: /opt/model
    jobName: 123456
    postProcessing: topN(1)
    imageResize: 224,224
    inputAlreadyBatched: true
    coreNumberPerMachine: 4
    modelParallelism: 2
    threadPerModel: 2
    flinkRestUrl: localhost:8081
    redisUrl: localhost:6379
    redisMaxMemory: 4g
    redisTimeout: 5000
    redisSecureEnabled: false
    redisSecureTrustStorePath:
    redisSecureTrustStorePassword: 1234qwer
    modelEncrypted: false
    recordEncrypted: false
    performance_mode: ON
    queueUsed: redis
    kafkaUrl: localhost:9092
    """,
}


REFUSED = {"0.9": "record_encrypted: true", "0.10": "wrong_config: value"}
"""Lines with which start refuses an old file: secrets that the original had in its code, and a key that no version had."""
TABLES = Path(__file__).parents[3] / "shared" / "parity.md"


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "old.yaml"
    file.write_text(textwrap.dedent(text).lstrip("\n"))
    return file


def change(migration: Migration, before: str) -> Change:
    return next(each for each in migration.changes if each.before.startswith(before))


@pytest.mark.parametrize("version", FILES)
def test_the_new_file_starts_a_job_with_the_settings_of_the_old_one(tmp_path: Path, version: str) -> None:
    old = written(tmp_path, FILES[version])
    lines = [line for line in old.read_text().splitlines() if line.partition(":")[2].strip()]

    migration = migrate(old)
    new = tmp_path / "new.yaml"
    new.write_text(migration.text(old.name))
    loaded = load_config(new, {}, {})

    assert migration.version == version
    assert loaded.ignored == {}
    assert loaded.config.model_path == "/opt/model"
    told = [each.line for each in migration.changes if each.line]
    assert told == sorted(set(told))
    assert len(told) >= len(lines)  # every key, those without a value too
    assert not any(each.must_act for each in migration.changes)
    if version not in REFUSED:
        before = load_config(old, {}, {}).config
        added = {each.now.partition(":")[0] for each in migration.changes if not each.line}
        of_old = before.model_dump(by_alias=True)
        of_new = loaded.config.model_dump(by_alias=True)
        differ = {key for key in of_new if of_new[key] != of_old[key]}
        assert differ - added <= {"redisSecureTrustStorePath", "redisSecureTrustStorePassword"}


@pytest.mark.parametrize("version", FILES)
def test_the_old_file_itself_starts_a_job(tmp_path: Path, version: str) -> None:
    old = written(tmp_path, FILES[version].replace(REFUSED.get(version, "-"), ""))

    loaded = load_config(old, {}, {})

    assert loaded.config.model_path == "/opt/model"
    assert all(loaded.ignored.values())  # the reason of each key that means nothing


@pytest.mark.skipif(not TABLES.exists(), reason="the tables of the original's keys are not there")
def test_the_files_have_every_key_of_the_original() -> None:
    tables = TABLES.read_text().partition("### 2.2")[2].partition("### 2.4")[0]
    keys = set(re.findall(r"^\| `([\w.]+)` \|", tables, re.MULTILINE))
    flat: set[str] = set()
    for text in FILES.values():
        for key, value in yaml.safe_load(textwrap.dedent(text)).items():
            flat |= {f"{key}.{name}" for name in value} if isinstance(value, dict) else {key.lower()}

    assert len(keys) > 40
    assert {key for key in keys if key not in flat and key.lower() not in flat} == set()


def test_settings_that_a_version_had_without_a_key_are_added(tmp_path: Path) -> None:
    added = {
        version: {each.now for each in migrate(written(tmp_path, text)).changes if not each.line}
        for version, text in FILES.items()
    }

    assert added == {
        "0.7": {"legacyStreams: 0.7"},
        "0.8": {"postProcessing: topN(1)", "legacyStreams: 0.8"},
        "nightly": {"legacyStreams: nightly"},
        "0.9": {"recordSecret: secret", "recordSalt: salt"},
        "0.10": {"imageResizeOrder: wh"},
        "2.x": set(),
    }


def test_every_change_has_its_reason(tmp_path: Path) -> None:
    nightly, flat = (migrate(written(tmp_path, FILES[version])) for version in ("nightly", "0.10"))

    assert change(nightly, "params.performance_mode: ON").now == "tuning: start"
    assert change(nightly, "data.type").why == "every record describes its own content"
    assert change(nightly, "spark.master: local[*]").why == "there is no JVM back end any more"
    assert change(nightly, "secure.secure_trust_store_path").why == "Redis is reached without TLS"
    assert change(nightly, "secure.secure_struct_store_password").before.endswith(": ***")
    assert change(flat, "wrong_config").why.startswith("no version knows the key")
    assert change(flat, "wrong_config").before == "wrong_config"  # without its value: a misspelt password
    assert change(flat, "jobName").why == "no value: the default holds"
    assert change(flat, "modelPath") == Change(1, "modelPath: /opt/model", "modelPath: /opt/model", "")


@pytest.mark.parametrize(
    ("text", "now", "why"),
    [
        ("model:\n  name: a\n", "modelPath", "start needs it"),
        (
            "modelPath: m\nredisSecureEnabled: true\nredisSecureTrustStorePath: k.jks\n",
            "redisSecureTrustStorePath: k.jks",
            "keytool",
        ),
    ],
)
def test_work_that_is_left_is_told(tmp_path: Path, text: str, now: str, why: str) -> None:
    (left,) = [each for each in migrate(written(tmp_path, text)).changes if each.must_act]

    assert left.now == now
    assert why in left.why


def test_one_setting_in_two_lines(tmp_path: Path) -> None:
    migration = migrate(written(tmp_path, "model: {path: /a}\nmodelPath: /b\n"))

    assert migration.settings["modelPath"] == "/b"
    assert change(migration, "model.path").why == "old.yaml, line 2 says the same, and wins"


@pytest.mark.parametrize(
    "value", ["a: b", "'quoted'", "# no comment", " spaces ", "[1, 2", "yes", "0x10", "ä\\n", "~", "null"]
)
def test_a_value_keeps_its_text(tmp_path: Path, value: str) -> None:
    new = tmp_path / "new.yaml"
    new.write_text(Migration("0.10", {"modelPath": "/m", "labels": "", "redisPassword": value}, []).text("old.yaml"))

    password = load_config(new, {}, {}).config.redis_password
    assert password is not None
    assert password.get_secret_value() == value


@pytest.mark.parametrize(
    ("setting", "text"),
    [("padding: {ids: 0, mask: 1}", "ids: 0, mask: 1"), ("objective: {latency: 20}", "latency: 20")],
)
def test_values_by_name_start_a_job_too(tmp_path: Path, setting: str, text: str) -> None:
    old, new = written(tmp_path, f"modelPath: /m\n{setting}\n"), tmp_path / "new.yaml"
    found = migrate(old)
    new.write_text(found.text(old.name))
    key = setting.partition(":")[0]

    assert found.settings[key] == text
    assert effective(load_config(new, {}, {}))[key] == effective(load_config(old, {}, {}))[key]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: [\n", "old.yaml, line 2: not valid YAML"),
        (
            "modelPath: m\nqueueUsed: kafka\n",
            "old.yaml, line 2: queueUsed is kafka, but only Redis is supported as the queue",
        ),
        (
            "modelPath: m\nmodelParallelism: many\n",
            "old.yaml, line 2: modelParallelism is many, but must be a whole number",
        ),
        ("data:\n  image_shape: 3,224\n", "old.yaml, line 2: data.image_shape is 3,224, but must be"),
    ],
)
def test_mistakes_name_the_line_and_the_cure(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        migrate(written(tmp_path, text))

    assert str(caught.value).startswith(message)


def test_the_command_prints_the_file_and_apart_from_it_the_reasons(tmp_path: Path) -> None:
    old = written(tmp_path, FILES["0.7"])

    done = CliRunner().invoke(command, [str(old)])
    missing = CliRunner().invoke(command, [str(tmp_path / "none.yaml")])
    alone = CliRunner().invoke(command, [str(old), "--redis-url", "x"])

    assert done.exit_code == ExitCode.OK
    assert done.stdout == migrate(old).text(old.name)
    assert done.stderr.startswith(f"{old} is a file of 0.7.\nline  before")
    assert missing.exit_code == ExitCode.CONFIG
    assert "there is no such file; give the path of the original" in missing.stderr
    assert alone.exit_code == ExitCode.USAGE
    assert "--redis-url goes with --dry-run" in alone.stderr


def test_the_next_command_holds_for_a_path_with_a_space(tmp_path: Path) -> None:
    folder = tmp_path / "my files"
    folder.mkdir()
    old = written(folder, FILES["0.7"])
    program = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "migrate", str(old)]
    near, terminal = os.openpty()
    try:
        done = subprocess.run(program, stdout=terminal, stderr=subprocess.PIPE, text=True, check=True)
    finally:
        os.close(terminal)
        os.close(near)

    [following] = [line for line in done.stderr.splitlines() if line.startswith("Next: ")]
    assert shlex.split(following)[:4] == ["Next:", "cluster-serving", "migrate", str(old)]
