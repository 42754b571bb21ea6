"""The plan of a cluster: processes on cores, the way of a record, a part beside the whole, and the answer."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.swarm.cli import swarm
from cluster_serving.swarm.plan.engine import Clock, Machine, Process, Then
from cluster_serving.swarm.plan.measuring import raised
from cluster_serving.swarm.plan.part import play_part, waits_of_calls
from cluster_serving.swarm.plan.picture import draw
from cluster_serving.swarm.plan.planning import (
    Demand,
    Plan,
    Planner,
    Point,
    knee,
    lost_machines,
    planned,
    spare_machines,
)
from cluster_serving.swarm.plan.profile import Cost, Profile
from cluster_serving.swarm.plan.serving import Crew, Load, play
from cluster_serving.swarm.plan.text import lines, of_full_machine

NOTHING = Cost(0, 0, 0)
COSTS = Profile(
    model="/models/some",
    machine="2 cores of some processor",
    made="2026-11-26T03:00:00+00:00",
    batch=8,
    threads=1,
    payload_bytes=600_000,
    result_bytes=4_000,
    memory_bytes=620_000,
    worker_bytes=200_000_000,
    redis=Cost(40, 20, 180),
    reader=Cost(0, 60, 90),
    worker=Cost(0, 2_000, 8_000),
    writer=Cost(0, 60, 7),
    caller=Cost(0, 10, 20),
    frontend=Cost(100, 0, 700),
    handing_us=20,
)
DEMAND = Demand(rate=400, p99_s=0.06, cores=4, memory=16e9, network=1.25e9, records=1000)
ONLY_MODEL = msgspec.structs.replace(COSTS, redis=NOTHING, reader=NOTHING, writer=NOTHING, caller=NOTHING, handing_us=0)


def ends(cores: float, works_s: list[float]) -> list[float]:
    """Simulate processes that begin at once, and return when each has done its work."""
    clock = Clock()
    machine = Machine(clock, cores)
    found = [0.0] * len(works_s)

    def begin(at: int) -> tuple[float, Then]:
        def ended() -> None:
            found[at] = clock.now_s

        return works_s[at], ended

    for at in range(len(works_s)):
        Process(machine).do(partial(begin, at))
    clock.run()
    return found


def test_processes_share_the_cores_equally() -> None:
    assert ends(2, [1.0, 3.0]) == pytest.approx([1.0, 3.0])
    assert ends(1, [1.0, 3.0]) == pytest.approx([2.0, 4.0])
    assert ends(2, [1.0, 1.0, 1.0, 2.0]) == pytest.approx([2.0, 2.0, 2.0, 3.0])


def test_a_process_does_its_work_piece_by_piece() -> None:
    clock = Clock()
    process, found = Process(Machine(clock, 4), wake_s=0.5), list[float]()
    for _ in range(2):
        process.do(lambda: (1.0, lambda: found.append(clock.now_s)))
    clock.run()

    assert found == pytest.approx([1.5, 2.5])
    assert process.work_s == pytest.approx(2.5)


def test_a_closed_loop_keeps_all_workers_at_full_batches() -> None:
    seen = play(ONLY_MODEL, Crew(nodes=2, workers=3, cores=4, callers=2), Load(3000, window=200))

    assert seen.rows == pytest.approx(8, abs=0.1)
    assert seen.rate == pytest.approx(6 * 8 / ONLY_MODEL.worker.seconds(8), rel=0.02)


def test_a_lone_record_takes_the_time_of_its_parts() -> None:
    seen = play(COSTS, Crew(nodes=1, workers=2, cores=4, callers=1), Load(200, rate=1.0))

    parts_s = sum(cost.seconds(1) for cost in (COSTS.reader, COSTS.worker, COSTS.writer))
    redis_s = COSTS.redis.seconds(1) + 3 * COSTS.redis.wake_s / 4  # the read that waited is paid for before
    assert seen.rows == 1
    assert seen.p50_s == pytest.approx(parts_s + redis_s + 6 * COSTS.handing_s, rel=0.02)


def test_workers_on_too_few_cores_share_them() -> None:
    crew = Crew(nodes=1, workers=4, cores=2, callers=2)

    seen = play(ONLY_MODEL, crew, Load(2000, window=200))

    assert seen.rate == pytest.approx(2 * 8 / ONLY_MODEL.worker.seconds(8), rel=0.02)


def test_calls_wait_as_queueing_theory_says() -> None:
    waits_s = waits_of_calls([1e-4], 5000, seed=1)

    # M/D/1 with two calls of 0.1 ms at once: the first waits rho s / (2 (1 - rho)) with s = 0.2 ms, the second 0.1 ms longer.
    assert sum(waits_s) / len(waits_s) == pytest.approx(1e-4 + 0.5e-4, rel=0.05)


@pytest.mark.slow
def test_a_part_tells_of_the_whole() -> None:
    light = msgspec.structs.replace(COSTS, redis=Cost(40, 20, 40))
    crew = Crew(nodes=0, workers=8, cores=10, callers=16)

    whole = play_part(light, 16, crew, 8000, few_workers=128, records=4000)
    part = play_part(light, 16, crew, 8000, few_workers=64, records=2000)

    assert part.rate == pytest.approx(whole.rate / 2, rel=0.1)
    assert part.p50_s == pytest.approx(whole.p50_s, rel=0.05)
    assert part.p99_s == pytest.approx(whole.p99_s, rel=0.15)


def test_the_smallest_layout_keeps_the_objective_and_a_smaller_one_does_not() -> None:
    planner = Planner(COSTS, replace(DEMAND, rate=1200))

    layout = planner.smallest(lambda _: None)

    assert planner.keeps(layout)[0]
    assert not planner.keeps(replace(layout, nodes=layout.nodes - 1))[0]


@pytest.mark.slow
def test_a_plan_has_spare_machines_for_a_zone_and_tells_what_fails_first() -> None:
    demand = replace(DEMAND, over_http=True, survive="zone", zones=3, price=0.05)

    plan = planned(COSTS, demand, lambda _: None)

    assert plan.nodes % 3 == 0
    assert plan.spare_nodes * 3 == plan.nodes
    assert plan.reduced.p99_ms <= 60
    assert plan.whole.p99_ms <= plan.reduced.p99_ms
    assert list(plan.limits.values()) == sorted(plan.limits.values())
    assert plan.frontends == 3  # 400 requests of 0.7 ms are 0.28 of a process, in each zone
    assert plan.limits["frontends"] == pytest.approx(3 / 0.0007)
    assert plan.cores == plan.nodes * 4 + 2 * plan.redis_servers + plan.frontends
    assert plan.cost_per_hour == pytest.approx(0.05 * plan.cores)
    assert plan.redis_memory_bytes == pytest.approx(400 * 30 * 620_000, rel=0.01)


@pytest.mark.parametrize(
    ("survive", "zones", "needed", "spare", "lost"),
    [
        ("none", 3, 7, 0, 0),
        ("host", 3, 7, 1, 1),
        ("zone", 3, 1, 2, 1),
        ("zone", 3, 3, 3, 2),
        ("zone", 4, 7, 5, 3),
        ("zone", 5, 5, 5, 2),
    ],
)
def test_a_loss_leaves_what_is_needed(survive: str, zones: int, needed: int, spare: int, lost: int) -> None:
    demand = replace(DEMAND, survive=survive, zones=zones)

    assert spare_machines(needed, demand) == spare
    assert lost_machines(needed + spare, demand) == lost
    assert needed + spare - lost >= needed


def test_a_part_that_costs_nothing_is_never_full() -> None:
    plan = planned(ONLY_MODEL, replace(DEMAND, rate=10, records=200), lambda _: None)

    assert list(plan.limits) == ["workers", "cores of the nodes", "network of Redis", "network of the nodes"]


@pytest.mark.slow
def test_the_largest_plan_has_a_redis_for_each_share_of_the_rate() -> None:
    light = msgspec.structs.replace(
        COSTS, payload_bytes=600, redis=Cost(40, 20, 12), worker=Cost(0, 400, 400), batch=64
    )
    planner = Planner(light, replace(DEMAND, rate=1e6, cores=64, records=400))

    is_kept, layout = planner.keeps(planner.layout(80))

    assert is_kept
    assert 1e6 / layout.redis_servers < 1 / light.redis.seconds(1, 1 / 64)
    assert layout.nodes % layout.redis_servers == 0


def run(tmp_path: Path, *arguments: str) -> Result:
    path = tmp_path / "profile.json"
    COSTS.write(path)
    return CliRunner().invoke(swarm, ["plan", str(path), *arguments])


@pytest.mark.slow
def test_the_command_prints_and_draws_the_plan(tmp_path: Path) -> None:
    options = ("--rate", "400", "--p99", "60", "--cores", "4", "--memory", "16", "--records", "200")
    picture = tmp_path / "plan.png"

    text, as_json = run(tmp_path, *options, "--plot", str(picture)), run(tmp_path, *options, "--json")

    assert text.exit_code == as_json.exit_code == 0
    plan = msgspec.json.decode(as_json.stdout, type=Plan)
    assert f"nodes          {plan.nodes}  4 cores, 4 workers in 800 MB" in text.stdout
    row = f"with all machines {plan.whole.p50_ms:.3g} {plan.whole.p99_ms:.3g}"
    assert row in [" ".join(line.split()) for line in text.stdout.splitlines()]
    assert "Cores of the nodes fail first" in text.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_knee_that_is_not_there_is_not_told(tmp_path: Path) -> None:
    costs = msgspec.structs.replace(
        COSTS, batch=1, worker=Cost(0, 1_000, 900)
    )  # single rows wait for each other only a little
    demand = replace(DEMAND, rate=10, records=200)

    plan = planned(costs, demand, lambda _: None)
    told = list(lines(costs, demand, plan, 132))
    draw(demand, plan, "a plan", tmp_path / "plan.png")

    assert max(point.p99_ms for point in plan.curve) < 2 * plan.curve[0].p99_ms
    assert plan.knee is None
    most = f"{plan.curve[-1].rate:,.0f}"
    assert f"Up to {most} records a second, the p99 is at most twice that of a light load." in told
    assert "a light load" not in " ".join(each for each in told if not each.startswith("Up to"))


def test_a_knee_is_between_two_points() -> None:
    curve = [Point(10, 1, 5), Point(20, 1, 8), Point(40, 1, 12), Point(50, 1, 50)]

    assert knee(curve) == 30
    assert knee(curve[:2]) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--p99", "5"], "no number of nodes answers 99 of 100 records within 5 ms: without any other load it takes"),
        (
            ["--p99", "60", "--memory", "0.3"],
            "a worker takes 0.2 GB, and half of a node's memory is for workers, 0.15 GB",
        ),
        (["--p99", "60", "--cores", "1", "--rate", "900000"], "more than 1,000 nodes are needed (--cores 1)"),
    ],
)
def test_a_demand_that_cannot_be_met_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = run(tmp_path, "--rate", "400", "--records", "1000", *arguments)

    assert result.exit_code == ExitCode.FAILED
    assert message in result.output


def test_a_file_that_is_no_profile_is_named(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text('{"model": 1}')

    result = CliRunner().invoke(swarm, ["plan", str(path), "--rate", "1", "--p99", "1"])

    assert result.exit_code == ExitCode.FAILED
    assert f"{path} is no profile" in result.output


def test_costs_are_raised_until_the_simulation_has_the_measured_rate() -> None:
    def simulated(costs: Profile) -> float:
        crew = Crew(1, 1, len(os.sched_getaffinity(0)), callers=1, caller=costs.caller, one_machine=True)
        return play(costs, crew, Load(6000, window=64)).rate

    measured = simulated(COSTS) / 1.3

    costs, factor = raised(COSTS, 64, measured)

    assert simulated(costs) == pytest.approx(measured, rel=0.02)
    assert costs.worker.seconds(1) == pytest.approx(factor * COSTS.worker.seconds(1), rel=0.01)
    assert raised(COSTS, 64, 2 * measured) == (COSTS, 1)


@pytest.mark.parametrize(("factor", "sentences"), [(1.0, 1), (1.6, 1), (1.7, 2)])
def test_costs_that_were_raised_much_are_told(factor: float, sentences: int) -> None:
    told = list(of_full_machine(factor))

    assert told[0] == f"A full machine takes {factor:.2f} times the CPU time of its processes."
    assert told[1:] == ["That is much: measure on a machine that does nothing else."][: sentences - 1]
