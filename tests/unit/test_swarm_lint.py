"""Findings of `swarm check` in our own stack file with one thing changed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster_serving.client.servers.checks import Case
from cluster_serving.swarm.lint.check import check
from cluster_serving.swarm.lint.examiner import EXAMINER, STACK
from cluster_serving.swarm.lint.finding import parts_of
from cluster_serving.swarm.lint.quantities import docker_bytes, redis_bytes, seconds
from cluster_serving.swarm.live import STACK_VARIABLE
from cluster_serving.swarm.stack import PACKAGED

Document = dict[str, Any]


def merged(file: Path, directory: Path, **variables: str) -> Document:
    """A stack file as `docker stack config` prints it, as far as the rules look: variables filled in, volumes in the long form."""
    variables = {"CLUSTER_SERVING_CONFIG": str(directory / "config.yaml"), **variables}

    def fill(found: re.Match[str]) -> str:
        return variables.get(found[1], found[2])

    text = re.sub(r"(?<!\$)\$\{(\w+):-([^}]*)\}", fill, file.read_text())
    document: Document = yaml.safe_load(text.replace("$$", "$"))
    for service in document["services"].values():
        service["volumes"] = [_long(volume) for volume in service.get("volumes", [])]
    for secret in document["secrets"].values():
        secret["file"] = str(directory / secret["file"])
    return document


def _long(volume: Any) -> Document:
    if isinstance(volume, dict):
        return volume
    source, target = volume.split(":")[:2]
    return {"type": "bind" if source.startswith("/") else "volume", "source": source, "target": target}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text((PACKAGED / "config.yaml").read_text())
    password = tmp_path / "redis_password.txt"
    password.write_text("3f7a\n")
    password.chmod(0o600)
    return tmp_path


@pytest.fixture
def stack(folder: Path) -> Document:
    return merged(
        PACKAGED / "stack.yml",
        folder,
        CLUSTER_SERVING_MODEL_PATH="/models/resnet",
        CLUSTER_SERVING_NODE_IMAGE="cluster-serving-node:1.0",
        CLUSTER_SERVING_FRONTEND_IMAGE="registry.local:5000/cluster-serving-frontend:1.0",
    )


def test_nothing_is_wrong_with_our_own_stack(stack: Document) -> None:
    assert check(stack) == []


def test_services_are_known_by_program_image_and_name(stack: Document) -> None:
    stack["services"]["cache"] = {"image": "valkey:8", "command": ["redis-server", "/etc/redis.conf"]}
    stack["services"]["web"] = {"image": "nginx:1.27"}

    roles = {part.name: part.role for part in parts_of(stack)}

    assert roles == {"redis": "redis", "node": "node", "frontend": "frontend", "cache": "redis", "web": "other"}


Change = Callable[[Document], None]


def at(path: str, value: Any) -> Change:
    """Put a value at `service.key.key`; None removes it."""
    *above, last = path.split(".")

    def change(stack: Document) -> None:
        place = stack["services"]
        for key in above:
            place = place[key]
        if value is None:
            del place[last]
        else:
            place[last] = value

    return change


def in_redis(old: str, new: str) -> Change:
    """Change the script that starts Redis."""

    def change(stack: Document) -> None:
        command = stack["services"]["redis"]["command"]
        assert old in command[-1]
        command[-1] = command[-1].replace(old, new)

    return change


@pytest.mark.parametrize(
    ("change", "level", "service", "what"),
    [
        (at("node.deploy.resources.limits.memory", None), "error", "node", "no memory limit"),
        (at("redis.deploy.resources.limits.cpus", None), "warning", "redis", "no limit of cores"),
        (at("node.deploy.resources.limits.cpus", "lots"), "error", "node", "which is no number"),
        (at("frontend.ports", [{"target": 80, "published": "65536"}]), "error", "frontend", "does not exist"),
        (in_redis("policy noeviction", "policy allkeys-lru"), "error", "redis", "throws records away"),
        (in_redis("maxmemory-policy noeviction", ""), "warning", "redis", "leaves open"),
        (in_redis("appendonly yes", "appendonly no"), "error", "redis", "loses accepted records"),
        (in_redis("maxmemory 1gb", "maxmemory 2gb"), "error", "redis", "100%"),
        (in_redis("maxmemory 1gb", ""), "error", "redis", "is killed when its memory is full"),
        (in_redis("user default on #$hash ~* &* +@all", ""), "error", "redis", "lets everybody in"),
        (at("redis.volumes", []), "error", "redis", "in the container alone"),
        (at("redis.deploy.replicas", 2), "error", "redis", "several tasks"),
        (at("redis.deploy.update_config.order", "start-first"), "error", "redis", "two tasks write"),
        (at("redis.deploy.placement", None), "warning", "redis", "may move"),
        (at("redis.ports", [{"target": 6379, "published": 6379}]), "error", "redis", "is open to everybody"),
        (at("node.ports", [{"target": 80, "published": 80}]), "warning", "node", "nobody connects"),
        (at("node.stop_grace_period", "20s"), "error", "node", "may use 20 s to finish"),
        (at("frontend.stop_grace_period", None), "error", "frontend", "is killed 10s after"),
        (at("node.environment.CLUSTER_SERVING_DRAIN_TIMEOUT", "60"), "error", "node", "may use 60 s to finish"),
        (at("node.environment.CLUSTER_SERVING_REDIS_PASSWORD", "hunter22"), "error", "node", "in its variable"),
        (at("node.environment.CLUSTER_SERVING_REDIS_URL", "redis://:hunter22@r:1"), "error", "node", "in its variable"),
        (at("frontend.command", ["--redis-password", "hunter22"]), "error", "frontend", "in its command line"),
        (at("frontend.command", ["--requirepass=hunter22"]), "error", "frontend", "in its command line"),
        (in_redis("user default on #$hash", "requirepass hunter22\n#"), "error", "redis", "in its command line"),
        (in_redis('save ""', "sentinel auth-pass m hunter22"), "error", "redis", "in its command line"),
        (at("frontend.healthcheck", None), "warning", "frontend", "no healthcheck"),
        (at("frontend.healthcheck.disable", True), "error", "frontend", "switched off"),
        (at("node.deploy.update_config.failure_action", None), "warning", "node", "not rolled back"),
        (at("node.deploy.update_config.order", None), "warning", "node", "stops a task before"),
        (at("node.image", "cluster-serving-node"), "warning", "node", "another image on each machine"),
        (at("node.image", "registry:5000/serving/node:latest"), "warning", "node", "another image on each machine"),
        (at("node.environment.CLUSTER_SERVING_MODEL_PATH", ""), "error", "node", "has no model"),
        (at("node.environment.CLUSTER_SERVING_MODEL_PATH", "/data/x"), "warning", "node", "nothing is mounted there"),
        (at("node.environment.CLUSTER_SERVING_BATCH_SIZE", "many"), "error", "node", "CLUSTER_SERVING_BATCH_SIZE"),
    ],
)
def test_finds(stack: Document, change: Change, level: str, service: str, what: str) -> None:
    change(stack)

    found = check(stack)

    assert [(finding.level, finding.service) for finding in found] == [(level, service)]
    assert what in found[0].what
    assert found[0].mend


@pytest.mark.parametrize(
    "name", ["TOKEN", "HF_TOKEN", "API_TOKENS", "apiToken", "tokenValue", "SALT", "MY_API_KEY", "DbPassword"]
)
def test_finds_a_secret_by_its_name(stack: Document, name: str) -> None:
    at(f"node.environment.{name}", "5f3a, 77")(stack)

    (finding,) = check(stack)

    assert f"has a secret in its variable {name}" in finding.what


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("TOKENIZER", "bert-base"),
        ("tokenizerPath", "/models/t"),
        ("MAX_TOKENS", "512"),
        ("MaxNewTokens", "512"),
        ("CLUSTER_SERVING_TOKENS_PER_SECOND", "0.5"),
    ],
)
def test_numbers_and_readers_of_tokens_are_no_secrets(stack: Document, name: str, value: str) -> None:
    at(f"frontend.environment.{name}", value)(stack)

    assert check(stack) == []


def test_is_content_with_a_digest_a_url_and_a_port_of_the_host(stack: Document) -> None:
    at("node.image", "cluster-serving-node@sha256:0123")(stack)
    at("node.environment.CLUSTER_SERVING_MODEL_PATH", "https://models.local/resnet.tar.gz")(stack)
    at("frontend.ports", [{"target": 10020, "published": 80, "mode": "host"}])(stack)
    at("frontend.deploy.update_config.order", "stop-first")(stack)

    assert check(stack) == []


def test_reads_config_yaml_as_nodes_and_frontends_do(stack: Document, folder: Path) -> None:
    (folder / "config.yaml").write_text("drainTimeout: 40\nfrontend:\n  drainTimeout: 50\n  maxBodySize: 10m\n")

    found = {finding.service: finding.what for finding in check(stack)}

    assert found.keys() == {"node", "frontend"}
    assert "may use 40 s" in found["node"]
    assert "may use 50 s" in found["frontend"]


def test_finds_what_is_wrong_in_config_yaml(stack: Document, folder: Path) -> None:
    (folder / "config.yaml").write_text("modelPaht: /models/x\n")

    (finding,) = check(stack)

    assert finding.service == "node"
    assert "config.yaml, line 1: unknown key modelPaht; did you mean modelPath?" in finding.what


def test_finds_secrets_in_config_yaml(stack: Document, folder: Path) -> None:
    (folder / "config.yaml").write_text(
        "redisPassword: hunter22\nfrontend:\n  tokensPerSecond: 5\n  apiKeysFile: /keys\n"
    )

    found = check(stack)

    assert {finding.service for finding in found} == {"node", "frontend"}
    assert all("config.yaml (redisPassword)" in finding.what for finding in found)


@pytest.mark.parametrize("line", ["jobName: 2026-02-30", "batchSize: 0x_"])
def test_finds_secrets_beside_a_value_that_looks_like_another_one(stack: Document, folder: Path, line: str) -> None:
    (folder / "config.yaml").write_text(f"modelSecret: hunter22\nredisSecureEnabled: on\n{line}\n")

    assert any("config.yaml (modelSecret)" in finding.what for finding in check(stack))


def test_a_value_that_holds_itself_is_a_finding(stack: Document, folder: Path) -> None:
    (folder / "config.yaml").write_text("modelInputs: &a [*a]\n")

    assert any("config.yaml: a value is nested too deeply, or holds itself" in finding.what for finding in check(stack))


def test_finds_a_password_in_redis_conf_unless_it_is_a_template(stack: Document, folder: Path) -> None:
    conf = folder / "redis.conf"
    stack["configs"]["redis_conf"] = {"file": str(conf)}
    stack["services"]["redis"]["configs"] = [{"source": "redis_conf", "target": "/redis.conf"}]

    conf.write_bytes("# größer\nrequirepass hunter22\n".encode("latin-1"))
    (plain,) = check(stack)
    conf.write_text('requirepass {{ secret "redis_password" }}\n')

    assert "has a secret in redis.conf (requirepass)" in plain.what
    assert check(stack) == []


def test_finds_files_that_are_missing_empty_or_open_to_others(stack: Document, folder: Path) -> None:
    password, certificate = folder / "redis_password.txt", folder / "frontend.pem"
    stack["secrets"]["frontend_tls"] = {"file": str(certificate)}
    password.chmod(0o644)

    found = check(stack)
    missing_and_open = {finding.level: finding.what for finding in found}
    certificate.touch(mode=0o600)
    password.chmod(0o600)
    empty = [finding.what for finding in check(stack)]

    assert "there is no file" in missing_and_open["error"]
    assert "others can read" in missing_and_open["warning"]
    assert f"chmod 600 {password}" in [finding.mend for finding in found]
    assert len(empty) == 1
    assert "is empty" in empty[0]


def test_a_redis_conf_counts_as_the_command_line_does(stack: Document, folder: Path) -> None:
    conf = folder / "redis.conf"
    conf.write_text("appendonly yes\nmaxmemory 512mb\nmaxmemory-policy volatile-ttl\naclfile /run/secrets/acl\n")
    stack["configs"]["redis_conf"] = {"file": str(conf)}
    redis = stack["services"]["redis"]
    redis |= {
        "command": ["redis-server", "/redis.conf"],
        "configs": [{"source": "redis_conf", "target": "/redis.conf"}],
    }

    (finding,) = check(stack)
    redis["command"] += ["--maxmemory-policy", "noeviction"]
    conf.write_text(conf.read_text().replace("maxmemory-policy volatile-ttl\n", ""))

    assert "volatile-ttl" in finding.what
    assert check(stack) == []


@pytest.mark.parametrize("name", ["monitoring", "tls"])
def test_nothing_is_wrong_with_our_additions(name: str, stack: Document, folder: Path) -> None:
    (folder / "grafana_password.txt").touch(mode=0o600)
    (folder / "grafana_password.txt").write_text("x")
    (folder / "frontend.pem").touch(mode=0o600)
    (folder / "frontend.pem").write_text("x")
    added = merged(PACKAGED / f"{name}.yml", folder, CLUSTER_SERVING_MONITORING=str(PACKAGED / "monitoring"))
    for config in added.get("configs", {}).values():
        config["file"] = str(PACKAGED / config["file"])
    if name == "tls":  # what docker merges into the frontend
        frontend = stack["services"]["frontend"]
        frontend["environment"] |= added["services"].pop("frontend")["environment"]
    for part in ("services", "configs", "secrets"):
        stack[part] |= added.get(part, {})

    assert check(stack) == []


def test_quantities() -> None:
    assert [seconds(text) for text in ("30s", "1m0s", "1h2m3.5s", "500ms")] == [30, 60, 3723.5, 0.5]
    assert [redis_bytes(text) for text in ("1gb", "1g", "100", "512MB", "x")] == [2**30, 10**9, 100, 2**29, 0]
    assert [docker_bytes(text) for text in ("2147483648", "2g", "512M", "1GiB", "")] == [2**31, 2**31, 2**29, 2**30, 0]


FAULTS: list[tuple[str, str, Change]] = [
    ("CS-STACK-LIMITS", "fail", at("node.deploy.resources.limits", None)),
    ("CS-STACK-EXPOSED", "fail", at("node.environment.CLUSTER_SERVING_REDIS_PASSWORD", "geheim")),
    ("CS-STACK-VERSIONS", "warn", at("frontend.image", "cluster-serving-frontend:0.9")),
]


@pytest.mark.parametrize(("environ", "subject"), [({}, "stack serving"), ({STACK_VARIABLE: "mine"}, "stack mine")])
def test_doctor_looks_at_the_stack_that_the_environment_names(
    environ: dict[str, str], subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # there is no docker

    found = EXAMINER.examine(Case(None, environ))

    assert {(each.subject, each.status) for each in found} == {(subject, "skip")}


@pytest.mark.parametrize(("code", "status", "change"), FAULTS)
def test_doctor_has_codes_for_them(stack: Document, code: str, status: str, change: Change) -> None:
    assert {each.status for each in STACK.run(stack, "stack serving")} == {"ok"}
    change(stack)

    found = {each.code: each for each in STACK.run(stack, "stack serving") if each.is_problem}

    assert {code: each.status for code, each in found.items()} == {code: status}
    assert "geheim" not in str(found)
