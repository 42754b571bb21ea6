"""`doctor` on machines, servers, folders and files with one fault each."""

import shlex
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster_serving.client.servers.checks import Case, Finding, Verdict, worst
from cluster_serving.client.wire.heartbeat import Release
from cluster_serving.client.wire.load import Load
from cluster_serving.frontend.server.examiner import EXAMINER as FRONTENDS
from cluster_serving.node.commands.doctor_text import lines
from cluster_serving.node.config.loading import Config
from cluster_serving.node.doctor.config import CONFIG
from cluster_serving.node.doctor.examination import codes
from cluster_serving.node.doctor.job import JOB
from cluster_serving.node.doctor.job_facts import ConfigFacts, JobFacts, ModelFacts, read_config, read_model
from cluster_serving.node.doctor.machine import MACHINE
from cluster_serving.node.doctor.machine_facts import MachineFacts, stolen
from cluster_serving.node.doctor.memory import size
from cluster_serving.node.doctor.model import MODEL
from cluster_serving.node.doctor.mutes import Mutes
from cluster_serving.node.doctor.processes import PROCESSES, NodeProcess
from cluster_serving.node.doctor.redis import REDIS
from cluster_serving.node.doctor.redis_facts import RedisFacts, SlowCommand
from cluster_serving.node.doctor.report import Report
from cluster_serving.node.job.directory import Job, NodeRecord
from support.doctor import FEW, INFO, machine, nodes, server

ROOT = Path(__file__).parents[2]
MODEL_FILE = ROOT / "node" / "quickstart" / "model" / "digits.onnx"


def problems(findings: Sequence[Finding]) -> dict[str, str]:
    return {each.code: each.status for each in findings if each.is_problem}


def of_machine(facts: MachineFacts) -> dict[str, str]:
    return problems(MACHINE.run(facts, "this machine"))


def test_nothing_is_found_on_a_clean_machine(tmp_path: Path) -> None:
    assert of_machine(machine(tmp_path)) == {}


def test_nothing_is_found_without_a_job(tmp_path: Path) -> None:
    assert of_machine(machine(tmp_path, None)) == {}


ONE_MORE = FEW._replace(running=False)
MACHINES: list[tuple[str, dict[str, Any]]] = [
    ("CS-CPU-QUOTA", {"groups": {"a/cpu.max": "150000 100000"}}),
    ("CS-CPU-QUOTA", {"groups": {"a/cpu.max": "400000 100000"}, "demand": FEW._replace(throttled=0.2)}),
    ("CS-CPU-CPUSET", {"groups": {"a/cpuset.cpus.effective": "3"}}),
    ("CS-CPU-THREADS", {"demand": FEW._replace(workers=6)}),
    ("CS-CPU-SMT", {"demand": FEW._replace(workers=6), "siblings": 2}),
    ("CS-CPU-GOVERNOR", {"files": {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"}}),
    ("CS-MEM-LEFT", {"groups": {"a/memory.max": "300000000", "a/memory.current": "250000000"}}),
    ("CS-MEM-LEFT", {"files": {"proc/meminfo": "MemAvailable: 100000 kB"}}),
    ("CS-MEM-OOM", {"groups": {"a/memory.events": "oom 1\noom_kill 3"}}),
    (
        "CS-FILES-LIMIT",
        {"files": {"proc/self/limits": "Max open files            256                  4096       files"}},
    ),
]


@pytest.mark.parametrize(("code", "options"), MACHINES)
def test_a_machine_with_a_fault(tmp_path: Path, code: str, options: dict[str, Any]) -> None:
    assert of_machine(machine(tmp_path, **options)) == {code: "warn"}


FACTS: list[tuple[str, str, Callable[[MachineFacts], MachineFacts]]] = [
    ("CS-CPU-STEAL", "warn", lambda facts: facts._replace(steal=0.2)),
    ("CS-DISK-LEFT", "warn", lambda facts: facts._replace(disk_free=1 << 30)),
    ("CS-DISK-LEFT", "fail", lambda facts: facts._replace(disk_free=1 << 20)),
    (
        "CS-MEM-ALLOCATOR",
        "warn",
        lambda facts: facts._replace(mallopt=False, demand=FEW._replace(backend="torch")),
    ),
    ("CS-MEM-SHM", "warn", lambda facts: facts._replace(shm_free=0, demand=FEW._replace(encrypted=True))),
]


@pytest.mark.parametrize(("code", "status", "spoil"), FACTS)
def test_a_fact_about_the_machine(
    tmp_path: Path, code: str, status: str, spoil: Callable[[MachineFacts], MachineFacts]
) -> None:
    assert of_machine(spoil(machine(tmp_path))) == {code: status}


def test_two_domains_without_libnuma(tmp_path: Path) -> None:
    facts = machine(tmp_path, domains=2)

    assert of_machine(facts) == {}
    assert of_machine(facts._replace(libnuma=False)) == {"CS-CPU-NUMA": "warn"}


def test_a_driver_that_governs_itself_may_save_power(tmp_path: Path) -> None:
    cpu = "sys/devices/system/cpu/cpu0/cpufreq"
    files = {f"{cpu}/scaling_governor": "powersave", f"{cpu}/scaling_driver": "intel_pstate"}

    assert of_machine(machine(tmp_path, files=files)) == {}


def test_stolen_time_is_a_share() -> None:
    assert stolen((10, 0, 0, 90, 0, 0, 0, 0, 7), (20, 0, 0, 150, 0, 0, 0, 30, 9)) == 0.3
    assert stolen((), ()) == 0


def test_sizes() -> None:
    assert [size(n) for n in (0, 999, 1000, 5_210_000, 34_000_000_000, 2 * 10**15)] == [
        *("0 bytes", "999 bytes", "1.0 kB", "5.2 MB", "34 GB", "2000 TB")
    ]


def of_redis(facts: RedisFacts) -> dict[str, str]:
    return problems(REDIS.run(facts, "Redis"))


SLAVE = {"ip": "10.0.0.2", "port": 6379, "state": "online", "offset": 1 << 30, "lag": 0}
SERVERS: list[tuple[str, str, RedisFacts]] = [
    ("CS-REDIS-VERSION", "fail", server(redis_version="6.0.16")),
    ("CS-REDIS-CLUSTER", "fail", server(cluster_enabled=1)),
    ("CS-REDIS-REPLICA", "fail", server(role="slave", master_host="10.0.0.1", master_port=6379)),
    ("CS-REDIS-EVICTS", "fail", server(maxmemory_policy="allkeys-lru")),
    ("CS-REDIS-EVICTS", "warn", server(maxmemory_policy="volatile-ttl")),
    ("CS-REDIS-NO-LIMIT", "warn", server(maxmemory=0)),
    ("CS-REDIS-MEMORY", "warn", server(used_memory=int(0.85 * (4 << 30)))),
    ("CS-REDIS-MEMORY", "fail", server(used_memory=int(0.99 * (4 << 30)))),
    ("CS-REDIS-NO-AOF", "warn", server(aof_enabled=0)),
    ("CS-REDIS-DISK", "fail", server(aof_last_write_status="err")),
    ("CS-REDIS-DISK", "fail", server(rdb_last_bgsave_status="err")),
    ("CS-REDIS-DISK", "fail", server(rdb_last_bgsave_status="err", CONFIG={"save": "3600 1"})),
    ("CS-REDIS-DISK", "warn", server(rdb_last_bgsave_status="err", CONFIG={"save": ""})),
    ("CS-REDIS-DISK", "warn", server(rdb_last_bgsave_status="err", CONFIG={"stop-writes-on-bgsave-error": "no"})),
    ("CS-REDIS-OPEN", "warn", server(REMOTE=True)),
    ("CS-REDIS-LATENCY", "warn", server(ROUND_TRIP_S=0.004)),
    ("CS-REDIS-SLOW", "warn", server(SLOW=(SlowCommand("KEYS", 0.3, 20),))),
    ("CS-REDIS-CLOCK", "warn", server(SKEW_S=-3.0)),
    ("CS-REDIS-LAG", "warn", server(connected_slaves=1, slave0=SLAVE | {"lag": 60})),
    ("CS-REDIS-LAG", "warn", server(connected_slaves=1, slave0=SLAVE | {"offset": 0})),
    ("CS-REDIS-CLIENTS", "warn", server(connected_clients=9_500)),
    ("CS-REDIS-OVERCOMMIT", "warn", server(OVERCOMMIT="2")),
    ("CS-REDIS-OVERCOMMIT", "warn", server(OVERCOMMIT="0", maxmemory=12 << 30)),
    ("CS-REDIS-HUGE-PAGES", "warn", server(HUGE_PAGES="always")),
]


@pytest.mark.parametrize(("code", "status", "facts"), SERVERS)
def test_a_server_with_a_fault(code: str, status: str, facts: RedisFacts) -> None:
    assert of_redis(facts) == {code: status}


def test_nothing_is_found_about_a_good_server() -> None:
    assert of_redis(server()) == {}
    assert of_redis(server(REMOTE=True, HAS_LOGIN=True, connected_slaves=1, slave0=SLAVE)) == {}
    assert of_redis(server(SLOW=(SlowCommand("KEYS", 0.3, 7200),))) == {}


@pytest.mark.parametrize(
    ("command", "fix"), [("KEYS", "find the program"), ("XREADGROUP", "give Redis a core of its own")]
)
def test_a_slow_command_is_traced_to_its_sender(command: str, fix: str) -> None:
    [found] = [
        each
        for each in REDIS.run(server(SLOW=(SlowCommand(command, 0.3, 20),)), "Redis")
        if each.code == "CS-REDIS-SLOW"
    ]
    assert fix in (found.verdict.fix or "")


def test_what_a_user_may_not_ask_is_not_looked_at() -> None:
    facts = server()._replace(info={}, slow=None, skew_s=None)

    found = {each.code: each for each in REDIS.run(facts, "Redis")}

    assert {code for code, each in found.items() if each.status != "skip"} == {"CS-REDIS-OPEN", "CS-REDIS-LATENCY"}
    assert "may not ask INFO" in found["CS-REDIS-EVICTS"].verdict.message
    assert "may not ask SLOWLOG" in found["CS-REDIS-SLOW"].verdict.message


def test_command_lines_reach_the_server() -> None:
    assert server(WHERE="unix:///run/redis.sock?db=0").cli == "redis-cli -s /run/redis.sock"
    assert server().cli == "redis-cli -u redis://localhost:6379/0"
    assert INFO["redis_version"] in server().server


def of_job(facts: JobFacts) -> dict[str, str]:
    return problems(JOB.run(facts, "job digits"))


BUSY: dict[str, Any] = {"records_s": 100.0, "rows": 30.0}
JOBS: list[tuple[str, str, JobFacts]] = [
    ("CS-JOB-SILENT", "fail", nodes()._replace(own=None)),
    ("CS-JOB-WORKERS", "warn", nodes(workers_alive=1)),
    ("CS-JOB-STALLED", "fail", nodes(Load(busy=(0.0, 0.0)), backlog=70)),
    ("CS-JOB-STARVES", "warn", nodes(Load(busy=(0.3, 0.3), reader=0.99, **BUSY), backlog=70)),
    ("CS-JOB-STARVES", "warn", nodes(Load(busy=(0.95, 0.1), **BUSY), backlog=70)),
    ("CS-JOB-STARVES", "warn", nodes(Load(busy=(0.3, 0.3), redis=0.98, **BUSY), backlog=70)),
    ("CS-JOB-STARVES", "warn", nodes(Load(busy=(0.3, 0.3), empty=0.5, burst=64, **BUSY))),
    ("CS-JOB-RESTARTS", "warn", nodes(restarts=2)),
    ("CS-JOB-DEAD-LETTERS", "warn", nodes(dead_letters=7)),
    ("CS-JOB-RELEASES", "warn", nodes()._replace(others=(Release(job="digits", node="old"),))),
]


@pytest.mark.parametrize(("code", "status", "facts"), JOBS)
def test_a_job_with_a_fault(code: str, status: str, facts: JobFacts) -> None:
    assert of_job(facts) == {code: status}


def test_nothing_is_found_about_a_good_job() -> None:
    assert of_job(nodes()) == {}
    assert of_job(nodes(Load(busy=(0.99, 0.99), **BUSY), backlog=70)) == {}


def of_model(path: Path, root: Path = Path("/"), **options: Any) -> dict[str, str]:
    facts = read_model(Config(model_path=str(path), **options), root)
    return problems(MODEL.run(facts, "model"))


def test_models(tmp_path: Path) -> None:
    none, several, dangling = (tmp_path / name for name in ("none", "several", "dangling"))
    for folder in (none, several, dangling):
        folder.mkdir()
    (several / "a.onnx").write_bytes(b"")
    (several / "b.onnx").write_bytes(b"")
    (dangling / "a.onnx").symlink_to("gone.onnx")
    cpuinfo = tmp_path / "proc" / "cpuinfo"
    cpuinfo.parent.mkdir()
    cpuinfo.write_text("flags : sse avx2\n")

    assert of_model(MODEL_FILE) == {}
    assert of_model(none) == {"CS-MODEL-NONE": "fail"}
    assert of_model(tmp_path / "missing") == {"CS-MODEL-NONE": "fail"}
    assert of_model(Path()) == {"CS-MODEL-NONE": "fail"}
    assert of_model(several) == {"CS-MODEL-SEVERAL": "fail"}
    assert of_model(dangling) == {"CS-MODEL-UNREADABLE": "fail"}
    assert of_model(MODEL_FILE, tmp_path, precision="bf16", engine="openvino") == {"CS-MODEL-PRECISION": "warn"}
    missing = ModelFacts(Config(model_path="m"), None, missing=("torch", "pip install cluster-serving[torch]"))
    assert problems(MODEL.run(missing, "model")) == {"CS-MODEL-PACKAGE": "fail"}


SET = {"modelPath": str(MODEL_FILE), "modelParallelism": 1, "threadPerModel": 1, "batchSize": 8, "tuning": "off"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def of_config(folder: Path, mode: int = 0o600, **settings: Any) -> ConfigFacts:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(SET | settings))
    file.chmod(mode)
    return read_config(Job.of("digits"), None, {})


CONFIGS: list[tuple[str, str, dict[str, Any]]] = [
    ("CS-CONFIG-WRONG", "fail", {"batchSize": "many"}),
    ("CS-CONFIG-UNMET", "fail", {"tensorboardDir": "config.yaml"}),
    ("CS-CONFIG-OLD", "warn", {"flinkRestUrl": "x"}),
    ("CS-CONFIG-UNUSED", "warn", {"modelSecret": "a", "modelSalt": "b"}),
    ("CS-CONFIG-UNUSED", "warn", {"redisCertFile": "c.pem"}),
    ("CS-CONFIG-UNUSED", "warn", {"objective": "latency: 20"}),
    ("CS-CONFIG-SECRETS", "warn", {"redisPassword": "geheim", "mode": 0o644}),
]


@pytest.mark.parametrize(("code", "status", "settings"), CONFIGS)
def test_a_config_with_a_fault(folder: Path, code: str, status: str, settings: dict[str, Any]) -> None:
    findings = CONFIG.run(of_config(folder, **settings), "config.yaml")

    assert problems(findings) == {code: status}
    assert "geheim" not in str(findings)


def test_a_command_holds_for_a_path_with_a_space(folder: Path) -> None:
    place = folder / "my files"
    place.mkdir()
    (place / "a.onnx").symlink_to("gone.onnx")
    with chdir(place):
        config = of_config(place, redisPassword="geheim", mode=0o644)
    models = [read_model(Config(model_path=str(path))) for path in (place, place / "none")]
    findings = [*CONFIG.run(config, ""), *(each for model in models for each in MODEL.run(model, ""))]

    commands = {each.code: shlex.split(each.verdict.command) for each in findings if each.is_problem}

    assert commands == {
        "CS-CONFIG-SECRETS": ["chmod", "600", f"{place}/config.yaml"],
        "CS-MODEL-UNREADABLE": ["chmod", "-R", "u+rX", f"{place}"],
        "CS-MODEL-NONE": ["ls", "-l", f"{place}/none"],
    }


def test_nothing_is_found_in_a_good_config(folder: Path) -> None:
    facts = of_config(folder, redisPassword="geheim", frontend={"port": 1})

    assert problems(CONFIG.run(facts, "config.yaml")) == {}


def test_an_objective_arranges_open_numbers_also_without_tuning(folder: Path) -> None:
    facts = of_config(folder, objective="latency: 20", modelParallelism="auto", threadPerModel="auto")

    assert problems(CONFIG.run(facts, "config.yaml")) == {}


def test_a_config_that_was_changed_or_never_tuned(folder: Path) -> None:
    facts = of_config(folder)

    changed = facts._replace(started_ms=facts.changed_ms - 1)
    assert problems(CONFIG.run(changed, "config.yaml")) == {"CS-CONFIG-CHANGED": "warn"}
    assert problems(CONFIG.run(facts._replace(untuned=True), "config.yaml")) == {"CS-CONFIG-UNTUNED": "warn"}


def test_the_config_of_a_job_is_that_of_its_last_start(folder: Path) -> None:
    job = Job.of("digits")
    elsewhere = folder / "elsewhere.yaml"
    elsewhere.write_text(yaml.safe_dump(SET | {"flinkRestUrl": "x"}))
    record = NodeRecord("digits", "here", 1, str(elsewhere), ["--workers=3"], "", None, 4, 1)

    facts = read_config(job, record, {})

    assert facts.path == elsewhere
    assert facts.loaded is not None
    assert facts.loaded.config.model_parallelism == 3
    assert problems(CONFIG.run(facts, "config")) == {"CS-CONFIG-OLD": "warn"}


def test_processes_that_outlive_their_supervisor() -> None:
    worker = NodeProcess(12, "worker-0", True, True, {7: 1000})
    left = worker._replace(pid=13, supervised=False, rings={8: 2000})
    stranger = NodeProcess(14, "sleep", False, False, {9: 3000})

    def found(*processes: NodeProcess) -> dict[str, str]:
        return problems(PROCESSES.run(list(processes), "this machine"))

    assert found() == found(worker) == {}
    assert found(worker, left) == {"CS-LEAK-PROCESS": "warn"}
    assert found(worker, stranger) == {"CS-LEAK-SEGMENT": "warn"}
    assert found(worker, stranger._replace(rings={7: 1000})) == {}


def test_a_frontend_that_everybody_may_call(folder: Path) -> None:
    keys = folder / "keys.txt"
    keys.write_text(f"{'k' * 32}\n")
    keys.chmod(0o600)

    def found(settings: dict[str, Any]) -> dict[str, str]:
        of_config(folder, frontend=settings)
        findings = FRONTENDS.examine(Case(folder / "config.yaml", {}))
        return problems([each for each in findings if each.subject.endswith("config.yaml")])

    assert found({"port": 18_020}) == {"CS-FRONTEND-OPEN": "warn"}
    assert found({"interface": "127.0.0.1"}) == found({"apiKeysFile": str(keys)}) == {}
    assert found({"port": "x"}) == {"CS-FRONTEND-CONFIG": "fail"}


def finding(status: Any = "warn", amount: float = 2.0, subject: str = "Redis") -> Finding:
    return Finding("CS-REDIS-SLOW", "Redis", subject, Verdict(status, "slow", amount=amount))


def test_a_mute_ends_when_the_finding_gets_worse(tmp_path: Path) -> None:
    mutes = Mutes(tmp_path)
    mutes.mute("CS-REDIS-SLOW", [finding()], None)

    def muted(*found: Finding) -> list[bool]:
        return [each.muted for each in mutes.apply(found)]

    assert muted(finding()) == muted(finding(amount=2.5)) == [True]
    assert worst(mutes.apply([finding()])) == "ok"
    assert muted(finding(amount=4.0)) == [False]
    assert muted(finding()) == [False], "it has ended for good"


@pytest.mark.parametrize("worse", [finding(status="fail"), finding(subject="Redis elsewhere")])
def test_a_mute_is_for_a_status_and_a_subject(tmp_path: Path, worse: Finding) -> None:
    mutes = Mutes(tmp_path)
    mutes.mute("CS-REDIS-SLOW", [finding()], None)

    assert [each.muted for each in mutes.apply([worse])] == [False]


def test_a_mute_ends_with_its_time_and_by_hand(tmp_path: Path) -> None:
    mutes = Mutes(tmp_path)
    mutes.mute("CS-REDIS-SLOW", [finding()], 60)

    now_ms = mutes.read()["CS-REDIS-SLOW"].until_ms
    assert now_ms is not None
    assert [each.muted for each in mutes.apply([finding()], now_ms - 1)] == [True]
    assert [each.muted for each in mutes.apply([finding()], now_ms)] == [False]
    mutes.mute("CS-REDIS-SLOW", [finding()], None)
    assert mutes.unmute("CS-REDIS-SLOW")
    assert not mutes.unmute("CS-REDIS-SLOW")


def test_the_report_says_whether_all_is_good() -> None:
    fine, slow, bad = finding("ok"), finding(), finding("fail")

    assert Report([fine], {}).closing() == "Good to go."
    assert Report([fine, slow], {}).closing() == "Good to go, with 1 warning."
    assert Report([slow._replace(muted=True)], {}).closing() == "Good to go (1 muted)."
    assert Report([slow, bad], {}).closing() == "Not good to go: 1 failure and 1 warning; begin with CS-REDIS-SLOW."
    assert [Report([slow], {}).exit_code(strict) for strict in (False, True)] == [0, 1]
    assert Report([bad], {}).exit_code(strict=False) == 1
    assert Report([slow._replace(muted=True)], {}).exit_code(strict=True) == 0


def test_a_question_ends_without_a_period() -> None:
    asked = Finding("CS-CONFIG-OLD", "Config", "config", Verdict("warn", "did you mean modelPath?"))

    shown = "\n".join(lines(Report([asked, finding()], {}), 80, only_problems=False, verbose=False))

    assert "did you mean modelPath?\n" in shown
    assert "slow.\n" in shown


def test_a_message_that_is_a_sentence_has_one_full_stop() -> None:
    told = Finding("CS-CONFIG-OLD", "Config", "config", Verdict("warn", "flinkRestUrl has no effect."))

    assert "has no effect.\n" in "\n".join(lines(Report([told], {}), 80, only_problems=False, verbose=False))


def test_every_code_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "doctor.md").read_text()

    documented = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `CS-")]
    assert documented == list(codes())
    assert len(set(documented)) == len(documented)
