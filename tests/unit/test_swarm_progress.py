"""Progress of a stack, from what the Engine's API says: the stack is as it was asked to be, or it never will be."""

from typing import Any

import msgspec
import pytest

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.swarm.live import Machine, Service, Stack, Task
from cluster_serving.swarm.progress import ENOUGH_FAILURES, StackFollower, progress_of
from cluster_serving.swarm.reasons import explained

NEW, OLD = "node:2", "node:1"
MACHINES = {"a": Machine("w1", is_up=True), "b": Machine("w2", is_up=False)}


def service(name: str, replicas: int | None, image: str = NEW, **update: str) -> Service:
    return msgspec.convert(
        {
            "ID": name,
            "Spec": {
                "Name": f"serving_{name}",
                "TaskTemplate": {
                    # What was not said: docker fills it in for a service, and not for its tasks.
                    "ContainerSpec": {"Image": image, "DNSConfig": {}, "StopGracePeriod": 10**10},
                    "RestartPolicy": {"Condition": "any", "Delay": 5 * 10**9, "MaxAttempts": 0},
                    "Placement": {},
                    "Runtime": "container",
                },
                "Mode": {"Global": {}} if replicas is None else {"Replicated": {"Replicas": replicas}},
            },
            **(
                {"UpdateStatus": {key.title().replace("_", ""): value for key, value in update.items()}}
                if update
                else {}
            ),
        },
        Service,
    )


def task(of: str, state: str, image: str = NEW, desired: str = "running", node: str = "a", **more: Any) -> Task:
    """One task; its id comes from `key`, which also says when it was made."""
    key = more.pop("key", f"{of}-{state}-{image}-{desired}-{node}")
    return msgspec.convert(
        {
            "ID": key,
            "ServiceID": of,
            "CreatedAt": key,
            "DesiredState": desired,
            "NodeID": node,
            "Status": {"State": state, "Err": more.get("err", ""), "Message": "started"},
            "Spec": {"ContainerSpec": {"Image": image}, "ForceUpdate": 0},
        },
        Task,
    )


def stack(services: list[Service], *tasks: Task) -> Stack:
    return Stack("serving", {one.id: one for one in services}, list(tasks), MACHINES)


def sentence(of: Service, *tasks: Task) -> str:
    return progress_of(of.id, of, stack([of], *tasks)).sentence()


def failed(of: str, number: int, err: str = "task: non-zero exit (5)") -> Task:
    return task(of, "failed", desired="shutdown", key=f"{of}-failure-{number}", err=err)


def test_a_service_is_settled_when_all_its_tasks_run_and_are_new() -> None:
    node = service("node", 2)
    tasks = [task("node", "running", key=f"{number}") for number in range(2)]

    assert progress_of("node", node, stack([node], *tasks)).is_settled
    assert sentence(node, *tasks) == "ready"
    assert sentence(node, tasks[0], task("node", "starting")) == "1 starting"
    assert sentence(node, tasks[0]) == "waiting to start again"
    assert sentence(service("node", 0)) == "none wanted"


def test_tasks_of_an_older_specification_are_to_be_replaced() -> None:
    node = service("node", 1)

    assert sentence(node, task("node", "running", OLD), task("node", "starting")) == "1 starting, 1 to be replaced"
    assert sentence(node, task("node", "running"), task("node", "running", OLD, "shutdown")) == "1 leaving"


def test_an_update_that_is_watched_is_not_settled() -> None:
    """Swarm may still roll it back."""
    node = service("node", 1, state="updating")

    assert sentence(node, task("node", "running")) == "watched for a moment"
    assert sentence(service("node", 1, state="completed"), task("node", "running")) == "ready"


def test_a_global_service_wants_what_swarm_gives_it() -> None:
    node = service("node", None)

    progress = progress_of("node", node, stack([node], task("node", "running"), task("node", "preparing", node="c")))

    assert (progress.wanted, progress.ready, progress.is_settled) == (2, 1, False)


def test_what_ran_on_a_machine_that_is_down_does_not_run() -> None:
    node = service("node", 1)

    lost = progress_of("node", node, stack([node], task("node", "running", node="b")))
    left = progress_of(
        "node", node, stack([node], task("node", "running"), task("node", "running", desired="shutdown", node="b"))
    )

    assert not lost.is_settled
    assert (left.is_settled, left.leaving) == (True, 0)


def test_it_says_why_swarm_cannot_place_a_task() -> None:
    node = service("node", 1)

    assert sentence(node, task("node", "pending", err="no suitable node (insufficient resources on 3 nodes)")) == (
        "1 pending, no suitable node (insufficient resources on 3 nodes)"
    )


def test_failures_end_the_wait_when_nothing_gets_better() -> None:
    redis, node = service("redis", 1), service("node", 1)
    watch = StackFollower(None)
    failures = [failed("node", number) for number in range(2 * ENOUGH_FAILURES)]

    watch.look(stack([redis, node], task("redis", "starting"), *failures[:ENOUGH_FAILURES]))
    while_redis_starts = watch.is_over
    watch.look(stack([redis, node], task("redis", "running"), *failures[:ENOUGH_FAILURES]))
    after_redis_started = watch.is_over
    watch.look(stack([redis, node], task("redis", "running"), *failures))

    assert (while_redis_starts, after_redis_started, watch.is_over) == (False, False, True)
    assert not watch.is_done
    assert len(watch.failures["node"]) == 2 * ENOUGH_FAILURES


def test_failures_that_were_there_before_do_not_count() -> None:
    node = service("node", 1)
    old = [failed("node", number) for number in range(ENOUGH_FAILURES)]
    watch = StackFollower(stack([node], *old))

    watch.look(stack([node], *old))

    assert not watch.is_over
    assert watch.failures == {}


def test_a_roll_back_ends_the_wait_when_it_is_complete() -> None:
    before = stack([service("node", 1, OLD)], task("node", "running", OLD))
    watch = StackFollower(before)

    watch.look(stack([service("node", 1, OLD, state="rollback_started")], task("node", "running", OLD)))
    going = (watch.is_done, watch.is_over)
    watch.look(stack([service("node", 1, OLD, state="rollback_completed")], task("node", "running", OLD)))

    assert going == (False, False)
    assert (watch.is_done, watch.is_over, watch.rolled_back) == (False, True, ["node"])


def test_a_roll_back_of_another_day_is_no_news() -> None:
    earlier = service("node", 1, OLD, state="rollback_completed", completed_at="2026-11-20T10:00:00Z")
    again = service("node", 1, OLD, state="rollback_completed", completed_at="2026-11-22T10:00:00Z")
    runs = task("node", "running", OLD)
    watch, failing = StackFollower(stack([earlier], runs)), StackFollower(stack([earlier], runs))

    watch.look(stack([earlier], runs))
    failing.look(stack([again], runs))

    assert (watch.is_done, watch.rolled_back) == (True, [])
    assert (failing.is_done, failing.rolled_back) == (False, ["node"])


def test_a_paused_update_ends_the_wait() -> None:
    watch = StackFollower(None)

    watch.look(
        stack([service("node", 2, state="paused")], task("node", "running"), task("node", "running", OLD, key="old"))
    )

    assert watch.is_over
    assert not watch.is_done


def test_those_that_leave_are_waited_for_where_that_is_asked() -> None:
    tasks = task("node", "running"), task("node", "running", desired="shutdown")
    watch, patient = StackFollower(None), StackFollower(None, drained=True)

    for one in (watch, patient):
        one.look(stack([service("node", 1)], *tasks))

    assert (watch.is_done, patient.is_done) == (True, False)


def test_nothing_is_done_before_the_first_look() -> None:
    watch = StackFollower(None)

    assert (watch.is_done, watch.is_over) == (False, False)


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("task: non-zero exit (5)", "(the model cannot be loaded)"),
        ("task: non-zero exit (137): dockerexec: unhealthy container", "(killed; out of memory?)"),
        ("task: non-zero exit (1)", "(1)"),
        ("No such image: x:1", "push it to a registry"),
        ('invalid mount config for type "bind": bind source path does not exist: /x', "on every machine"),
    ],
)
def test_what_docker_says_is_explained(said: str, meaning: str) -> None:
    explanation = explained(task("node", "failed", err=said))

    assert explanation.startswith(said)
    assert meaning in explanation


def test_a_service_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(Fault, match="has no service web; it has node"):
        stack([service("node", 1)]).service("web")
