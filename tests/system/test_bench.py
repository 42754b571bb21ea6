"""`bench`: load on a real node, over the queue and over a frontend with HTTPS and API keys."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from click.testing import CliRunner, Result

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.cli import main
from support.certificates import write_certificates
from support.private_redis import PrivateRedis, free_port
from support.running_frontend import running_frontend
from support.running_node import running_node
from support.wait import wait_until

JOB = "loaded"
TAKES_10_MS = "[0.01, 0]"
SCHEMA = jsonschema_rs.validator_for(
    json.loads((Path(__file__).resolve().parents[2] / "docs" / "reference" / "bench.schema.json").read_text())
)

MODEL = """
import time

class Model:
    inputs = outputs = {"x": "float32 [N,2]"}

    def predict(self, batch):
        time.sleep(min(float(batch["x"][:, 0].max()), 0.01))
        return batch
"""

Done = subprocess.CompletedProcess[str]


class Shell:
    """Runs `bench` in a directory with files of records."""

    def __init__(self, home: Path, server: PrivateRedis, url: str) -> None:
        self.home = home
        self._environment = {"CLUSTER_SERVING_HOME": str(home / "state"), "SSL_CERT_FILE": str(home / "cert.pem")}
        self.redis = ("--redis-url", server.url)
        self.http = ("--url", url, "--api-key-file", str(home / "key"))
        (home / "broken.jpg").write_bytes(b"\xff\xd8\xff" + bytes(30))
        (home / "half.jsonl").write_text("[0, 1]\n[-1, 0]\n")

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start the command, with pipes."""
        command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "bench", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.home, env=os.environ | self._environment, stdout=pipe, stderr=pipe, text=True
        )

    def run(self, *words: str) -> Done:
        """Run the command, and see that it prints no traceback."""
        with self.start(*words) as process:
            out, err = process.communicate(timeout=120)
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def run_here(self, *words: str) -> Result:
        """Run the command in this process."""
        with chdir(self.home):
            return CliRunner(env=self._environment).invoke(main, ["bench", *words], catch_exceptions=False)

    def measured(self, *words: str) -> dict[str, Any]:
        """Run the command with --json; its result, valid by the published schema."""
        done = self.run(*words, "--json")
        assert done.returncode == ExitCode.OK, done.stderr
        return valid(done.stdout)


def valid(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    SCHEMA.validate(found)
    return found


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, redis_server: PrivateRedis) -> Iterator[Shell]:
    home = tmp_path_factory.mktemp("bench")
    write_certificates(home)
    (home / "model.py").write_text(MODEL)
    (home / "key").write_text("5e55am\n")
    port = free_port()
    https = {"httpsEnabled": True, "httpsKeyStorePath": str(home / "cert.pem"), "httpsKeyPath": str(home / "key.pem")}
    with (
        running_node(home / "node", redis_server, modelPath=str(home / "model.py"), jobName=JOB, batchSize=1),
        running_frontend(
            home / "frontend", redis_server, **https, securePort=port, apiKeysFile=str(home / "key"), jobName=JOB
        ),
    ):
        yield Shell(home, redis_server, f"https://localhost:{port}")


def test_load_over_the_queue(shell: Shell) -> None:
    """Of one worker that takes 10 ms for a record."""
    found = shell.measured(JOB, TAKES_10_MS, *shell.redis, "--connections", "4", "--seconds", "1")

    assert 0 < found["rate_per_s"] <= 101
    assert found["latency_ms"]["p50"] > 25  # three records are before each
    assert found["latency_ms"]["p50"] <= found["latency_ms"]["p99"] <= found["latency_ms"]["max"]
    assert [*found["stages_ms"]] == ["stream", "fill", "wait", "run", "publish", "client"]
    assert found["stages_ms"]["run"]["mean"] >= 10
    assert found["failed"] == []
    assert found["limit"]["code"] in ("workers", *found["stages_ms"])
    assert found["terms"]["records"] == "record 1"


def test_load_over_https_with_an_api_key(shell: Shell) -> None:
    found = shell.measured(JOB, TAKES_10_MS, *shell.http, "--connections", "2", "--seconds", "1", "--processes", "2")

    assert 0 < found["rate_per_s"] <= 101
    assert [*found["stages_ms"]] == ["queue", "wait", "run", "frontend", "client"]
    assert found["failed"] == []
    assert found["sending"]["processes"] == 2
    assert found["terms"]["over"].startswith("https://")


def test_an_open_loop_beyond_the_capacity(shell: Shell) -> None:
    """Requests are due whether answers come or not, and a request without an answer in time is of no use."""
    words = (JOB, TAKES_10_MS, *shell.redis, "--rate", "400", "--deadline", "2000", "--seconds", "5")
    found = shell.measured(*words, "--arrivals", "fixed", "--plot", "beyond.png")

    # Answers of the second before may be read late, by a busy machine.
    assert 0 < found["goodput_per_s"] * found["seconds"] <= 101 * (found["seconds"] + found["settling_s"])
    assert found["failed"][0]["code"] == "DeadlineExceeded"
    failed = sum(each["count"] for each in found["failed"])
    assert failed + found["answered"] > 101 * found["seconds"]  # more than the worker can answer
    assert failed + found["answered"] + found["unanswered"] > 395 * found["seconds"]  # a busy machine sends some late
    assert found["latency_ms"]["p50"] > 20
    assert found["limit"]["code"] != "rate"
    assert (shell.home / "beyond.png").read_bytes().startswith(b"\x89PNG")


def test_made_up_records_and_a_comparison(shell: Shell) -> None:
    same = (*shell.redis, "--processes", "1", "--connections", "4", "--seconds", "0.5", "--rounds", "3")
    before = shell.measured(JOB, "[0, 1]", *same)
    for figures in before["rounds"]:
        figures["rate_per_s"] *= 100  # worse by more than a busy machine can hide
    (shell.home / "before.json").write_text(json.dumps(before))

    done = shell.run(JOB, *same, "--compare", "before.json")

    assert done.returncode == ExitCode.FAILED, done.stderr
    lines = done.stdout.splitlines()
    assert "records     made up, 16 records" in lines
    assert [line.split()[-1] for line in lines if line.startswith("rate_per_s")] == ["worse"]
    assert "The loads differ (records), so the figures may not be comparable." in lines


def test_errors_are_counted_by_code(shell: Shell) -> None:
    done = shell.run(JOB, "half.jsonl", *shell.redis, "--connections", "2", "--seconds", "1")

    assert done.returncode == ExitCode.OK, done.stderr
    assert "InferenceFailed" in done.stdout
    assert "sleep length must be non-negative" in done.stdout


@pytest.mark.parametrize("way", ["redis", "http"])
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((JOB, "missing.npy"), ExitCode.USAGE, "missing.npy: cannot be read: No such file or directory"),
        ((JOB, "broken.jpg"), ExitCode.USAGE, "image"),
        ((JOB, "[1, 2, 3]"), ExitCode.USAGE, "input 'x' takes float32 [2] a record, not float32 [3]"),
        ((JOB, "[-1, 0]"), ExitCode.FAILED, "sleep length must be non-negative"),
        (("nobody", "[0, 0]"), ExitCode.NOT_RUNNING, JOB),
        ((JOB, "--compare", "half.jsonl"), ExitCode.USAGE, "half.jsonl is no result of `cluster-serving bench --json`"),
    ],
)
def test_a_load_that_cannot_begin(shell: Shell, way: str, words: tuple[str, ...], code: ExitCode, told: str) -> None:
    done = shell.run_here(*words, *getattr(shell, way))

    assert (done.exit_code, done.stdout) == (code, "")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_ctrl_c_ends_with_the_result_so_far(shell: Shell, redis_server: PrivateRedis) -> None:
    with redis_server.client() as client:
        before = client.xinfo_stream(JOB)["entries-added"]
        with shell.start(JOB, TAKES_10_MS, *shell.redis, "--connections", "1", "--seconds", "300", "--json") as process:
            # 250 records, one after the other, take longer than two windows
            wait_until(lambda: client.xinfo_stream(JOB)["entries-added"] > before + 250, "the load is measured")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=120)

    assert (process.returncode, err) == (128 + signal.SIGINT, "")
    assert valid(out)["answered"] > 0


def test_redis_that_goes_away(shell: Shell, redis_server: PrivateRedis) -> None:
    """The connection is cut, and what was measured is shown."""
    with redis_server.client() as client:
        before = client.xinfo_stream(JOB)["entries-added"]
        with shell.start(JOB, TAKES_10_MS, *shell.redis, "--connections", "1", "--seconds", "300", "--json") as process:
            wait_until(lambda: client.xinfo_stream(JOB)["entries-added"] > before + 250, "the load is measured")
            for each in client.client_list():
                if each["cmd"] == "xread":
                    client.client_kill_filter(_id=each["id"])
            out, err = process.communicate(timeout=120)

    assert process.returncode == ExitCode.REDIS
    assert err.startswith("the load ended: ")
    assert valid(out)["answered"] > 0
