"""Secrets that a frontend knows stand nowhere that others read: its log, `ps`, its answers, --print-config."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from support.certificates import PASSWORD, write_certificates
from support.private_redis import PrivateRedis, free_port
from support.running_frontend import RunningFrontend, running_frontend

REDIS_PASSWORD, API_KEY, SECRET, SALT, TRUST_TOKEN = (
    f"{kind}-5up/er+5ecret" for kind in ("redis", "api", "model", "salt", "trust")
)
SECRETS = (REDIS_PASSWORD, API_KEY, SECRET, SALT, TRUST_TOKEN, PASSWORD)
BODY = f"secret={SECRET}&salt={SALT}".encode()
OPEN = ("/", "/livez", "/readyz", "/docs", "/openapi.json")
CLOSED = ("/metrics", "/models", "/models/named", "/v2/models/named", "/v1/models/named", "/predict", "/model-secure")


@pytest.fixture
def locked_redis(tmp_path: Path) -> Iterator[PrivateRedis]:
    """One with a password, that knows no HSET: it repeats what it was told in its error."""
    directory = tmp_path / "redis"
    directory.mkdir()
    server = PrivateRedis(directory, "--rename-command", "HSET", "")
    server.client().config_set("requirepass", REDIS_PASSWORD)
    yield server
    server.stop()


@pytest.fixture
def frontend(tmp_path: Path, locked_redis: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningFrontend]:
    write_certificates(tmp_path)
    (tmp_path / "keys").write_text(f"somebody:{API_KEY}\n")
    (tmp_path / "password").write_text(REDIS_PASSWORD)
    servable = {
        "modelName": "named",
        "redisInputQueue": "job",
        "redisHost": "127.0.0.1",
        "redisPort": str(locked_redis.port),
        "redisTrustStoreToken": TRUST_TOKEN,
    }
    (tmp_path / "servables.yaml").write_text(yaml.safe_dump({"modelMetaDataList": [servable]}))
    monkeypatch.setenv("CLUSTER_SERVING_REDIS_PASSWORD_FILE", str(tmp_path / "password"))
    monkeypatch.setenv("CLUSTER_SERVING_HTTPS_KEY_STORE_TOKEN", PASSWORD)
    https = {"httpsEnabled": True, "httpsKeyStorePath": str(tmp_path / "store.p12"), "securePort": free_port()}
    files = {
        "apiKeysFile": str(tmp_path / "keys"),
        "servableManagerConfPath": str(tmp_path / "servables.yaml"),
    }
    with running_frontend(
        tmp_path / "frontend", locked_redis, "--accessLog", "--logLevel=debug", workers=2, **https, **files
    ) as frontend:
        yield frontend


def ask(frontend: RunningFrontend, path: str, body: bytes | None = None, key: str = API_KEY) -> tuple[int, str]:
    request = urllib.request.Request(frontend.url + path, body, {"X-API-Key": key})  # noqa: S310 - our own http URL
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return response.status, f"{response.headers}{response.read().decode()}"
    except urllib.error.HTTPError as error:
        with error:
            return error.code, f"{error.headers}{error.read().decode()}"


def check(text: str) -> None:
    assert [secret for secret in SECRETS if secret in text] == []


def test_no_secret_is_told(frontend: RunningFrontend, locked_redis: PrivateRedis) -> None:
    for path in (*OPEN, *CLOSED):
        check(ask(frontend, path)[1])
    for path in CLOSED:
        for body in (b"{", BODY):
            check(ask(frontend, path, body)[1])
    assert ask(frontend, "/model-secure", BODY)[0] == 500  # it knows no HSET

    locked_redis.stop()
    assert ask(frontend, "/model-secure", BODY)[0] == 503
    check(ask(frontend, "/readyz")[1])

    first = psutil.Process(frontend.process.pid)
    check("\n".join(word for process in (first, *first.children()) for word in process.cmdline()))
    check(frontend.log)


def test_a_key_is_wanted_where_anything_is_told_or_done(frontend: RunningFrontend) -> None:
    assert [ask(frontend, path, key="")[0] for path in CLOSED if path not in {"/predict", "/model-secure"}] == [401] * 5
    assert [ask(frontend, path, BODY, key=API_KEY[:-1])[0] for path in ("/predict", "/model-secure")] == [401] * 2
    assert 401 not in [ask(frontend, path, key="")[0] for path in OPEN]


def test_no_secret_is_printed_with_the_settings(tmp_path: Path) -> None:
    url = f"redis://user:{'redis-5up%2Fer+5ecret'}@127.0.0.1:1/0"
    words = ["--print-config", f"--redisUrl={url}", "--redissTrustStoreToken", TRUST_TOKEN]
    command = [sys.executable, "-P", "-m", "cluster_serving.frontend", *words]
    environment = os.environ | {"CLUSTER_SERVING_HTTPS_KEY_STORE_TOKEN": PASSWORD}

    result = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment, timeout=120
    )

    check(result.stdout + result.stderr)
    assert "5up" not in result.stdout
