"""Child processes, seen from their parent."""

import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cluster_serving.client.servers.process.child import Child, wait
from support.wait import wait_until

PROGRAM = "support.child_program"
WHERE = {"PYTHONPATH": os.pathsep.join(str(Path(__file__).parents[2] / name) for name in ("src", "tests"))}
SERVES = "import signal; parent.tell_ready(); signal.pause()"

Start = Callable[..., Child]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts children, and ends them."""
    children: list[Child] = []

    def started(source: str, *descriptors: int, **environment: str) -> Child:
        children.append(Child("child", [PROGRAM], source.encode(), descriptors, WHERE | environment))
        return children[-1]

    yield started
    for child in children:
        child.signal(signal.SIGKILL)
        reason_of(child)
        child.close()


@pytest.fixture
def quiet() -> Iterator[int]:
    """A descriptor that cannot be read."""
    descriptors = os.pipe()
    yield descriptors[0]
    for each in descriptors:
        os.close(each)


def reason_of(child: Child) -> str:
    return wait_until(child.reap, "the child ends") or ""


def told(child: Child) -> Child:
    """The child, after its message."""

    def heard() -> bool:
        child.hear()
        return not child.booting

    wait_until(heard, "the child tells")
    return child


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_a_child_is_ready_when_it_says_so(start: Start) -> None:
    child = start("import signal; parent.tell_ready(inputs=['x'], n=3); signal.pause()")
    assert child.booting

    told(child)

    assert child.ready == {"inputs": ["x"], "n": 3}
    assert child.failure is None
    assert child.ready_s >= child.started_s
    assert child.reap() is None
    assert child.fileno() == -1


def test_a_child_tells_why_it_cannot_get_ready(start: Start) -> None:
    child = start("parent.tell_failure('there is no model', 5); raise SystemExit(5)")

    assert reason_of(told(child)) == "exit code 5"
    assert child.failure == ("there is no model", 5)
    assert child.ready is None


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "exit code 0"),
        ("raise SystemExit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 15)", "killed by SIGTERM"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL; out of memory?"),
        ("import os; os.kill(os.getpid(), 40)", "killed by signal 40"),  # a real-time signal without a name
    ],
)
def test_a_child_that_ends_without_a_word(source: str, reason: str, start: Start) -> None:
    child = start(source)

    assert reason_of(child) == reason
    child.hear()
    assert (child.booting, child.ready, child.failure) == (False, None, None)


def test_only_the_first_message_counts(start: Start) -> None:
    """The descriptor of the pipe may belong to somebody else by then."""
    child = start(
        "import os; parent.tell_ready(); reading, writing = os.pipe(); parent.tell_failure('too late', 5);"
        "os.set_blocking(reading, False); os.write(writing, b'x'); raise SystemExit(os.read(reading, 9) != b'x')"
    )

    assert reason_of(told(child)) == "exit code 0"
    assert child.ready == {}
    assert child.failure is None


def test_a_message_may_be_longer_than_the_pipe(start: Start) -> None:
    child = told(start("parent.tell_ready(text=300_000 * 'x')"))

    assert child.ready == {"text": 300_000 * "x"}


def test_a_forked_process_that_keeps_the_pipe_open_hinders_nothing(start: Start) -> None:
    child = start("import os, signal\nif os.fork() == 0: signal.alarm(60); signal.pause()\nparent.tell_ready()")

    assert reason_of(told(child)) == "exit code 0"
    assert child.ready == {}


def test_a_child_has_the_descriptors_and_variables_that_it_is_given(start: Start) -> None:
    given, kept = os.memfd_create("given"), os.memfd_create("kept")
    os.set_inheritable(kept, True)

    child = start(
        "import os; parent.tell_ready(fds=os.listdir('/proc/self/fd'), text=os.environ['TEXT'], pid=os.getppid(),"
        "parent=parent.pid, name=parent.child_name)",
        given,
        TEXT="words",
    )
    ready = told(child).ready
    os.close(given)
    os.close(kept)

    assert ready is not None
    assert str(given) in ready["fds"]
    assert str(kept) not in ready["fds"]
    assert (ready["text"], ready["name"]) == ("words", "child")
    assert ready["pid"] == ready["parent"] == os.getpid()


def test_signals_reach_a_child_and_no_successor_of_its_pid(start: Start) -> None:
    child = told(start(SERVES))

    for ignored in (signal.SIGINT, signal.SIGHUP):
        child.signal(ignored)
    child.signal(signal.SIGTERM)

    assert reason_of(child) == "killed by SIGTERM"
    child.signal(signal.SIGTERM)


def test_ctrl_c_spares_a_child_that_starts(start: Start) -> None:
    """Ctrl-C and the end of a terminal reach the whole process group."""
    child = start("import signal; parent.tell_ready(held=[*map(int, signal.pthread_sigmask(0, []))]); signal.pause()")
    for left_to_parent in (signal.SIGINT, signal.SIGHUP):
        child.signal(left_to_parent)

    assert told(child).ready == {"held": []}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


def test_a_closed_child_leaves_no_descriptor() -> None:
    before = descriptors()

    for source in (SERVES, ""):
        child = Child("child", [PROGRAM], source.encode(), (), WHERE)
        child.signal(signal.SIGKILL)
        reason_of(child)
        child.close()

    assert descriptors() <= before


def test_a_child_that_cannot_be_started_leaves_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    monkeypatch.setattr(sys, "executable", "/no/such/program")

    with pytest.raises(FileNotFoundError):
        start("")

    assert descriptors() <= before


def test_a_child_whose_end_could_not_be_seen_is_not_left_alone(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    before, running = descriptors(), psutil.Process().children()

    def unknown(_pid: int) -> int:
        raise OSError("no such system call")

    monkeypatch.setattr(os, "pidfd_open", unknown)

    with pytest.raises(OSError, match="no such system call"):
        start(SERVES)

    assert descriptors() <= before
    assert psutil.Process().children() == running


def test_a_child_for_which_descriptors_lack_leaves_nothing(start: Start) -> None:
    before, running = descriptors(), psutil.Process().children()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    most, failures = max(map(int, before)) + 1, 0
    held = []
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) < most:
        held.append(descriptor)
    os.close(descriptor)
    full = descriptors()

    try:
        for spare in range(64):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most + spare, limits[1]))
            try:
                start("")
                break
            except OSError:
                failures += 1
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert descriptors() <= full
            assert psutil.Process().children() == running
    finally:
        for descriptor in held:
            os.close(descriptor)

    assert failures > 5


def test_a_child_does_not_outlive_its_parent() -> None:
    source = f"""
import signal
from cluster_serving.client.servers.process.child import Child
print(Child("child", [{PROGRAM!r}], b"import signal; signal.pause()", ()).pid, flush=True)
signal.pause()
"""
    with subprocess.Popen(
        [sys.executable, "-c", source], env=os.environ | WHERE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()

    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "the child has ended")


def test_a_child_whose_parent_has_gone_ends_at_once() -> None:
    head = b'{"name": "child", "parent": 1, "ready_fd": 2}\n'

    done = subprocess.run(
        [sys.executable, "-m", PROGRAM], input=head, env=os.environ | WHERE, capture_output=True, check=False
    )

    assert done.returncode == 1
    assert done.stderr == b"the parent died while this process started\n"


def test_waiting_ends_with_a_message_an_end_a_wake_up_or_the_time(start: Start, quiet: int) -> None:
    silent, speaking = start("import signal; signal.pause()"), start(SERVES)
    loud = os.memfd_create("loud")  # a file can always be read

    assert wait([silent, speaking], quiet, math.inf) == (False, [speaking])
    told(speaking)
    assert wait([silent, speaking], loud, math.inf) == (True, [])
    assert wait([silent, speaking], quiet, 0.01) == (False, [])
    assert wait([silent, speaking], quiet, -1) == (False, [])
    speaking.signal(signal.SIGKILL)
    assert wait([silent, speaking], quiet, math.inf) == (False, [])

    assert reason_of(speaking).startswith("killed by SIGKILL")
    os.close(loud)
