"""The process of the frontend: how it starts, what it says, how it ends."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner, Result

from cluster_serving.client.extras import install_command
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.frontend.cli import frontend as command
from support.certificates import PASSWORD, write_certificates
from support.private_redis import PrivateRedis, free_port
from support.running_frontend import RunningFrontend, running_frontend
from support.wait import wait_until

KEYS_OF_REDIS = (("cert", "cert.pem"), ("key", "key.pem"), ("ca-cert", "cert.pem"))
COMMAND = [sys.executable, "-P", "-m", "cluster_serving.frontend"]


@pytest.fixture(scope="module")
def shared(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFrontend]:
    """A frontend of two processes, for tests that do not stop it."""
    home = tmp_path_factory.mktemp("frontend")
    with running_frontend(home, redis_server, "--requestTimeout=1", workers=2, maxBodySize="64k") as frontend:
        yield frontend


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with cert.pem, key.pem and store.p12 for localhost."""
    directory = tmp_path_factory.mktemp("tls")
    write_certificates(directory)
    return directory


def run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The command, until it ends."""
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=False, timeout=120, env=os.environ | environment
    )


def run_here(*words: str, **environment: str) -> Result:
    """The command in this process, until it ends."""
    return CliRunner(env=environment).invoke(command, list(words), catch_exceptions=False)


def get(url: str, context: ssl.SSLContext | None = None) -> str:
    with urllib.request.urlopen(url, timeout=60, context=context) as response:  # noqa: S310 - our own URL
        return str(response.read().decode())


def status_of(url: str, body: bytes) -> int:
    try:
        with urllib.request.urlopen(url, body, timeout=60) as response:  # noqa: S310 - our own URL
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def connect(frontend: RunningFrontend) -> socket.socket:
    return socket.create_connection(("127.0.0.1", frontend.port), timeout=20)


def is_refused(frontend: RunningFrontend) -> bool:
    try:
        connect(frontend).close()
    except ConnectionRefusedError:
        return True
    return False


def begin_request(frontend: RunningFrontend) -> socket.socket:
    """A connection whose request lacks its last byte."""
    connection = connect(frontend)
    connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123456789")
    return connection


def read_all(connection: socket.socket) -> bytes:
    chunks = []
    while chunk := connection.recv(1 << 16):
        chunks.append(chunk)
    return b"".join(chunks)


def children(frontend: RunningFrontend) -> list[psutil.Process]:
    return psutil.Process(frontend.process.pid).children()


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE  # process 1 of a container may never reap them
    except psutil.NoSuchProcess:
        return False


def test_it_says_where_it_listens_and_ends_with_0(redis_server: PrivateRedis, tmp_path: Path) -> None:
    with running_frontend(tmp_path, redis_server, jobName="mine") as frontend:
        welcome = get(frontend.url)
        code = frontend.stop()

    lines = frontend.log.splitlines()
    assert "welcome" in welcome
    assert code == ExitCode.OK
    assert [line.split("event=")[1].split()[0] for line in lines] == ["listening", "stopping", "stopped"]
    assert f"http={frontend.url} redis=redis://{redis_server.url}/0 job=mine" in lines[0]


@pytest.mark.parametrize("store", ["store.p12", "cert.pem"])
def test_https_beside_http(redis_server: PrivateRedis, tmp_path: Path, certificate: Path, store: str) -> None:
    port = free_port()
    trusting = ssl.create_default_context(cafile=certificate / "cert.pem")
    https = {"httpsEnabled": True, "httpsKeyStorePath": str(certificate / store), "securePort": port}
    key = {"httpsKeyPath": str(certificate / "key.pem")} if store == "cert.pem" else {"httpsKeyStoreToken": PASSWORD}

    with running_frontend(tmp_path, redis_server, **https, **key) as frontend:
        plain = get(f"{frontend.url}/livez")
        encrypted = get(f"https://localhost:{port}/livez", trusting)

    assert plain == encrypted
    assert f"https=https://127.0.0.1:{port}" in frontend.log
    assert PASSWORD not in frontend.log


def test_redis_over_tls_with_a_trust_store_of_the_original(
    tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, directory = free_port(), tmp_path / "redis"
    directory.mkdir()
    files = [word for kind, name in KEYS_OF_REDIS for word in (f"--tls-{kind}-file", str(certificate / name))]
    try:
        server = PrivateRedis(directory, "--tls-port", str(port), "--tls-auth-clients", "no", *files)
    except AssertionError:
        pytest.skip("this redis-server was built without TLS")
    monkeypatch.setenv("CLUSTER_SERVING_REDIS_SECURE_TRUST_STORE_PASSWORD", PASSWORD)
    words = ("--redisSecureEnabled=true", "--redissTrustStorePath", str(certificate / "trust.p12"))

    try:
        with running_frontend(tmp_path, server, *words, redisUrl=f"localhost:{port}") as frontend:
            status = status_of(f"{frontend.url}/predict/nobody", b'{"instances": [{"x": 1}]}')
    finally:
        server.stop()

    assert status == 404  # 503 if Redis could not be asked
    assert PASSWORD not in frontend.log


def test_the_access_log(redis_server: PrivateRedis, tmp_path: Path) -> None:
    with running_frontend(tmp_path, redis_server, "--accessLog") as frontend:
        get(f"{frontend.url}/")
        socket.create_connection(("127.0.0.1", frontend.port)).close()  # what looks whether a port is open
        frontend.stop()

    lines = [line for line in frontend.log.splitlines() if "event=request" in line]
    (line,) = [line for line in lines if "/livez" not in line]
    assert re.search(rf'client=127.0.0.1:\d+ request="GET {frontend.url}/" status=200 bytes=45 ms=\d+\.\d$', line)


def test_a_taken_port_is_one_sentence(shared: RunningFrontend) -> None:
    result = run("--port", str(shared.port), "--interface=127.0.0.1")

    assert result.returncode == ExitCode.FAILED
    assert result.stderr == (
        f"port {shared.port} of 127.0.0.1 is taken: another program listens there; choose another port\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--interface", "192.0.2.1"], "interface is 192.0.2.1, but it is not an address of this machine"),
        (["--interface", "no such"], "interface is no such, but it is not an address of this machine: Name or service"),
        (["--httpsEnabled"], "httpsKeyStorePath must be set"),
        (["--httpsEnabled", "--httpsKeyStorePath", "/nope.p12"], "/nope.p12 cannot be read: No such file"),
        (["--httpsEnabled", "--httpsKeyStorePath", "{}/store.p12"], "store.p12 needs a password"),
        (["--httpsEnabled", "--httpsKeyStorePath", "{}/cert.pem"], "cert.pem holds no key"),
        (["--apiKeysFile", "/nope"], "apiKeysFile /nope cannot be read"),
        (["--servableManagerConfPath", "/nope.yaml"], "servable Manager config dir not exist: there is no /nope.yaml"),
        (["-c", "/nope.yaml"], "/nope.yaml: there is no such file"),
        (["--port", "many"], "--port: port is many, but must be a whole number"),
    ],
)
def test_what_is_wrong_is_one_sentence(words: list[str], message: str, certificate: Path) -> None:
    result = run_here("--port=0", *(word.format(certificate) for word in words))

    assert result.exit_code == ExitCode.CONFIG
    (line,) = result.stderr.splitlines()
    assert message in line


def test_it_answers_what_has_begun_before_it_ends(redis_server: PrivateRedis, tmp_path: Path) -> None:
    with running_frontend(tmp_path, redis_server) as frontend:
        with connect(frontend) as idle, begin_request(frontend) as busy:
            frontend.process.send_signal(signal.SIGTERM)
            nothing = read_all(idle)
            wait_until(lambda: is_refused(frontend), "it accepts nothing more")
            busy.sendall(b"0")
            answer = read_all(busy)
        code = frontend.process.wait(120)

    assert nothing == b""
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer.lower()
    assert code == ExitCode.OK


def test_it_waits_no_longer_than_the_drain_timeout(redis_server: PrivateRedis, tmp_path: Path) -> None:
    with running_frontend(tmp_path, redis_server, drainTimeout=0.2) as frontend, begin_request(frontend):
        code = frontend.stop(signal.SIGINT)

    assert code == ExitCode.OK
    assert "requests given up" in frontend.log


def test_a_second_signal_ends_it_at_once(redis_server: PrivateRedis, tmp_path: Path) -> None:
    with running_frontend(tmp_path, redis_server, drainTimeout=600) as frontend, begin_request(frontend):
        frontend.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "event=stopping" in frontend.log, "it stops")
        code = frontend.stop()

    assert code == ExitCode.FAILED
    assert "stopping at once" in frontend.log


def test_a_process_that_dies_is_replaced(shared: RunningFrontend) -> None:
    before = children(shared)
    before[0].kill()

    wait_until(lambda: len(now := children(shared)) == 2 and before[0] not in now, "another one is started")

    wait_until(lambda: all(shared.answers() for _ in range(10)), "every connection is answered")
    assert before[1] in children(shared)
    assert "killed by SIGKILL; out of memory?" in shared.log


def test_a_frontend_whose_process_ends_before_it_is_ready_ends(held: Path, redis_server: PrivateRedis) -> None:
    command = [*COMMAND, "--port=0", "--redis-url", redis_server.url, "--interface=127.0.0.1", "--workers=2"]
    (held / "cluster_serving.frontend.server.process").touch()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        frontend = psutil.Process(process.pid)
        wait_until(lambda: len(frontend.children()) == 2, "its processes are started")
        first, second = frontend.children()
        first.kill()
        try:
            said, _ = process.communicate(timeout=120)
        finally:
            process.kill()

    assert process.returncode == ExitCode.FAILED
    assert "a process could not start: killed by SIGKILL; out of memory?" in said
    assert not is_alive(second)


def test_no_process_is_left_when_the_first_is_killed(redis_server: PrivateRedis, tmp_path: Path) -> None:
    with running_frontend(tmp_path, redis_server, workers=2) as frontend:
        left = children(frontend)
        frontend.process.kill()
        frontend.process.wait(120)

        wait_until(lambda: not any(map(is_alive, left)), "the others have ended")

    assert len(left) == 2


def test_as_process_1_it_reaps_orphans_and_stops(redis_server: PrivateRedis, tmp_path: Path) -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not make a PID namespace")
    pid_file = tmp_path / "log"
    port = free_port()
    command = [*unshare, *COMMAND, "--port", str(port), "--redis-url", redis_server.url, "--interface=127.0.0.1"]
    with pid_file.open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: "event=listening" in pid_file.read_text(), "it listens")
        (first,) = psutil.Process(process.pid).children()
        # A process of the container whose parent has gone: it is the frontend's now, and ends.
        enter = ["nsenter", "--user", "--pid", "--target", str(first.pid), "--preserve-credentials"]
        subprocess.run([*enter, "sh", "-c", "sleep 0.2 & exit"], check=True, timeout=120)
        wait_until(lambda: len(first.children()) == 1, "the orphan has been reaped")
        first.send_signal(signal.SIGTERM)
        code = process.wait(120)
    finally:
        process.kill()
        process.wait()

    assert code == ExitCode.OK, pid_file.read_text()


def test_a_body_that_is_too_large_is_refused_in_json(shared: RunningFrontend) -> None:
    with connect(shared) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
        answer = read_all(connection)

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 ")
    assert "error" in json.loads(body)


@pytest.mark.parametrize("begun", [b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n"])
def test_a_slow_sender_is_not_waited_for(shared: RunningFrontend, begun: bytes) -> None:
    """However often it sends a byte."""
    with connect(shared) as connection:
        connection.sendall(begun)
        connection.settimeout(0.1)

        def drip() -> bytes:
            try:
                connection.send(b"x")
                return connection.recv(1 << 16)
            except TimeoutError:
                return b""

        answer = wait_until(drip, "the request is given up")

    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_model_that_needs_a_node_now_is_said_once(redis_server: PrivateRedis, tmp_path: Path) -> None:
    entry = "{type: InferenceModelMetaData, modelName: m2, modelPath: /m2}"
    (tmp_path / "servables.yaml").write_text(f"modelMetaDataList: [{entry}]\n")

    with running_frontend(tmp_path, redis_server, servableManagerConfPath="servables.yaml", workers=2) as frontend:
        frontend.stop()

    assert frontend.log.count("a model runs in a node now") == 1


def test_settings_and_their_sources(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{PASSWORD}\n")

    result = run_here(
        *("--print-config", "--redisHost=there", "--redisPort", "7", "--redisInputQueue=mine", "--tokenBucketEnabled"),
        *("--redisOutputQueue=cluster-serving_mine:", "--parallelism=1000", "--https-enabled=false"),
        CLUSTER_SERVING_REDIS_PASSWORD_FILE=str(secret),
        CLUSTER_SERVING_TOKENS_PER_SECOND="7.5",
    )

    rows = [re.split(r": +| +# ", line.strip()) for line in result.stdout.splitlines()]
    assert result.exit_code == ExitCode.OK
    assert ["redisHost", "there", "--redis-host"] in rows
    assert ["redisPort", "7", "--redis-port"] in rows
    assert ["jobName", "mine", "--job-name"] in rows
    assert ["tokenBucketEnabled", "true", "--token-bucket-enabled"] in rows
    assert ["tokensPerSecond", "7.5", "CLUSTER_SERVING_TOKENS_PER_SECOND"] in rows
    assert ["# redisPassword", "'**********'", "CLUSTER_SERVING_REDIS_PASSWORD_FILE"] in rows
    assert PASSWORD not in result.stdout
    assert [line.split(":")[0] for line in result.stdout.splitlines() if "ignored" in line] == [
        "# --parallelism is ignored"
    ]


@pytest.mark.parametrize(
    ("module", "missing", "words", "extra"),
    [
        ("cluster_serving.frontend.__main__", "click", [], "http"),
        ("cluster_serving.frontend.__main__", "sanic", [], "http"),
        ("cluster_serving.frontend.__main__", "structlog", [], "http"),
        ("cluster_serving.node.cli", "sanic", ["frontend", "--port=1"], "http"),
        ("cluster_serving.node.cli", "cv2", ["start"], "onnx"),
    ],
)
def test_what_is_not_installed_is_said(module: str, missing: str, words: list[str], extra: str) -> None:
    result = without(missing, module, *words)

    assert result.returncode == ExitCode.USAGE
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert install_command(extra) in line


def test_the_frontend_needs_nothing_of_a_node() -> None:
    result = without("cv2", "cluster_serving.node.cli", "frontend", "--print-config")

    assert result.returncode == ExitCode.OK
    assert "securePort" in result.stdout


def without(package: str, module: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """`main` of a module, where a package is not installed."""
    program = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
sys.argv = ["cluster-serving", *{words!r}]
from {module} import main
main()
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
