"""Settings of models by URL, and what of them people may see."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster_serving.client.extras import install_command
from cluster_serving.client.servers.config.values import mask_address, secrets_of_address
from cluster_serving.client.servers.process.exit_codes import ExitCode, ModelFault
from cluster_serving.client.servers.process.redaction import secrets_of_config
from cluster_serving.node.config.loading import Config, ConfigError, effective, load_config
from cluster_serving.node.fetching.cache import Cache
from cluster_serving.node.fetching.installed import check_can_fetch
from cluster_serving.node.fetching.placing import fetched, request_of
from cluster_serving.node.job.directory import Job
from cluster_serving.node.lifecycle.options import StartOptions

SUM = f"sha256:{'0123456789abcdef' * 4}"


def options(**given: Any) -> dict[str, Any]:
    names = ("config_path", "parallelism", "omp", "model_path", "job_name", "redis_url")
    return dict.fromkeys(names) | {"settings": ()} | given


@pytest.mark.parametrize("url", ["https://host/m.tar.gz", "http://host:1/m?x=y", "s3://bucket/prefix/", "HTTPS://h/m"])
def test_a_url_stays_as_it_is(tmp_path: Path, url: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"modelPath: {url}\nmodelChecksum: {SUM.upper()}\nmodelCache: models\nmodelMaxBytes: 2g\n")

    config = load_config(file, {}, {}).config

    assert config.model_is_remote
    assert (config.model_path, config.model_checksum) == (url, SUM)
    assert (config.model_cache, config.model_max_bytes) == (str(tmp_path / "models"), 2 << 30)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"modelPath": "hdfs://h/m"}, "must be a local path; copy what hdfs:// holds to this machine first"),
        ({"labels": "https://h/m"}, "must be a local path"),
        ({"modelPath": "https:///m"}, "modelPath is a URL without a valid host"),
        ({"modelPath": "http://[h/m"}, "modelPath is a URL without a valid host"),
        ({"modelPath": "http://u:p/ss@h/m"}, "modelPath is a URL without a valid host.* / is %2F"),
        ({"modelPath": "https://h/m", "modelChecksum": "md5:00"}, "must be sha256: and 64 hexadecimal digits"),
        ({"modelPath": "https://h/m", "modelChecksum": SUM[:-1]}, "must be sha256: and 64 hexadecimal digits"),
        (
            {"modelPath": "/models/m", "modelChecksum": SUM},
            "modelChecksum is for a model from a URL, and modelPath is no URL",
        ),
    ],
)
def test_what_is_wrong(settings: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_config(None, {}, settings)


def test_nobody_sees_what_opens_a_url() -> None:
    url = "https://user:p%40ss@host/m.tar.gz?X-Amz-Signature=0123456789abcdef&x=1"

    loaded = load_config(None, {"CLUSTER_SERVING_MODEL_PATH": url}, {})

    assert effective(loaded)["modelPath"] == "https://***@host/m.tar.gz?***"
    hidden = set(secrets_of_config(loaded.config))
    assert {"user:p@ss", "user:p%40ss", "p@ss", "0123456789abcdef"} <= hidden
    assert "1" not in hidden


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://u:ge/heim@h/m", "http://***"),
        ("http://u:geheim#1@h/m", "http://***"),
        ("http://u:geheim@[h/m", "http://***"),
        (" https://u:geheim@h/m", "https://***@h/m"),
        ("ftp://u:geheim@h/m", "ftp://***@h/m"),
    ],
)
def test_nobody_sees_what_is_in_a_url_that_is_none(text: str, shown: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(None, {"CLUSTER_SERVING_MODEL_PATH": text}, {})

    assert "geheim" not in str(raised.value)
    assert mask_address(text).strip() == shown
    assert list(secrets_of_address(f"x{text}")) == []


def test_paths_are_no_addresses() -> None:
    assert mask_address("/models/a?b@c") == "/models/a?b@c"
    assert list(secrets_of_address("/models/a?b@c")) == []


@pytest.mark.parametrize(
    "given", [{"model_path": "https://u:geheim@h/m"}, {"settings": ("MODEL_path=https://h/m?token=geheim",)}]
)
def test_a_secret_in_a_url_is_refused_on_the_command_line(given: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="does not belong on a command line") as raised:
        StartOptions.of(options(**given))

    assert "geheim" not in str(raised.value)


def test_a_url_on_the_command_line_is_remembered() -> None:
    given = StartOptions.of(options(model_path="https://h/m", settings=(f"modelChecksum={SUM}",)))

    assert given.without_secrets()[0].argv() == ["--model-path=https://h/m", f"--set=modelChecksum={SUM}"]


def test_where_it_is_kept(tmp_path: Path) -> None:
    config = Config(model_path="s3://b/m/", model_max_bytes=7)
    job = Job("a/b", tmp_path / "a%2Fb")

    alone = request_of(config, job)
    shared = request_of(config.model_copy(update={"model_cache": "/var/models"}), job)

    assert (alone.url, alone.checksum, alone.max_bytes) == ("s3://b/m/", "", 7)
    assert alone.directory == tmp_path / "a%2Fb" / "models"
    assert shared.directory == Path("/var/models/a%2Fb")


def test_a_local_model_is_not_fetched(tmp_path: Path) -> None:
    config = Config(model_path="/models/m")

    assert fetched(config, Job("j", tmp_path / "j"), print) == (config, None)
    assert not (tmp_path / "j").exists()


def test_names_in_the_cache_are_plain(tmp_path: Path) -> None:
    path = Cache(tmp_path)._path("../ä b.tar.gz", "1")  # pyright: ignore[reportPrivateUsage]

    assert path.parent == tmp_path
    assert re.fullmatch(r"_+b\.tar\.gz-[0-9a-f]{12}", path.name)


def test_what_fetches_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(ModelFault) as raised:
        check_can_fetch("https://u:p@h/m")

    assert str(raised.value) == (
        f"https://***@h/m is fetched with the package obstore, which is not installed: {install_command('fetch')}"
    )
    assert raised.value.exit_code == ExitCode.MODEL
