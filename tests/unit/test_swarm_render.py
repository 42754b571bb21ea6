"""`swarm render` and `swarm check` with the real docker command, which needs no engine for them; and what is read from a stack."""

import importlib.util
import json
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from cluster_serving import __version__
from cluster_serving.client.servers.process import installed
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.swarm.cli import swarm
from cluster_serving.swarm.frontends import parse
from cluster_serving.swarm.live import Service, Stack
from cluster_serving.swarm.stack import PACKAGED, Source, check_places, check_replicas, keep_what_runs, save
from cluster_serving.swarm.variables import VARIABLES, given_model, model_in_container, variables
from support.swarm import sender

_DOCKER = shutil.which("docker")


def _merges() -> bool:
    """Return whether there is a docker command that knows `docker stack config`: 25 or newer."""
    if _DOCKER is None:
        return False
    told = subprocess.run([_DOCKER, "stack", "config", "--help"], capture_output=True, text=True, check=False)
    return "docker stack config" in told.stdout


merges = pytest.mark.skipif(
    not _merges(), reason="needs the docker command, 25 or newer (package docker-cli); no engine"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")  # nothing here may ask an engine
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(swarm, arguments)


def rendered(*arguments: str) -> dict[str, Any]:
    """Return the stack file of `render`, as `docker stack deploy` will read it."""
    result = call("render", *arguments)
    assert result.exit_code == ExitCode.OK, result.output
    return dict(yaml.safe_load(result.stdout.replace("$$", "$")))


@merges
def test_a_model_is_all_that_a_first_deploy_needs(folder: Path) -> None:
    document = rendered("--model", "/srv/models/resnet")

    node, frontend = document["services"]["node"], document["services"]["frontend"]
    assert node["image"] == f"cluster-serving-node:{__version__}"
    assert node["environment"]["CLUSTER_SERVING_MODEL_PATH"] == "/models/resnet"
    assert {"type": "bind", "source": "/srv/models", "target": "/models", "read_only": True} in node["volumes"]
    assert (node["deploy"]["replicas"], frontend["deploy"]["replicas"]) == (2, 2)
    assert frontend["ports"] == [{"target": 10020, "published": 10020}]
    assert document["secrets"]["redis_password"]["file"] == str(folder / "redis_password.txt")
    assert list(folder.iterdir()) == []


@merges
def test_options_come_before_the_environment_and_that_before_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_SERVING_NODES", "5")
    monkeypatch.setenv("CLUSTER_SERVING_FRONTENDS", "4")

    services = rendered("--nodes", "3", "--cpus", "0.5", "--memory", "1g", "--port", "80")["services"]

    assert (services["node"]["deploy"]["replicas"], services["frontend"]["deploy"]["replicas"]) == (3, 4)
    assert services["node"]["deploy"]["resources"]["limits"] == {"cpus": "0.5", "memory": str(2**30)}
    assert services["frontend"]["ports"][0]["published"] == 80


@merges
def test_no_password_is_in_what_docker_inspect_shows() -> None:
    redis = rendered()["services"]["redis"]

    assert "requirepass" not in yaml.safe_dump(redis)
    assert "/run/secrets/redis_password" in redis["command"][-1]
    assert "exec setpriv" in redis["command"][-1]


@merges
def test_a_config_is_named_by_its_content(folder: Path) -> None:
    names = []
    for text in ("drainTimeout: 5\n", "drainTimeout: 6\n", "drainTimeout: 5\n"):
        (folder / "config.yaml").write_text(text)
        names.append(rendered("--stack", "shop")["configs"]["serving_config"]["name"])

    assert names[0] == names[2] != names[1]
    assert all(name.startswith("shop_serving_config_") for name in names)


@merges
def test_a_certificate_is_named_by_its_content_and_a_password_is_not(folder: Path) -> None:
    names = []
    for text in ("one", "another"):
        (folder / "frontend.pem").write_text(text)
        (folder / "redis_password.txt").write_text(text)
        secrets = rendered("--with", "tls", "--stack", "shop")["secrets"]
        names.append(secrets["frontend_tls"]["name"])
        assert "name" not in secrets["redis_password"]

    assert names[0] != names[1]
    assert all(name.startswith("shop_frontend_tls_") for name in names)


@merges
def test_a_saved_stack_is_whole_and_says_the_same(folder: Path) -> None:
    result = call("render", "--model", "/srv/models/x", "--with", "monitoring", "--output", "out")

    out = folder / "out"
    assert result.exit_code == ExitCode.OK, result.output
    assert {path.name for path in out.iterdir()} == {
        "stack.yml",
        "config.yaml",
        "redis_password.txt",
        "grafana_password.txt",
        "prometheus.yml",
        "datasource.yml",
        "dashboards.yml",
        "cluster-serving.json",
    }
    password = out / "redis_password.txt"
    assert stat.S_IMODE(password.stat().st_mode) == 0o600
    assert len(password.read_text().strip()) == 48
    merged = subprocess.run(
        [_DOCKER or "", "stack", "config", "-c", out / "stack.yml"], capture_output=True, text=True, check=True
    )
    again, printed = yaml.safe_load(merged.stdout), rendered("--model", "/srv/models/x", "--with", "monitoring")
    assert again["services"] == printed["services"]
    assert {name: one["name"] for name, one in again["configs"].items()} == {
        name: one["name"] for name, one in printed["configs"].items()
    }


def test_a_saved_secret_is_its_owners_alone(folder: Path) -> None:
    (folder / "frontend.pem").write_text("key")
    (out := folder / "out").mkdir()
    (out / "frontend.pem").write_text("an older copy, which all can read")
    document = {"secrets": {"certificate": {"file": str(folder / "frontend.pem")}}}

    save(document, out)

    assert stat.S_IMODE((out / "frontend.pem").stat().st_mode) == 0o600
    assert (out / "frontend.pem").read_text() == "key"


def test_saved_files_of_one_name_stay_apart(folder: Path) -> None:
    for name in ("a/app.yml", "b/app.yml", "c/stack.yml", "out/own.yml", "d/own.yml"):
        (folder / name).parent.mkdir()
        (folder / name).write_text(name)
    files = {
        "a": "a/app.yml",
        "again": "a/app.yml",
        "b": "b/app.yml",
        "c": "c/stack.yml",
        "d": "d/own.yml",
        "e": "out/own.yml",
    }
    document = {"configs": {key: {"file": str(folder / name)} for key, name in files.items()}}

    save(document, folder / "out")

    saved = {key: entry["file"] for key, entry in document["configs"].items()}
    assert {key: (folder / "out" / file).read_text() for key, file in saved.items()} == files
    assert saved == {
        "a": "./app.yml",
        "again": "./app.yml",
        "b": "./b-app.yml",
        "c": "./c-stack.yml",
        "d": "./d-own.yml",
        "e": "./own.yml",
    }
    assert "configs" in yaml.safe_load((folder / "out" / "stack.yml").read_text())


@merges
def test_a_password_that_is_there_stays(folder: Path) -> None:
    (folder / "redis_password.txt").write_text("mine")

    call("render", "--output", ".")

    assert (folder / "redis_password.txt").read_text() == "mine"


@merges
def test_files_are_laid_over_each_other(folder: Path) -> None:
    (folder / "base.yml").write_text((PACKAGED / "stack.yml").read_text())
    (folder / "more.yml").write_text('version: "3.8"\nservices: {node: {deploy: {resources: {limits: {cpus: "7"}}}}}\n')

    services = rendered("-c", "base.yml", "-c", "more.yml")["services"]

    assert services["node"]["deploy"]["resources"]["limits"] == {"cpus": "7", "memory": str(4 * 2**30)}


@merges
@pytest.mark.parametrize(
    "text",
    [
        *("1234567e8", "+1.5e3", "1e-3", "0o14", "0X1F", "0B11", "1_0e5", "007", ".5", "1:30"),
        *("2026-1-2", "2026-1-2 3:4:5", "2026-02-30", "2026-13-45T99:99:99Z", "2026-01-02 03:04:05 +01:00"),
    ],
)
def test_a_text_that_looks_like_a_number_or_date_stays_as_it_is(folder: Path, text: str) -> None:
    assert _DOCKER is not None
    variables = {"services": {"node": {"image": "x", "environment": {"COMMIT": text, text: "value"}}}}
    (folder / "own.yml").write_text(json.dumps({"version": "3.8", **variables}))

    result = call("render", "-c", "own.yml")

    (folder / "rendered.yml").write_text(result.stdout)
    read = subprocess.run(
        [_DOCKER, "stack", "config", "-c", "rendered.yml"], capture_output=True, text=True, check=True
    ).stdout
    assert f'COMMIT: "{text}"' in read or f"COMMIT: {text}\n" in read
    assert f'"{text}": value' in read or f"{text}: value\n" in read


@merges
def test_global_is_one_node_on_every_machine_and_no_number_of_them() -> None:
    node = rendered("--model", "/srv/models/x", "--with", "global")["services"]["node"]
    refused = call("render", "--with", "global", "--nodes", "3")

    assert node["deploy"]["mode"] == "global"
    assert "replicas" not in node["deploy"]
    assert refused.exit_code == ExitCode.FAILED
    assert "leave out --nodes" in refused.output


@merges
def test_the_docker_socket_is_in_the_scaler_alone_which_only_the_autoscaler_reaches(folder: Path) -> None:
    (folder / "redis_password.txt").touch(mode=0o600)
    (folder / "redis_password.txt").write_text("x")
    document = rendered("--model", "/srv/models/x", "--with", "autoscale")
    services = document["services"]

    assert [name for name, one in services.items() if "docker.sock" in json.dumps(one)] == ["scaler"]
    assert [name for name, one in services.items() if "scaling" in one["networks"]] == ["autoscaler", "scaler"]
    assert list(services["scaler"]["networks"]) == ["scaling"]
    assert document["networks"]["scaling"]["internal"] is True
    assert "secrets" not in services["scaler"]
    assert call("check", "--model", "/srv/models/x", "--with", "autoscale").output == "Nothing is wrong.\n"


@merges
def test_wrong_settings_of_the_autoscaler_are_found_before_a_deploy(folder: Path) -> None:
    (folder / "config.yaml").write_text("autoscale: {minimum: 2}\n")

    result = call("check", "--model", "/srv/models/x", "--with", "autoscale")

    assert result.exit_code == ExitCode.FAILED
    assert "unknown key minimum; did you mean min?" in " ".join(result.output.split())


def test_an_autoscaler_has_no_number_to_set_where_every_machine_has_a_node() -> None:
    result = call("render", "--with", "autoscale", "--with", "global")

    assert result.exit_code == ExitCode.FAILED
    assert "no number for --with autoscale to set" in result.output


@merges
def test_everybody_reaches_a_redis_with_replicas_through_its_sentinels(folder: Path) -> None:
    (folder / "redis_password.txt").touch(mode=0o600)
    (folder / "redis_password.txt").write_text("x")
    clients = {"node", "frontend"}

    alone = rendered("--model", "/srv/models/x", "--with", "replicas")["services"]
    scaled = rendered("--model", "/srv/models/x", "--with", "replicas", "--with", "autoscale")["services"]

    for services, expected in ((alone, clients), (scaled, clients | {"autoscaler"})):
        environments = {name: one.get("environment", {}) for name, one in services.items()}
        assert {name for name, one in environments.items() if "CLUSTER_SERVING_REDIS_URL" in one} == expected
        assert {environments[name]["CLUSTER_SERVING_REDIS_URL"] for name in expected} == {sender.URL}
        assert call("check", "--model", "/srv/models/x", "--with", "replicas").output == "Nothing is wrong.\n"
    volumes = [one["volumes"][0]["source"] for name, one in alone.items() if name.startswith(("redis", "sentinel"))]
    assert len(set(volumes)) == 6


def test_a_redis_with_replicas_is_not_made_one_alone_by_oversight() -> None:
    running = Stack("serving", {name: service(name) for name in ("redis", "redis-2")}, [])

    check_replicas({"services": {"redis": {}, "redis-2": {}}}, running)
    with pytest.raises(Fault, match="give --with replicas again"):
        check_replicas({"services": {"redis": {}}}, running)


def test_replicas_of_redis_without_a_machine_are_refused() -> None:
    asked = {"deploy": {"placement": {"constraints": ["node.role == manager", "node.labels.redis == 2"]}}}
    document = {"services": {"redis": {}, "redis-2": asked}}

    check_places(document, [{}, {"redis": "2"}])
    with pytest.raises(Fault, match=r"label redis=2, which redis-2 asks for: docker node update --label-add redis=2 M"):
        check_places(document, [{}, {"redis": "3"}])


@merges
def test_a_password_lies_beside_the_stack_file_but_never_beside_ours(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "stack.yml").write_bytes((PACKAGED / "stack.yml").read_bytes())
    mine, ours = (
        rendered("-c", str(path / "stack.yml"), "--model", "/srv/models/x") for path in (folder / "mine", PACKAGED)
    )

    assert mine["secrets"]["redis_password"]["file"] == str(folder / "mine" / "redis_password.txt")
    assert ours["secrets"]["redis_password"]["file"] == str(folder / "redis_password.txt")


@merges
def test_check_tells_by_its_exit_code(folder: Path) -> None:
    (folder / "redis_password.txt").touch(mode=0o600)
    (folder / "redis_password.txt").write_text("x")

    good, bad, listed = call("check", "--model", "/srv/models/x"), call("check"), call("check", "--json")

    assert (good.exit_code, good.output) == (ExitCode.OK, "Nothing is wrong.\n")
    assert bad.exit_code == ExitCode.FAILED
    assert bad.output == (
        "error: node has no model\n  -> deploy with --model, or set modelPath in config.yaml\n1 error, 0 warnings.\n"
    )
    assert [finding["service"] for finding in json.loads(listed.stdout)] == ["node"]
    assert listed.exit_code == ExitCode.FAILED


@merges
def test_what_docker_refuses_is_told_in_its_words(folder: Path) -> None:
    (folder / "bad.yml").write_text('version: "3.8"\nservices: {node: {image: x, bogus: "0"}}\n')

    result = call("check", "-c", "bad.yml")

    assert result.exit_code == ExitCode.FAILED
    assert "bogus" in result.output


@merges
def test_a_file_that_is_not_utf_8_is_refused_by_docker(folder: Path) -> None:
    (folder / "bad.yml").write_bytes('version: "3.8"  # größer\n'.encode("latin-1"))

    result = call("check", "-c", "bad.yml")

    assert result.exit_code == ExitCode.FAILED
    assert "UTF-8" in result.output


@merges
def test_what_docker_refuses_without_a_name_is_explained(folder: Path) -> None:
    (folder / "bad.yml").write_text('version: "3.8"\nservices: {node: {image: x, cpuset: "0"}}\n')

    result = call("check", "-c", "bad.yml")

    assert result.exit_code == ExitCode.FAILED
    assert "cpuset" in result.output


def test_a_file_that_is_not_there_is_named() -> None:
    result = call("check", "-c", "nowhere.yml")

    assert result.exit_code == ExitCode.FAILED
    assert "nowhere.yml: there is no such file" in result.output


@pytest.mark.parametrize("command", ["render", "check", "deploy", "status", "scale 2", "scaler"])
@pytest.mark.parametrize("name", ["a b", "", "-a", "a.b", "größe"])
def test_a_name_that_docker_takes_for_no_service_is_refused(command: str, name: str) -> None:
    result = call(*command.split(), "--stack", name)

    assert result.exit_code == ExitCode.USAGE
    assert f"{name!r} is no name of a stack" in result.output


@pytest.mark.parametrize("command", ["render", "check", "deploy"])
@pytest.mark.parametrize(
    ("option", "value"), [("--port", "99999"), ("--port", "http"), ("--cpus", "x"), ("--cpus", "-1"), ("--cpus", "nan")]
)
def test_a_port_and_cores_that_no_machine_has_are_refused(command: str, option: str, value: str) -> None:
    result = call(command, option, value)

    assert result.exit_code == ExitCode.USAGE
    assert f"Invalid value for '{option}'" in result.output


@pytest.mark.parametrize("url", ["foo", "scaler:10030", "ftp://scaler", "http://", "http://scaler:x"])
def test_an_address_that_is_none_of_a_scaler_is_refused(url: str) -> None:
    result = call("autoscale", "--scaler", url)

    assert result.exit_code == ExitCode.USAGE
    assert f"'{url}' is no URL such as http://scaler:10030" in result.output


@merges
def test_the_command_for_a_saved_stack_can_be_pasted() -> None:
    result = call("render", "--output", "my stack")

    assert "docker stack deploy -c 'my stack/stack.yml' serving" in result.output


def test_an_option_without_effect_is_refused(folder: Path) -> None:
    (folder / "mine.yml").write_text('version: "3.8"\nservices: {node: {image: x}}\n')

    result = call("render", "-c", "mine.yml", "--nodes", "3")

    assert result.exit_code == ExitCode.FAILED
    assert "no stack file says ${CLUSTER_SERVING_NODES}" in result.output


@pytest.mark.parametrize("command", ["render", "check", "deploy", "status", "scale 2", "update-model x", "logs", "rm"])
def test_without_a_docker_command_each_says_so(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))

    result = call(*command.split())

    assert result.exit_code == ExitCode.USAGE
    assert "there is no docker command on PATH" in result.output


@pytest.mark.skipif(_DOCKER is None, reason="needs the docker command (package docker-cli)")
@pytest.mark.parametrize("command", ["deploy", "status", "scale 2", "update-model x", "logs", "rm"])
def test_without_an_engine_each_says_so(command: str) -> None:
    result = call(*command.split())

    assert result.exit_code == ExitCode.FAILED
    assert "unix:///nowhere" in result.output


def test_the_services_of_a_stack_need_no_package_that_the_image_of_the_frontend_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locked = (Path(__file__).parents[2] / "docker" / "requirements-http.txt").read_text()

    def without_rich(name: str) -> object:
        return None if name == "rich" else importlib.util.find_spec(name)

    monkeypatch.setattr(installed, "find_spec", without_rich)

    assert "\nrich==" not in locked
    assert [call(name, "--help").exit_code for name in ("autoscale", "scaler")] == [ExitCode.OK, ExitCode.OK]
    assert "rich is missing" in call("deploy").output


def service(name: str, environ: dict[str, str] | None = None, source: str = "/srv/models", **more: Any) -> Service:
    container = {
        "Image": f"cluster-serving-{name}:1.0@sha256:0123",
        "Env": [f"{key}={value}" for key, value in (environ or {}).items()],
        "Mounts": [{"Type": "bind" if source.startswith("/") else "volume", "Source": source, "Target": "/models"}],
        "Configs": [{"ConfigName": "serving_serving_config_0a1b2c3d", "File": {"Name": "/etc/x"}}],
        "Secrets": [{"SecretName": "serving_redis_password", "File": {"Name": "redis_password"}}],
    }
    limits = {"NanoCPUs": 1_500_000_000, "MemoryBytes": 2**30}
    spec = {
        "Name": f"serving_{name}",
        "TaskTemplate": {"ContainerSpec": container, "Resources": {"Limits": limits}},
        "Mode": {"Replicated": {"Replicas": 7}},
    }
    return msgspec.convert({"ID": name, "Spec": spec, **more}, Service)


@pytest.fixture
def running() -> Stack:
    ports = {"Spec": {"Ports": [{"TargetPort": 10020, "PublishedPort": 8080}]}}
    environ = {"CLUSTER_SERVING_MODEL_PATH": "/models/resnet-2", "CLUSTER_SERVING_MODEL_CHECKSUM": ""}
    return Stack("serving", {"node": service("node", environ), "frontend": service("frontend", Endpoint=ports)}, [])


def test_what_is_not_given_stays_as_it_runs(running: Stack) -> None:
    kept = variables({"CLUSTER_SERVING_FRONTENDS": "1"}, {"CLUSTER_SERVING_NODE_IMAGE": "mine:2"}, running)

    assert kept == {
        "CLUSTER_SERVING_NODES": "7",
        "CLUSTER_SERVING_FRONTENDS": "1",
        "CLUSTER_SERVING_PORT": "8080",
        "CLUSTER_SERVING_NODE_CPUS": "1.5",
        "CLUSTER_SERVING_NODE_MEMORY": str(2**30),
        "CLUSTER_SERVING_FRONTEND_IMAGE": "cluster-serving-frontend:1.0",
        "CLUSTER_SERVING_FRONTEND_CPUS": "1.5",
        "CLUSTER_SERVING_MODELS": "/srv/models",
        "CLUSTER_SERVING_MODEL_PATH": "/models/resnet-2",
    }


def test_nodes_of_every_machine_stay_on_the_machines_that_they_may_use() -> None:
    template = {"ContainerSpec": {"Image": "n:1"}, "Placement": {"Constraints": ["node.labels.gpu == true"]}}
    spec = {"Name": "serving_node", "TaskTemplate": template, "Mode": {"Global": {}}}
    node = msgspec.convert({"ID": "n", "Spec": spec}, Service)

    kept = variables({}, {}, Stack("serving", {"node": node}, []))

    assert kept["CLUSTER_SERVING_NODE_PLACE"] == "node.labels.gpu == true"


def test_every_variable_of_the_stack_files_has_its_value_of_now() -> None:
    files = Source("serving", (), PACKAGED).paths()
    read = {one.name for one in VARIABLES}
    for file in PACKAGED.glob("*.yml"):
        named = set(re.findall(r"\$\{(CLUSTER_SERVING_\w+)", file.read_text()))
        assert named <= read | files.keys(), file.name


def test_redis_stays_where_its_data_is() -> None:
    template = {
        "ContainerSpec": {
            "Image": "redis:7",
            "Args": ["sh", "-ec", "cpus=2\nexec redis-server - <<END\nmaxmemory 3gb\nmaxmemory-policy noeviction\n"],
        },
        "Resources": {"Limits": {"MemoryBytes": 6 * 2**30}},
        "Placement": {"Constraints": ["node.labels.redis == true"]},
    }
    redis = msgspec.convert({"ID": "r", "Spec": {"Name": "serving_redis", "TaskTemplate": template}}, Service)

    kept = variables({}, {}, Stack("serving", {"redis": redis}, []))

    assert kept["CLUSTER_SERVING_REDIS_PLACE"] == "node.labels.redis == true"
    assert kept["CLUSTER_SERVING_REDIS_MAXMEMORY"] == "3gb"
    assert kept["CLUSTER_SERVING_REDIS_MEMORY"] == str(6 * 2**30)
    assert kept["CLUSTER_SERVING_REDIS_CPUS"] == "2"


def test_a_model_that_is_given_settles_all_that_says_where_it_is(running: Stack) -> None:
    environ = {"CLUSTER_SERVING_MODEL_CHECKSUM": "sha256:old"}

    kept = variables(given_model("/data/bert", None), environ, running)
    fetched = variables(given_model("https://models.local/bert.tar.gz", "sha256:ab"), {}, running)
    baked = variables(given_model("image:/opt/bert", None), {}, running)
    in_volume = variables(given_model("volume:bert", None), {}, running)

    of_model = ("CLUSTER_SERVING_MODELS", "CLUSTER_SERVING_MODEL_PATH", "CLUSTER_SERVING_MODEL_CHECKSUM")
    assert [kept[name] for name in of_model] == ["/data", "/models/bert", ""]
    assert [fetched[name] for name in of_model] == ["models", "https://models.local/bert.tar.gz", "sha256:ab"]
    assert [baked[name] for name in of_model] == ["models", "/opt/bert", ""]
    assert [in_volume[name] for name in of_model] == ["models", "/models/bert", ""]


@pytest.mark.parametrize("reference", ["resnet", "/", "", "image:bert", "image:/models/bert"])
def test_a_model_is_a_full_path_or_a_url(reference: str) -> None:
    with pytest.raises(Fault, match="--model is"):
        given_model(reference, None)


@pytest.mark.parametrize(
    ("reference", "seen"),
    [
        ("resnet-3", "/models/resnet-3"),
        ("/models/resnet-3", "/models/resnet-3"),
        ("/srv/models/vision/resnet-3", "/models/vision/resnet-3"),
        ("s3://bucket/resnet-3/", "s3://bucket/resnet-3/"),
        ("image:/opt/resnet-3", "/opt/resnet-3"),
        ("volume:resnet-3", "/models/resnet-3"),
    ],
)
def test_a_node_finds_a_model(reference: str, seen: str) -> None:
    assert model_in_container(reference, service("node")) == seen


@pytest.mark.parametrize("path", ["/models/prod/resnet-3", "/models/prod/vision/resnet-3", "/models/resnet-3"])
def test_a_model_of_the_machines_below_models_is_found_as_a_deploy_does(path: str) -> None:
    deployed = given_model(path, None)

    node = service("node", source=deployed["CLUSTER_SERVING_MODELS"])

    assert model_in_container(path, node) == deployed["CLUSTER_SERVING_MODEL_PATH"]


def test_a_path_in_the_container_is_what_is_mounted_there() -> None:
    assert model_in_container("/models/resnet-3", service("node", source="/models/prod")) == "/models/resnet-3"
    assert model_in_container("/models/resnet-3", service("node", source="serving_models")) == "/models/resnet-3"


@pytest.mark.parametrize("source", ["/srv/models", "serving_models"])
def test_a_model_that_no_node_sees_is_refused(source: str) -> None:
    with pytest.raises(Fault, match=f"do not see /data/x: {source} is mounted"):
        model_in_container("/data/x", service("node", source=source))


def test_files_that_are_not_here_any_more_are_what_swarm_has(folder: Path, running: Stack) -> None:
    (folder / "here.txt").write_text("x")
    document: dict[str, Any] = {
        "configs": {"serving_config": {"file": str(folder / "gone.yaml")}, "other": {"file": str(folder / "gone")}},
        "secrets": {"redis_password": {"file": str(folder / "here.txt")}},
    }

    kept = keep_what_runs(document, running)

    assert kept == ["serving_serving_config_0a1b2c3d"]
    assert document["configs"]["serving_config"] == {"external": True, "name": kept[0]}
    assert document["configs"]["other"] == {"file": str(folder / "gone")}
    assert document["secrets"]["redis_password"] == {"file": str(folder / "here.txt")}


def test_a_file_is_not_taken_for_one_whose_name_begins_alike(folder: Path) -> None:
    names = ["serving_app_extra_1a2b3c4d", "serving_app_9f9f9f9f"]
    container = {"Configs": [{"ConfigName": name} for name in names]}
    node = msgspec.convert(
        {"ID": "n", "Spec": {"Name": "serving_node", "TaskTemplate": {"ContainerSpec": container}}}, Service
    )
    document = {"configs": {key: {"file": str(folder / "gone")} for key in ("app", "app_extra", "ap")}}

    kept = keep_what_runs(document, Stack("serving", {"node": node}, []))

    assert kept == ["serving_app_9f9f9f9f", "serving_app_extra_1a2b3c4d"]
    assert document["configs"]["ap"] == {"file": str(folder / "gone")}


def test_a_frontend_tells_of_nodes_and_queues() -> None:
    known = parse(
        "# HELP cluster_serving_node_ready x\n"
        "cluster_serving_in_flight 1.0\n"
        'cluster_serving_node_ready{job_name="a",node="w1-1-0f"} 1.0\n'
        'cluster_serving_records_answered_total{job_name="a",node="w1-1-0f"} 12.0\n'
        'cluster_serving_backlog{job_name="a"} 3.0\n'
        'cluster_serving_backlog{job_name="{b} 1"} 4.0\n'
    )

    assert known.nodes == {("a", "w1-1-0f"): {"node_ready": 1.0, "records_answered_total": 12.0}}
    assert known.jobs == {"a": {"backlog": 3.0}, "{b} 1": {"backlog": 4.0}}
