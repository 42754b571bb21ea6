"""The commands: what they print, and how they exit."""

import ast
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest
import structlog
from click.testing import CliRunner, Result
from pydantic import SecretStr

from cluster_serving.client.extras import install_command
from cluster_serving.client.servers.process import progress_pipe as reporting
from cluster_serving.client.servers.process.exit_codes import INTERRUPTED, ExitCode
from cluster_serving.node.cli import main
from cluster_serving.node.commands.list_and_logs import cli_of_the_original
from cluster_serving.node.commands.processes import ROLES
from cluster_serving.node.config.loading import Config
from cluster_serving.node.job.directory import Job, NodeRecord
from cluster_serving.node.job.redis_program import find_server
from cluster_serving.node.lifecycle import background, launch, stopping
from cluster_serving.node.lifecycle.frontend import Http, await_model, record_frontend, stop_frontend
from cluster_serving.node.lifecycle.jobs_here import command_for
from cluster_serving.node.lifecycle.log_rotation import rotate
from cluster_serving.node.lifecycle.options import StartOptions, recorded_options
from support.completion import completed
from support.http_server import answering
from support.private_redis import free_port

MODEL = Path(__file__).parents[2] / "node" / "quickstart" / "model"
NOBODY = "redis://127.0.0.2:1/0"  # not this machine's default, so that no Redis is started

Run = Callable[..., Result]

_TELL_PASSWORD = [
    sys.executable,
    "-S",
    "-c",
    "import os\n"
    "name = 'CLUSTER_SERVING_REDIS_PASSWORD'\n"
    "text = f'{os.environ[name]} {os.environ.get(name + \"_FILE\")}'\n"
    'os.write(3, b\'{"event":"ready","text":"\' + text.encode() + b\'"}\\n\')',
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and a home of its own."""
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLUSTER_SERVING_JOB_NAME", raising=False)
    monkeypatch.delenv("REDIS_HOME", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path / "home"


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


def record(name: str, **values: object) -> NodeRecord:
    fields: dict[str, object] = {
        "job": name,
        "node": "n-1",
        "pid": 1,
        "config_path": None,
        "flags": [f"--redis-url={NOBODY}"],
        "redis": NOBODY,
        "local_redis_port": None,
        "drain_timeout_s": 10,
        "started_ms": 1,
    }
    return NodeRecord(**fields | values)  # type: ignore[arg-type]  # a test's shorthand


@pytest.fixture
def fake_node() -> Generator[Callable[[str, str], subprocess.Popen[bytes]]]:
    """Starts processes that hold a job's lock, as a supervisor does, and do what they are told on SIGTERM."""
    started: list[subprocess.Popen[bytes]] = []

    def start(job: str, on_term: str = "sys.exit(0)") -> subprocess.Popen[bytes]:
        program = (
            "import signal, sys\n"
            "from cluster_serving.node.job.directory import Job\n"
            f"def stop(*_): {on_term}\n"
            "signal.signal(signal.SIGTERM, stop)\n"
            f"with Job.of({job!r}).acquire():\n"
            "  print(1, flush=True)\n"
            "  while True: signal.pause()\n"
        )
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        with process:
            process.kill()


def test_init_prepares_and_never_overwrites() -> None:
    first = run("init")
    Path("config.yaml").write_text("modelPath: mine\n")
    second = run("init")

    assert first.output.splitlines()[:2] == [
        "Cluster Serving config file prepared.",
        "Cluster Serving environment set up. Initialization success.",
    ]
    assert second.output.splitlines() == [
        "Cluster Serving config file prepared.",
        "Cluster Serving environment already set up. Initialization success.",
    ]
    assert Path("config.yaml").read_text() == "modelPath: mine\n"
    assert (first.exit_code, second.exit_code) == (0, 0)


def test_start_after_init_says_what_to_do_next() -> None:
    run("init")

    result = run("start")

    assert result.exit_code == ExitCode.CONFIG
    assert "modelPath is still /path/to/model/directory: set it in config.yaml" in result.stderr


def test_config_shows_values_and_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("config.yaml").write_text("modelPath: m\nspark: {master: x}\nredisPassword: geheim\n")
    monkeypatch.setenv("CLUSTER_SERVING_BATCH_SIZE", "7")

    lines = run("config", "-p", "3").stdout.splitlines()

    rows = [line.split() for line in lines]
    assert ["modelPath", str(Path.cwd() / "m"), "config.yaml"] in rows
    assert ["batchSize", "7", "CLUSTER_SERVING_BATCH_SIZE"] in rows
    assert ["modelParallelism", "3", "--parallelism"] in rows
    assert ["redisPassword", "**********", "config.yaml"] in rows
    assert ["jobName", "serving_stream", "default"] in rows
    assert lines[-2] == "spark.master is ignored: there is no JVM back end any more"
    server = find_server(os.environ).described()
    assert lines[-1] == f"Redis: redis://localhost:6379/0; where none listens, start runs {server}."


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis.example:6380", "Redis: redis://redis.example:6380/0; start does not run it."),
        ("localhost", "Redis: redis://localhost:6379/0; start cannot run one there: there is no redis-server to start"),
    ],
)
def test_config_tells_which_redis_start_runs(
    url: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType]

    assert run("config", "--model-path", "m", "--redis-url", url).stdout.splitlines()[-1].startswith(told)


def test_config_as_json_without_a_file() -> None:
    shown = json.loads(run("config", "--json", "--set", "imageResize=3,4").stdout)

    assert shown["imageResize"] == {"value": "3,4", "source": "--set imageResize"}
    assert len(shown) == len(Config.model_fields)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["start"], ExitCode.CONFIG, "config.yaml: there is no such file; create one with cluster-serving init"),
        (["start", "-c", "other.yaml"], ExitCode.CONFIG, "other.yaml: there is no such file"),
        (["start", "--set", "batchSize"], ExitCode.USAGE, "batchSize is not KEY=VALUE"),
        (["start", "--nonsense"], ExitCode.USAGE, "No such option"),
        (
            ["start", "--set", "batchsise=2"],
            ExitCode.CONFIG,
            "--set batchsise: unknown key batchsise; did you mean batchSize?",
        ),
        (
            ["start", "--model-path", str(MODEL), "-p", "0"],
            ExitCode.CONFIG,
            "--parallelism: modelParallelism is 0, but must be 1",
        ),
        (
            ["start", "--model-path", "/nope"],
            ExitCode.MODEL,
            "Please check your model path: /nope does not exist.",
        ),
        (["start", "--model-path", "."], ExitCode.MODEL, "There is no model detected in your directory."),
        (
            ["start", "--model-path", str(MODEL), "--redis-url", "here:there"],
            ExitCode.CONFIG,
            "Your redis host and port are not valid, please check. --redis-url: redisUrl is here:there",
        ),
        (
            ["start", "--model-path", str(MODEL), "--redis-url", NOBODY],
            ExitCode.REDIS,
            f"Redis at {NOBODY} cannot be used: Error 111 connecting to 127.0.0.2:1",
        ),
        (
            ["start", "--foreground", "--model-path", "nowhere"],
            ExitCode.MODEL,
            "nowhere does not exist.",
        ),
        (
            ["start", "--model-path", str(MODEL), "--set", "postProcessing=top5"],
            ExitCode.CONFIG,
            "--set postProcessing: postProcessing is top5, but ",
        ),
        (["config", "--set", "postProcessing=top5"], ExitCode.CONFIG, "postProcessing is top5, but "),
        (["config", "--set", "modelType=onx"], ExitCode.CONFIG, "modelType is onx, but must be one of onnx, "),
        (["logs"], ExitCode.NOT_RUNNING, "No job serving_stream was ever started on this machine"),
        (["top", "nosuch"], ExitCode.NOT_RUNNING, "No job nosuch was ever started on this machine"),
    ],
)
def test_expected_faults_are_quick_and_one_sentence(words: list[str], code: ExitCode, message: str) -> None:
    started = time.monotonic()
    result = run(*words)

    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert time.monotonic() - started < 10


def test_port_of_something_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = run("start", "--model-path", str(MODEL), "--redis-url", f"localhost:{port}")

    assert result.exit_code == ExitCode.REDIS
    assert f"port {port} is in use by something that is no Redis" in result.stderr


def test_second_start_is_refused() -> None:
    with Job.of("serving_stream").acquire():
        result = run("start", "--model-path", str(MODEL))

    assert result.exit_code == ExitCode.ALREADY_RUNNING
    assert "Cluster Serving with name serving_stream already exists on this machine" in result.stderr


def start_with(monkeypatch: pytest.MonkeyPatch, program: str, *words: str) -> Result:
    """`start`, with a program of ours in place of the node."""
    monkeypatch.setattr(background, "prepare", lambda config, job, say: job.create())  # pyright: ignore[reportUnknownLambdaType]
    text = f"import os, sys, time\ndef tell(text): os.write(3, text.encode() + b'\\n')\n{program}"
    monkeypatch.setattr(background, "_command", lambda _options: [sys.executable, "-S", "-c", text])  # pyright: ignore[reportUnknownLambdaType]
    return run("start", "--model-path", "m", "--job-name", "j", *words)


def test_start_returns_when_ready(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    program = """print('hello'); tell('{"event":"progress","text":"loading"}'); tell('{"event":"ready","text":"it serves"}')"""
    result = start_with(monkeypatch, program)

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Starting new Cluster Serving job.",
        "loading",
        "Cluster Serving job j is ready: it serves",
        f"Log: {home}/j/node.log",
        "Stop it with: cluster-serving stop j",
    ]


@pytest.mark.parametrize(
    ("program", "code", "message"),
    [
        ("""tell('{"event":"failed","text":"bad model","code":5}')""", ExitCode.MODEL, "bad model\n"),
        ("""tell('{"event":"failed","text":"bad model"}'); sys.exit(5)""", ExitCode.MODEL, "bad model\n"),
        (
            "print('why'); sys.exit(6)",
            ExitCode.REDIS,
            "the node ended before it was ready; its log ends with: why (see ",
        ),
        ("os.kill(os.getpid(), 9)", ExitCode.FAILED, "the node ended before it was ready (see "),
    ],
)
def test_start_tells_why_not(monkeypatch: pytest.MonkeyPatch, program: str, code: ExitCode, message: str) -> None:
    result = start_with(monkeypatch, program)

    assert result.exit_code == code
    assert result.stderr.startswith(message)


def test_start_stops_what_does_not_get_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    running = psutil.Process().children()
    result = start_with(monkeypatch, "time.sleep(60)", "--timeout", "0.3")

    assert result.exit_code == ExitCode.FAILED
    assert result.stderr.startswith("not ready after 0.3 s, stopped; see ")
    assert not {*psutil.Process().children()} - {*running}


def test_a_frontend_whose_answer_breaks_off_is_asked_again() -> None:
    whole = b'HTTP/1.0 200 OK\r\nContent-Length: 17\r\n\r\n{"models": ["a"]}'
    with answering([whole[:-9], b""], [whole, b""]) as url:
        found = await_model(url, "a", 10)

    assert found


def test_a_frontend_is_stopped_after_the_clock_was_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = Job.of("j")
    job.create()
    program = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
    frontend = launch.Launch("frontend", program, job.frontend_log_path, os.environ, 5)
    record_frontend(Http(), frontend, job)
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / str(frontend.pid)).symlink_to(f"/proc/{frontend.pid}")
    facts = Path("/proc/stat").read_text()
    (proc / "stat").write_text(re.sub(r"btime (\d+)", lambda told: f"btime {int(told[1]) + 3600}", facts))

    monkeypatch.setattr(psutil, "PROCFS_PATH", str(proc))

    try:
        assert stop_frontend(job)
    finally:
        monkeypatch.undo()
        frontend.stop()


def test_interrupted_start_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[psutil.Process] = []

    def interrupt(*_: object) -> None:
        started.extend({*psutil.Process().children()} - {*running})
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "follow", interrupt)
    running = psutil.Process().children()
    result = start_with(monkeypatch, "time.sleep(60)")

    assert result.exit_code == INTERRUPTED
    assert [node.is_running() for node in started] == [False]


@pytest.mark.parametrize(
    "words",
    [
        ["--redis-url", "redis://u:geheim@127.0.0.2:1"],
        ["--set", "REDIS_url=redis://u:geheim@127.0.0.2:1", "--set", "redisPassword=other"],
        ["--set", "redis-password=geheim"],
    ],
)
def test_password_is_not_on_the_command_line_of_the_node(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """The node gets it in its environment, in place of the file that would hold it."""
    command: list[str] = []

    def tell_password(options: StartOptions) -> list[str]:
        command.extend(options.argv())
        return _TELL_PASSWORD

    monkeypatch.setattr(background, "_command", tell_password)
    monkeypatch.setattr(background, "prepare", lambda *_: False)  # pyright: ignore[reportUnknownLambdaType]
    Job.of("j").create()
    if "redis-password" in words[-1]:
        monkeypatch.setenv("CLUSTER_SERVING_REDIS_PASSWORD_FILE", __file__)

    result = run("start", "--model-path", "m", "--job-name", "j", *words)

    assert "is ready: geheim None" in result.stdout
    assert command
    assert "geheim" not in " ".join(command)


def test_the_command_for_a_job_can_be_typed() -> None:
    assert [command_for(Job.of(name), "stop") for name in ("j", "a b", "--help")] == [
        "cluster-serving stop j",
        "cluster-serving stop 'a b'",
        "cluster-serving stop -- --help",
    ]


def test_password_is_not_recorded() -> None:
    public, secrets = StartOptions(
        redis_url=":a@h:1", settings=("redisPassword=b", "secureTrustStorePassword=c", "batchSize=2", "redisPassword=")
    ).without_secrets()

    assert public == StartOptions(redis_url="h:1", settings=("batchSize=2", "redisPassword="))
    assert secrets == {
        "CLUSTER_SERVING_REDIS_PASSWORD": "a",
        "CLUSTER_SERVING_REDIS_SECURE_TRUST_STORE_PASSWORD": "c",
    }


def test_start_tells_what_it_ignores(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("config.yaml").write_text(
        "model: {path: m, name: old}\nspark: {master: local, cores: 4}\ndata: {tensor_shape: 3}\n"
    )

    result = start_with(monkeypatch, """tell('{"event":"ready","text":"it serves"}')""", "-c", "config.yaml")

    assert result.stderr == (
        "Ignored: spark.master, spark.cores (there is no JVM back end any more); "
        "data.tensor_shape (every record describes its own content).\n"
    )


def test_warnings_of_a_start_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    program = r"""tell('{"event":"warning","text":"over-subscribed: \\u001b[2J"}'); tell('{"event":"ready","text":"it serves"}')"""

    result = start_with(monkeypatch, program)

    assert (result.stderr, result.exit_code) == ("Warning: over-subscribed: \\x1b[2J\n", 0)


def test_warnings_stay_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with background.StartDisplay() as display:
        display.show(reporting.Event("warning", "over-subscribed: \x1b[2J"))
        display.show(reporting.Event("progress", "loading"))

    assert "Warning: over-subscribed: \\x1b[2J\n" in terminal.getvalue()


def test_progress_counts_seconds() -> None:
    step = background._ProgressStep("loading", time.monotonic() - 7)  # pyright: ignore[reportPrivateUsage]

    assert step.__rich__().plain == "loading (7 s)"


def test_foreground_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the lock, writes its record, passes the config on, and exits as the supervisor says."""
    seen: list[object] = []

    def serve(config: Config, job: Job, report: reporting.Reporter, *_others: object) -> int:
        seen.extend([config.model_parallelism, job.running(), job.read()])
        report("ready", "text")
        return 6

    node = types.ModuleType("node")
    monkeypatch.setattr(node, "serve", serve, raising=False)
    monkeypatch.setitem(sys.modules, "cluster_serving.node.lifecycle.node", node)
    monkeypatch.setattr("cluster_serving.node.lifecycle.foreground.prepare", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setenv("CLUSTER_SERVING_LOG_LEVEL", "info")
    Path("config.yaml").write_text("modelPath: m\nflinkRestUrl: x\n")
    try:
        result = run("start", "--foreground", "-p", "2", "--set", "batchSize=3")
    finally:
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()

    assert result.exit_code == 6
    assert seen[:2] == [2, True]
    written = seen[2]
    assert isinstance(written, NodeRecord)
    assert written.config_path == str(Path.cwd() / "config.yaml")
    assert written.flags == ["--parallelism=2", "--set=batchSize=3"]
    assert written.local_redis_port == 6379
    assert 'event="config key ignored" key=flinkRestUrl' in result.output
    assert recorded_options(written).flags()["--set batchSize"] == "3"


def test_options_given_now_come_on_top() -> None:
    earlier = StartOptions(config_path="/c", parallelism=1, settings=("a=1", "b=1"))

    merged = StartOptions(parallelism=2, settings=("b=2",)).over(earlier)

    assert merged == StartOptions(config_path="/c", parallelism=2, settings=("a=1", "b=2"))
    assert merged.flags()["--set b"] == "2"


def test_an_option_replaces_an_earlier_setting_of_the_same_key() -> None:
    earlier = StartOptions(
        settings=(
            "modelPath=/a",
            "model_parallelism=4",
            "thread-per-model=4",
            "jobName=a",
            "redisUrl=a:1",
            "batchSize=4",
        )
    )

    merged = StartOptions(model_path="/b", parallelism=2, omp=1, job_name="b", redis_url="b:1").over(earlier)

    assert merged.settings == ("batchSize=4",)
    config = merged.load()[0].config
    assert (config.model_path, config.model_parallelism, config.thread_per_model) == ("/b", 2, 1)


def test_files_of_settings_are_those_of_the_folder_where_they_were_given() -> None:
    words = ("processing=steps.py:Steps", "model_path=m", "labels=", "modelCache=/cache", "batchSize=4")
    values: dict[str, Any] = dict.fromkeys(("config_path", "parallelism", "omp", "model_path", "job_name", "redis_url"))
    here = Path.cwd()

    options = StartOptions.of(values | {"settings": words})

    assert options.settings == (
        f"processing={here}/steps.py:Steps",
        f"model_path={here}/m",
        "labels=",
        "modelCache=/cache",
        "batchSize=4",
    )
    assert StartOptions.of(values | {"settings": ("modelPath=https://host/m",)}).settings == (
        "modelPath=https://host/m",
    )


def test_a_path_of_an_option_may_begin_with_the_home_as_that_of_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell replaces the tilde in --model-path=~/m."""
    monkeypatch.setenv("HOME", "/home/me")
    names = ("config_path", "parallelism", "omp", "model_path", "job_name", "redis_url")
    values: dict[str, Any] = dict.fromkeys(names) | {"settings": ("modelCache=~/cache",)}

    options = StartOptions.of(values | {"config_path": "~/c.yaml", "model_path": "~/m"})

    assert (options.config_path, options.model_path) == ("/home/me/c.yaml", "/home/me/m")
    assert options.settings == ("modelCache=/home/me/cache",)


@pytest.mark.parametrize(
    "key", [field.alias for field in Config.model_fields.values() if SecretStr in get_args(field.annotation)]
)
def test_no_secret_stays_among_the_options(key: str) -> None:
    public, secrets = StartOptions(settings=(f"{key}=geheim",)).without_secrets()

    assert public == StartOptions()
    assert list(secrets.values()) == ["geheim"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--set", "batchSize=0"], ExitCode.CONFIG),
        (["--set", "postProcessing=top5"], ExitCode.CONFIG),
        (["--model-path", "/nope"], ExitCode.MODEL),
        (["--model-path", "."], ExitCode.MODEL),
        (["--redis-url", NOBODY], ExitCode.REDIS),
        (["--job-name", "other"], ExitCode.ALREADY_RUNNING),
    ],
)
def test_restart_keeps_serving_when_the_new_start_would_fail(
    fake_node: Callable[..., subprocess.Popen[bytes]], words: list[str], code: ExitCode
) -> None:
    process = fake_node("j")
    Job.of("j").record(record("j", flags=[f"--model-path={MODEL}", "--job-name=j"]))
    with Job.of("other").acquire():
        result = run("restart", "j", *words)

    assert result.exit_code == code
    assert process.poll() is None


def test_restart_says_which_config_file_it_uses() -> None:
    file = Path("other.yaml")
    file.write_text(f"modelPath: /nope\njobName: j\nredisUrl: {NOBODY}\n")
    Job.of("j").record(record("j", config_path=str(file.absolute())))

    with_file = run("restart", "j")
    Job.of("k").record(record("k", flags=["--model-path=/nope", "--job-name=k"]))
    without = run("restart", "k")

    assert with_file.stdout == f"Config file: {file.absolute()}\n"
    assert without.stdout == "Config file: none; flags and environment only.\n"


def test_stop_ignores_what_does_not_run() -> None:
    result = run("stop")

    told = "Serving is not running, stop operation ignored."
    assert result.output == f"{told} No job serving_stream was ever started on this machine.\n"
    assert result.exit_code == ExitCode.NOT_RUNNING
    assert (run("stop", "--all").output, run("stop", "--all").exit_code) == (f"{told}\n", ExitCode.NOT_RUNNING)


@pytest.mark.parametrize("words", [("stop",), ("status",), ("shutdown",), ("logs",), ("profile",), ("dump",)])
def test_a_job_that_never_was_is_named_with_those_that_are(
    words: tuple[str, ...], fake_node: Callable[..., subprocess.Popen[bytes]]
) -> None:
    fake_node("a")
    with Job.of("b").acquire():
        pass

    unknown, stopped = run(*words, "nosuch"), run(*words, "b")

    sentence = "No job nosuch was ever started on this machine; jobs here: a (running), b"
    assert sentence in unknown.output
    assert unknown.exit_code == ExitCode.NOT_RUNNING
    if words[0] in {"stop", "shutdown", "profile", "dump"}:
        assert "Job b does not run on this machine; jobs here: a (running)" in stopped.output
        assert stopped.exit_code == ExitCode.NOT_RUNNING


@pytest.mark.parametrize(
    "words", ["stop", "shutdown", "logs", "dump", "profile", "dead-letters purge --all", "predict [1]"]
)
def test_no_job_is_guessed_beside_a_config_that_is_wrong(
    fake_node: Callable[..., subprocess.Popen[bytes]], words: str
) -> None:
    process = fake_node("a")
    Job.of("a").record(record("a"))
    Path("config.yaml").write_text("jobName: b\nbatchSizes: 4\n")

    result = run(*words.split())

    assert result.exit_code == ExitCode.CONFIG
    assert "config.yaml, line 2" in result.stderr
    assert process.poll() is None


def test_an_api_key_that_is_not_text_is_one_sentence() -> None:
    Path("key").write_bytes(b"\xff\xfe")

    result = run("predict", "j", "[1]", "--url", "http://127.0.0.1:1", "--api-key-file", "key")

    assert (result.exit_code, result.stderr) == (ExitCode.FAILED, "key is not text\n")


def test_stop_ends_the_named_job_only(fake_node: Callable[..., subprocess.Popen[bytes]]) -> None:
    first, second = fake_node("a"), fake_node("b")

    result = run("stop", "a")

    assert result.output == "Stop signal sent to serving.\nCluster Serving job a stopped.\n"
    assert first.wait(120) == 0
    assert second.poll() is None
    assert run("stop").output.endswith("Cluster Serving job b stopped.\n")  # the only one that runs is meant
    assert run("stop", "--all").output == "Serving is not running, stop operation ignored.\n"


def test_stop_kills_what_does_not_end(
    fake_node: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "_GRACE_S", 60.0)
    monkeypatch.setattr(stopping, "_TOLD_EVERY_S", 0.1)
    process = fake_node("a", "pass")
    Job.of("a").record(record("a", drain_timeout_s=-56.0))  # with the grace, 4 s

    result = run("stop", "a")

    assert process.wait(120) == -signal.SIGKILL
    assert "job a did not end in 4 s and is killed" in result.stderr
    assert "Waiting for job a to finish its records" in result.stdout
    assert result.exit_code == 0


def test_shutdown_without_anything_running() -> None:
    result = run("shutdown")

    assert "Cluster Serving is shutdown." not in result.output
    assert result.exit_code == ExitCode.NOT_RUNNING


def test_shutdown_of_a_running_job(fake_node: Callable[..., subprocess.Popen[bytes]]) -> None:
    fake_node("a")

    result = run("shutdown", "a")

    assert result.output.splitlines()[-1] == "Cluster Serving is shutdown."
    assert result.exit_code == 0


def test_list_and_cli_of_the_original(fake_node: Callable[..., subprocess.Popen[bytes]]) -> None:
    fake_node("a")
    Job.of("b").create()
    node = Job.of("a").node_id()
    original = CliRunner()

    assert run("list").output.splitlines() == [
        "Listing running Cluster Serving jobs:",
        f"Job name: a | Job id: {node}",
        "Cluster Serving jobs 1 totally",
    ]
    assert original.invoke(cli_of_the_original, ["list"]).output == run("list").output
    assert (
        original.invoke(cli_of_the_original, ["stop", "b"]).output
        == "Serving is not running, stop operation ignored.\n"
    )
    assert original.invoke(cli_of_the_original, ["stop"]).output.splitlines()[-1] == f"Job with id {node} terminated."


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Usage: "),
        (["status"], "Not supported for command: status, please refer to document."),
        (["stop", "a", "b"], ""),
    ],
)
def test_cli_of_the_original_refuses(words: list[str], message: str) -> None:
    result = CliRunner().invoke(cli_of_the_original, words)

    assert result.exit_code == 1
    assert message in result.stderr


def test_a_job_that_never_was_is_told_beside_a_redis_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_SERVING_REDIS_URL", f"localhost:{free_port()}")

    result = run("predict", "--job", "nosuch", "[1]")

    assert result.exit_code == ExitCode.REDIS
    assert "give --redis-url. No job nosuch was ever started on this machine" in result.stderr


def test_status_of_nothing() -> None:
    result = run("status")

    assert result.output == "No job was ever started on this machine.\n"
    assert result.exit_code == ExitCode.NOT_RUNNING


def test_status_without_redis() -> None:
    Job.of("a").record(record("a"))

    stopped = run("status", "a", "--json")
    with Job.of("a").acquire():
        running = run("status")

    (shown,) = json.loads(stopped.stdout)
    assert (shown["state"], shown["node"], shown["redis"]) == ("not running", "n-1", NOBODY)
    assert shown["problem"].startswith(f"Redis at {NOBODY}")
    assert stopped.exit_code == ExitCode.NOT_RUNNING
    assert ["a", "unknown"] in [line.split()[:2] for line in running.stdout.splitlines()]
    assert f"Redis at {NOBODY}: Error 111" in running.stdout
    assert running.exit_code == ExitCode.FAILED
    unnamed = run("status")
    assert (unnamed.output, unnamed.exit_code) == ("No job runs on this machine.\n", ExitCode.NOT_RUNNING)


def test_logs_prints_the_end() -> None:
    job = Job.of("a")
    job.create()
    job.log_path.write_text("one\ntwo\nthree\n")

    assert run("logs", "a", "-n", "2").output == "two\nthree\n"


def test_logs_of_a_node_in_the_foreground() -> None:
    Job.of("a").record(record("a"))

    result = run("logs", "a")

    assert (result.stdout, result.exit_code) == ("", ExitCode.FAILED)
    assert "a node in the foreground logs to its standard error, in a container to `docker logs`" in result.stderr


def test_logs_of_a_process_that_there_is_not() -> None:
    job = Job.of("a")
    job.create()
    head = "timestamp=2026-11-25T11:00:00Z level=info process="
    job.log_path.write_text("".join(f"{head}{name} event=started\n" for name in ("writer", "reader", "worker-0")))

    result = run("logs", "a", "--process", "worker-7")

    assert (result.stdout, result.exit_code) == ("", 0)  # one that has nothing to tell is well
    assert "has no line of process worker-7; it has lines of reader, worker-0, writer" in result.stderr
    assert run("logs", "a", "--process", "worker", "--level", "error").output == ""


def test_logs_shows_control_characters_as_escapes() -> None:
    job = Job.of("a")
    job.create()
    job.log_path.write_bytes(b"uri=\x1b[2J \xff\tnext\nlast")

    assert run("logs", "a").output == "uri=\\x1b[2J \ufffd      next\nlast"


def test_logs_goes_back_beyond_a_rotation() -> None:
    job = Job.of("a")
    job.create()
    job.log_path.write_text("one\ntwo\nthree\n")
    rotate(job.log_path, 1)
    with job.log_path.open("a") as log:
        log.write("four\n")

    assert run("logs", "a", "-n", "3").output == "two\nthree\nfour\n"
    assert run("logs", "a", "-n", "1").output == "four\n"
    assert run("logs", "a").output == "one\ntwo\nthree\nfour\n"


def test_following_goes_on_over_a_rotation(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job.of("a")
    job.create()
    job.log_path.write_text("one\n")
    turns = iter(["two\x1b[2J\n", "three\n", ""])

    def meanwhile(_seconds: float) -> None:
        text = next(turns)
        if not text:
            raise KeyboardInterrupt
        with job.log_path.open("a") as log:
            log.write(text)
            log.flush()
            rotate(job.log_path, 1)
            log.write(f"after {text}")

    monkeypatch.setattr(time, "sleep", meanwhile)

    result = run("logs", "a", "-f")

    assert result.output == "one\ntwo\\x1b[2J\nafter two\\x1b[2J\nthree\nafter three\n"


def test_following_a_log_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    job = Job.of("a")
    job.create()
    job.log_path.write_text("one\n")
    monkeypatch.setattr(time, "sleep", interrupt)

    result = run("logs", "a", "-f")

    assert (result.output, result.exit_code) == ("one\n", 0)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion(shell: str) -> None:
    assert "_CLUSTER_SERVING_COMPLETE" in run("completion", shell).output


def offered(words: str) -> list[str]:
    return [word for word, _ in completed(f"cluster-serving {words}")]


def test_completion_of_jobs(fake_node: Callable[..., subprocess.Popen[bytes]]) -> None:
    fake_node("digits")
    for name in ("dogs", "two words", "$(date)"):
        Job.of(name).create()

    assert offered("stop ") == ["digits"]
    assert offered("status d") == ["digits", "dogs"]
    assert offered("dump ") == ["digits", "dogs", *ROLES]
    assert offered("dead-letters list --job do") == ["dogs"]
    assert offered("bench d") == ["d", "digits", "dogs"]  # the first word stands for files


def test_completion_of_settings() -> None:
    assert offered("start --set modelT") == ["modelType="]
    assert offered("restart --set max_d") == ["maxDeliveries=", "maxDeadLetters=", "maxDeadLetterBytes="]
    assert len(offered("config --set ")) == len(Config.model_fields)


@pytest.mark.parametrize("words", ["trace ", "dead-letters show ", "dead-letters purge --redis-url no:such:thing "])
def test_completion_without_redis_is_silent(words: str) -> None:
    Path("config.yaml").write_text(f"redisUrl: {NOBODY}\nbatchSize: many\n")

    assert offered(words) == []


def test_help_names_the_exit_codes() -> None:
    output = run("-h").output

    assert all(f"  {code.value}  " in output for code in ExitCode)
    for command in main.functions:
        assert run(command, "-h").exit_code == 0


def test_help_has_one_spelling_and_the_original_spelling_works() -> None:
    told = run("start", "--help").output

    assert "--config-path" in told
    assert "config_path" not in told
    assert "other.yaml: there is no such file" in run("start", "--config_path", "other.yaml").stderr


def test_messages_have_one_spelling_of_a_command() -> None:
    """The original's names of commands (`cluster-serving-stop`) work, and no message advises them."""
    root = Path(__file__).parents[2]
    messages = [
        f"{path.name}: {node.value}"
        for part in ("client", "node", "frontend", "swarm")
        for path in (root / part).rglob("*.py")
        for statement in ast.walk(ast.parse(path.read_text()))
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))  # a docstring
        for node in ast.iter_child_nodes(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]

    assert len(messages) > 1000
    assert [
        each for each in messages if re.search("cluster-serving-(init|start|stop|restart|shutdown|cli)", each)
    ] == []


def test_help_imports_nothing_heavy() -> None:
    program = "import sys, cluster_serving.node.cli; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert not {"numpy", "pydantic", "redis", "psutil", "structlog", "rich", "yaml", "msgspec"} & set(loaded)


@pytest.mark.parametrize(
    "words",
    [
        ["start", "--foreground", "--model-path", "/nowhere"],
        ["start", "--model-path", "/nowhere"],
        ["restart", "a"],
        ["stop", "a"],
        ["list", "--json"],
        ["status", "--json"],
    ],
    ids=" ".join,
)
def test_commands_without_a_table_do_not_import_rich(words: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-P", "-m", "cluster_serving.node.cli", *words]
    imports = subprocess.run(command, capture_output=True, text=True, check=False).stderr

    assert "cluster_serving.node.job.directory" in imports
    assert "rich.console" not in imports


@pytest.mark.parametrize(
    "words", [["status"], ["list", "--json"], ["--help"], ["dead-letters", "-h"], ["doctor"]], ids=" ".join
)
def test_a_full_disk_is_one_sentence(words: list[str]) -> None:
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert done.stderr == "standard output: No space left on device\n"
    assert done.returncode == ExitCode.FAILED


@pytest.mark.parametrize(("words", "streams"), [("status", ">&-"), ("config --model-path=x", ">&- 2>&-")])
def test_a_closed_stream_is_no_trouble(
    words: str, streams: str, fake_node: Callable[..., subprocess.Popen[bytes]]
) -> None:
    fake_node("a")
    program = [sys.executable, "-P", "-m", "cluster_serving.node.cli", *words.split()]

    whole = subprocess.run(program, capture_output=True, text=True, check=False)
    closed = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" "$@" {streams}', *program], capture_output=True, text=True, check=False
    )

    assert (closed.returncode, closed.stdout, closed.stderr) == (whole.returncode, "", whole.stderr)


def test_commands_with_tables_take_json() -> None:
    tables = {"status", "list", "config", "tune", "predict", "trace", "chaos", "dead-letters list", "dead-letters show"}
    for words in tables:
        assert "--json" in run(*words.split(), "-h").output, words


def test_list_as_json(fake_node: Callable[..., subprocess.Popen[bytes]]) -> None:
    nothing = run("list", "--json").stdout
    fake_node("a")

    assert json.loads(nothing) == []
    assert json.loads(run("list", "--json").stdout) == [{"job": "a", "node": Job.of("a").node_id()}]


@pytest.mark.parametrize("package", ["click", "pydantic"])
@pytest.mark.parametrize(
    "function", ["main", "init_main", "start_main", "stop_main", "restart_main", "shutdown_main", "cli_main"]
)
def test_bare_install_says_that_it_is_the_client(package: str, function: str) -> None:
    program = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
from cluster_serving.node.cli import {function}
{function}()
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "client of Cluster Serving alone" in line
    assert line.endswith(install_command("onnx"))


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("calibrate", "--keep", "file/new/kept"), "file/new/kept/records.npz cannot be written: file "),
        (("swarm", "profile", "-o", "none/profile.json"), "none/profile.json cannot be written: none "),
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_anything_is_measured(words: tuple[str, ...], place: str) -> None:
    Path("file").touch(mode=0o755)

    result = run(*words)

    assert (result.exit_code, result.stderr) == (
        ExitCode.FAILED,
        f"{place}is no directory, or not yours to write to\n",
    )


def test_folders_that_calibrate_would_make_are_no_fault() -> None:
    result = run("calibrate", "--keep", "new/folder")

    assert "cannot be written" not in result.stderr
    assert not Path("new").exists()
