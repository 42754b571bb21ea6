"""`predict`: records of a command line, answered by real nodes, over Redis and over a frontend."""

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from click.testing import CliRunner, Result

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.cli import main
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_frontend import RunningFrontend, running_frontend
from support.running_node import running_node
from support.wait import wait_until

CLASSES, EVERYTHING = "predict_classes", "predict_everything"
KINDS: dict[str, Any] = {
    "intScalar": 12345,
    "floatScalar": 3.5,
    "stringScalar": "hello",
    "intTensor": list(range(10)),
    "floatTensor": [0.5] * 10,
    "stringTensor": ["come", "on", "united"],
    "intTensor2": [[1, 2], [3, 4], [5, 6]],
    "floatTensor2": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
    "stringTensor2": [[[["a", "b"], ["c", "d"]]]],
    "sparseTensor": {"shape": [100, 1000], "data": [0.5, 6.75], "indices": [[1, 1], [4, 4]]},
    "image": "pixels.png",
}


class Shell:
    """Runs `predict` in a directory with files of records."""

    def __init__(self, home: Path, server: PrivateRedis, frontend: RunningFrontend) -> None:
        self.home = home
        self.ways = {"redis": ("--redis-url", server.url), "http": ("--url", frontend.url)}
        np.save(home / "row.npy", np.array([0, 2.5]))
        np.save(home / "wrong.npy", np.zeros((5, 5), np.float32))
        np.savez(home / "row.npz", x=np.array([0, 1]))
        (home / "rows.jsonl").write_text('[0, 1]\n\n{"x": [-1, 0]}\n[0, 3]\n')
        (home / "broken.npy").write_bytes((home / "row.npy").read_bytes()[:40])
        (home / "broken.jpg").write_bytes(b"\xff\xd8\xff" + bytes(30))
        (home / "text.jpg").write_bytes(b"hello")
        (home / "everything.json").write_text(json.dumps(KINDS, indent=2))
        (home / "pixels.png").write_bytes(cv2.imencode(".png", np.full((4, 5, 3), (10, 20, 30), np.uint8))[1].tobytes())

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start the command, with pipes."""
        command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "predict", *words]
        environment = os.environ | {"CLUSTER_SERVING_HOME": str(self.home / "state")}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.home, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def run(self, *words: str, way: str = "redis") -> Result:
        """Run the command over Redis or a frontend, in this process."""
        runner = CliRunner(env={"CLUSTER_SERVING_HOME": str(self.home / "state")})
        with chdir(self.home):
            return runner.invoke(main, ["predict", *words, *self.ways.get(way, ())], catch_exceptions=False)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, redis_server: PrivateRedis) -> Iterator[Shell]:
    home = tmp_path_factory.mktemp("predict")
    labels = home / "labels.txt"
    labels.write_text("cat\ndog\n")
    classes = {"modelPath": str(MODELS / "slow.py"), "jobName": CLASSES, "batchSize": 1}
    filtered = {"postProcessing": "topN(2)", "labels": str(labels)}
    everything = {"modelPath": str(MODELS / "everything.py"), "jobName": EVERYTHING}
    with (
        running_node(home / "classes", redis_server, **classes, **filtered),
        running_node(home / "everything", redis_server, **everything),
        running_frontend(home / "frontend", redis_server) as frontend,
    ):
        yield Shell(home, redis_server, frontend)


@pytest.mark.parametrize("way", ["redis", "http"])
def test_classes_have_their_names(shell: Shell, way: str) -> None:
    done = shell.run(CLASSES, "[0, 2.5]", "--stages", way=way)

    assert done.exit_code == ExitCode.OK, done.stderr
    assert done.stdout.startswith(f"record 1: answered by job {CLASSES} in ")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[1:4] == [["class", "name", "value"], ["1", "dog", "2.5"], ["0", "cat", "0"]]
    assert ["stage", "ms", "%"] in lines
    assert "\nran in the worker " in done.stdout
    assert "█" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


@pytest.mark.parametrize("way", ["redis", "http"])
def test_every_kind_of_input(shell: Shell, way: str) -> None:
    """The path in the record is read by the command, the numbers of JSON get the dtypes of the model."""
    found = json.loads(shell.run(EVERYTHING, "everything.json", "--json", way=way).stdout)

    sums, said, pixel = found["outputs"]
    assert (sums["name"], sums["shape"]) == ("sums", [7])
    assert sums["data"] == [12345, 3.5, 45, 5, 21, 36, 6.75]
    assert (sums["min"], sums["max"]) == (3.5, 12345)
    assert said == dict.fromkeys(("dtype", "shape", "min", "mean", "max")) | {
        "name": "said",
        "data": ["hello", "come on united", "a b c d"],
    }
    assert pixel["data"] == [10, 20, 30]
    assert (found["record"], found["job"], found["value"], found["error"]) == (
        "everything.json",
        EVERYTHING,
        None,
        None,
    )
    assert sum(found["stages_ms"].values()) == pytest.approx(found["total_ms"], abs=2)


@pytest.mark.parametrize("way", ["redis", "http"])
def test_tensors_have_shapes_and_statistics(shell: Shell, way: str) -> None:
    """Tensors have the dtypes of the model over HTTP too, where JSON does not tell them."""
    shown = shell.run(EVERYTHING, "everything.json", way=way).stdout.splitlines()

    assert [line.split() for line in shown[1:]] == [
        ["output", "dtype", "shape", "min", "mean", "max"],
        ["sums", "float64", "[7]", "3.5", "1780.32", "12345"],
        ["12345,", "3.5,", "45,", "5,", "21,", "36,", "..."],
        ["said", "text"],
        ['["hello",', '"come', "on", 'united",', '"a', "b", "c", 'd"]'],
        ["pixel", "uint8", "[3]", "10", "20", "30"],
        ["10,", "20,", "30"],
    ]


@pytest.mark.parametrize("way", ["redis", "http"])
def test_files_and_lines_are_answered_in_order(shell: Shell, way: str) -> None:
    """A record that fails does not stop the next ones, and gives the exit code."""
    done = shell.run(CLASSES, "row.npy", "row.npz", "rows.jsonl", "--json", way=way)

    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["record"] for one in found] == ["row.npy", "row.npz", "rows.jsonl:1", "rows.jsonl:3", "rows.jsonl:4"]
    assert [one["value"] and one["value"][0][1] for one in found] == [2.5, 1, 1, None, 3]
    assert "sleep length must be non-negative" in found[3]["error"]["message"]
    assert done.exit_code == ExitCode.FAILED


@pytest.mark.parametrize("way", ["redis", "http"])
def test_records_behind_one_that_cannot_be_sent_are_answered(shell: Shell, way: str) -> None:
    words = "missing.npy", "row.npy", '{"x": [1, 2, 3]}', '{"x": null}', "text.jpg", "row.npz"

    done = shell.run(CLASSES, *words, "--json", way=way)

    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["value"] and one["value"][0][1] for one in found] == [None, 2.5, None, None, None, 1]
    assert {one["error"]["code"] for one in found if one["error"]} <= {"InvalidInput", "HTTP 400"}
    assert found[0]["error"]["message"].startswith("cannot be read: No such file")
    assert done.exit_code == ExitCode.USAGE


def test_lines_of_standard_input_are_answered_as_they_come(shell: Shell) -> None:
    with shell.start(CLASSES, "-", "--json", *shell.ways["redis"]) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in (1, 2):
            process.stdin.write(f"[0, {number}]\n")
            process.stdin.flush()

            answer = json.loads(process.stdout.readline())

            assert (answer["record"], answer["value"][0][1]) == (f"line {number}", number)
        process.stdin.close()
        assert process.wait(120) == ExitCode.OK


def test_a_file_on_standard_input(shell: Shell) -> None:
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "predict", CLASSES, "-", *shell.ways["redis"]]
    content = (shell.home / "row.npy").read_bytes()
    done = subprocess.run(command, cwd=shell.home, input=content, capture_output=True, check=True)

    assert done.stdout.startswith(b"standard input: answered")


@pytest.mark.parametrize("way", ["redis", "http"])
@pytest.mark.parametrize(
    ("record", "code", "told"),
    [
        ("missing.npy", ExitCode.USAGE, "missing.npy: cannot be read: No such file or directory"),
        ("broken.npy", ExitCode.USAGE, "broken.npy: a broken file of arrays: EOF"),
        ("text.jpg", ExitCode.USAGE, "text.jpg: not an image, .npy, .npz or JSON"),
        ("broken.jpg", ExitCode.USAGE, "image"),
        ("wrong.npy", ExitCode.USAGE, "input 'x' takes float32 [2] a record, not float32 [5, 5]"),
        ('{"x": [1, 2, 3]}', ExitCode.USAGE, "input 'x' takes float32 [2] a record, not float32 [3]"),
        ('{"a": 1, "b": 2}', ExitCode.USAGE, "the record's inputs are 'a', 'b'; the model takes x float32 [N,2]"),
        ('{"x": [1, }', ExitCode.USAGE, "record 1: not JSON: "),
        ('{"x": [[1], [1, 2]]}', ExitCode.USAGE, "input 'x'"),
        ('{"x": "gone.jpg"}', ExitCode.USAGE, "input 'x'"),
        ('{"x": {"path": "gone.jpg"}}', ExitCode.USAGE, "input 'x': cannot read the image 'gone.jpg'"),
        ('{"x": null}', ExitCode.USAGE, "input 'x'"),
        ("[-1, 0]", ExitCode.FAILED, "sleep length must be non-negative"),
    ],
)
def test_a_wrong_record_is_one_sentence(shell: Shell, way: str, record: str, code: ExitCode, told: str) -> None:
    done = shell.run(CLASSES, record, way=way)

    assert (done.exit_code, done.stdout) == (code, "")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("way", ["redis", "http"])
def test_one_value_for_several_inputs(shell: Shell, way: str) -> None:
    done = shell.run(EVERYTHING, "[1, 2]", way=way)

    assert done.exit_code == ExitCode.USAGE
    assert "record 1: one value, and the model takes intScalar int32 [N], floatScalar float32 [N], " in done.stderr


def test_a_job_that_is_not_there(shell: Shell) -> None:
    over_redis, over_http = (shell.run("nobody", "[1]", way=way) for way in shell.ways)

    assert over_redis.exit_code == over_http.exit_code == ExitCode.NOT_RUNNING
    assert "no node of job nobody lives on redis://" in over_redis.stderr
    assert CLASSES in over_redis.stderr
    assert CLASSES in over_http.stderr


def test_a_frontend_with_several_models_wants_a_name(shell: Shell) -> None:
    done = shell.run("[1]", way="http")

    assert done.exit_code == ExitCode.USAGE
    assert f"so name one: {CLASSES}, {EVERYTHING}" in done.stderr


@pytest.mark.parametrize(
    ("where", "code"),
    [
        (("--redis-url", "127.0.0.1:1"), ExitCode.REDIS),
        (("--url", "http://127.0.0.1:1"), ExitCode.NOT_RUNNING),
        (("--url", "127.0.0.1:1"), ExitCode.USAGE),
    ],
)
def test_nobody_listens(shell: Shell, where: tuple[str, str], code: ExitCode) -> None:
    done = shell.run(CLASSES, "[1, 2]", *where, way="neither")

    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert "127.0.0.1:1" in done.stderr


@pytest.mark.parametrize("way", ["redis", "http"])
def test_an_answer_that_is_late(shell: Shell, way: str) -> None:
    def late() -> list[Result]:
        done = shell.run(CLASSES, "[1, 0]", "--timeout", "0.2", way=way)
        return [] if done.exit_code == ExitCode.FAILED and "longer than the 0.2 s" in done.stderr else [done]

    [done] = wait_until(late, "no record of another test waits, for which a frontend refuses the call at once")

    assert done.exit_code == ExitCode.TIMED_OUT
    # Who says it depends on the moment: the caller, the node before it takes the record, or a worker before it runs it.
    assert any(
        part in done.stderr for part in ("in time", "in 0.2 s", "the deadline had passed", "ms away, and at this load")
    )
    assert done.stderr.count("\n") == 1


def test_ctrl_c(shell: Shell, redis_server: PrivateRedis) -> None:
    with redis_server.client() as client:
        wait_until(lambda: not client.xlen(CLASSES), "the records of other tests are done")
        with shell.start(CLASSES, "[8, 0]", *shell.ways["redis"]) as process:
            wait_until(lambda: client.xlen(CLASSES), "the record is under way")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=120)

    assert (process.returncode, out) == (128 + signal.SIGINT, "")
    assert err == "Interrupted: the answer to a record under way is dropped.\n"


def test_an_image_in_base64(shell: Shell) -> None:
    image = base64.b64encode((shell.home / "pixels.png").read_bytes()).decode()
    found = json.loads(shell.run(EVERYTHING, json.dumps(KINDS | {"image": {"b64": image}}), "--json").stdout)

    assert found["outputs"][2]["data"] == [10, 20, 30]
