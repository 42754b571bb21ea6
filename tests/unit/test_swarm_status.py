"""The tables of `swarm status`."""

from pathlib import Path

import pytest

from cluster_serving.swarm.commands.status import show
from cluster_serving.swarm.frontends import Known, metrics_from
from cluster_serving.swarm.progress import Progress
from support.http_server import answering

RUNBOOK = Path(__file__).parents[2] / "docs" / "how-to" / "swarm.md"


def service(name: str, wanted: int, ready: int, **coming: int) -> Progress:
    return Progress(name, wanted, ready, old=0, leaving=0, coming=coming, waiting_for="", update="")


def task(name: str, machine: str, age: str, state: str) -> dict[str, str]:
    return {"task": name, "machine": machine, "for": age, "state": state}


def test_tables_are_those_of_the_runbook(capsys: pytest.CaptureFixture[str]) -> None:
    killed = "failed: task: non-zero exit (137) (killed; out of memory?)"
    numbers = {"node_ready": 1.0, "workers": 1.0, "workers_alive": 1.0}
    known = Known(
        {
            ("serving_stream", "w1-1-3dfaa2"): numbers | {"records_failed_total": 32.0},
            ("serving_stream", "m1-2-5e0fd0"): numbers | {"records_failed_total": 68.0},
        },
        {"serving_stream": {"backlog": 0.0}},
    )
    tasks = [
        task("frontend.1", "w2", "4 m", "running"),
        task("frontend.2", "w1", "4 m", "running"),
        task("node.1", "w1", "30 s", "running"),
        task("node.2", "m1", "30 s", "running"),
        task("redis.1", "m1", "1 s", "starting"),
        task("redis.1", "m1", "2 s", killed),
    ]

    show([service("frontend", 2, 2), service("node", 2, 2), service("redis", 1, 0, starting=1)], tasks, known)

    assert capsys.readouterr().out in RUNBOOK.read_text()


def test_stack_without_tasks_and_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    show([service("node", 0, 0)], [], Known())

    assert capsys.readouterr().out.splitlines() == [
        "service  ready",
        "node       0/0  none wanted",
        "",
        "task  machine  for  state",
        "",
        "No node reports anything.",
    ]


def test_words_of_machines_and_nodes_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2J"
    for known in (Known({(evil, evil): {}}, {evil: {}}), Known(problem=evil)):
        show([service(evil, 1, 0, **{evil: 1})], [task(evil, evil, evil, evil)], known)

    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "does not answer as a frontend: SSH-2.0-OpenSSH"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 33\r\n\r\nabc", "does not answer as a frontend: IncompleteRead"),
        (b"HTTP/1.0 200 OK\r\n\r\n\xff", "does not answer as a frontend: 'utf-8' codec can't decode"),
        (
            b'HTTP/1.0 200 OK\r\n\r\ncluster_serving_backlog{job_name="a"} many\n',
            "does not answer as a frontend: could not convert",
        ),
        (b"HTTP/1.0 404 No\r\n\r\n", "answers 404"),
        (b"HTTP/1.0 401 No\r\n\r\n", "wants an API key"),
    ],
)
def test_a_port_without_a_frontend_is_told(answer: bytes, words: str) -> None:
    with answering([answer, b""]) as url:
        host, port = url.removeprefix("http://").split(":")
        known = metrics_from(host, int(port))

    assert known.problem.startswith(f"{url} {words}")


def test_a_frontend_at_an_ipv6_address_has_a_url() -> None:
    assert metrics_from("::1", 1).problem.startswith("http://[::1]:1 cannot be reached from here: ")
