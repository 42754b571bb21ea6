"""Decisions of the autoscaler, on a clock that is given: steps, noise, periods, a day against an oracle, and facts in doubt."""

import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.swarm.autoscale.arrivals import Arrivals
from cluster_serving.swarm.autoscale.decision import Reason
from cluster_serving.swarm.autoscale.pace import NodeWork, Pace
from cluster_serving.swarm.autoscale.policy import Facts, Policy
from cluster_serving.swarm.autoscale.settings import Autoscale, load_autoscale
from support.autoscaled import MIDNIGHT, World, poisson

HOUR_S = 3600.0
IDLE = NodeWork(workers=2, batch=16, rows=0, records_s=0, busy=0)


def busy_node(rows: float, fixed_s: float = 0.03, row_s: float = 0.004) -> NodeWork:
    """A node whose two workers run batches of so many rows all the time."""
    return NodeWork(2, 16, rows, 2 * rows / (fixed_s + row_s * rows), 1.0)


# Arrivals


def test_a_rate_is_not_known_before_ten_seconds() -> None:
    arrivals = Arrivals()
    rates = []
    for second in range(0, 14, 2):
        arrivals.observe(second, 5 * second)
        rates.append(arrivals.rate)

    assert rates == [None, None, None, None, None, 5.0, 5.0]


def test_a_rise_counts_within_ten_seconds_and_a_fall_within_a_minute() -> None:
    arrivals, count = Arrivals(), 0
    rates: dict[int, float] = {}
    for second in range(0, 300, 2):
        count += 2 * (40 if 100 < second <= 200 else 10)
        arrivals.observe(second, count)
        rates[second] = arrivals.rate or 0

    assert rates[100] == 10
    assert rates[104] > 13
    assert rates[110] == rates[200] == 40
    assert 10 < rates[210] < 40
    assert rates[262] == 10


def test_chance_alone_is_no_rise() -> None:
    chance, arrivals, count = random.Random(1), Arrivals(), 0
    rates = []
    for second in range(0, 4000, 2):
        count += poisson(chance, 2 * 20)
        arrivals.observe(second, count)
        rates.append(arrivals.rate or 0)

    assert sum(rate > 25 for rate in rates) < 0.01 * len(rates)


def test_a_count_that_falls_is_told() -> None:
    arrivals = Arrivals()
    assert arrivals.observe(0, 100)

    assert not arrivals.observe(2, 7)
    assert arrivals.rate is None


# Pace


def test_the_speed_of_full_batches_is_learned_from_small_ones() -> None:
    pace = Pace()
    assert pace.rate is None
    for look in range(20):
        pace.observe(2 * look, "model", [busy_node(rows) for rows in (2, 4, 8)])

    assert pace.rate == pytest.approx(busy_node(16).records_s, rel=0.1)


def test_batches_of_one_size_promise_no_more_than_their_speed() -> None:
    pace = Pace()
    for look in range(20):
        pace.observe(2 * look, "model", [busy_node(4)] * 3)

    assert pace.rate == pytest.approx(busy_node(4).records_s)


def test_the_line_is_not_trusted_far_beyond_the_rows_that_were_seen() -> None:
    pace = Pace()
    for look in range(20):
        pace.observe(2 * look, "model", [busy_node(rows, row_s=0) for rows in (1, 1.5, 2)])

    assert pace.rate is not None
    assert pace.rate < 1.1 * busy_node(4, row_s=0).records_s


def test_a_part_beside_the_workers_limits_the_speed_too() -> None:
    pace = Pace()
    pace.observe(
        0, "model", [NodeWork(2, 16, rows=16, records_s=300, busy=0.75)]
    )  # a reader that is busy for three quarters

    assert pace.rate == pytest.approx(400)


def test_another_model_is_measured_anew() -> None:
    pace = Pace()
    pace.observe(0, "one", [busy_node(16)])
    pace.observe(2, "two", [IDLE])
    assert pace.rate is None

    pace.observe(4, "two", [busy_node(16, fixed_s=1)])
    assert pace.rate == pytest.approx(busy_node(16, fixed_s=1).records_s)


# Policy


def test_a_step_is_answered_at_once_and_left_after_the_window() -> None:
    settings = Autoscale(max=20, scaleDownWindow=120)
    world = World(settings, lambda now_s: 800 if 300 < now_s <= 900 else 100)
    world.run(300)  # learns the model meanwhile
    before, begin = world.replicas, len(world.ordered)
    world.run(30)
    during = world.replicas
    world.run(570)
    peak = world.replicas
    world.run(100)
    kept = world.replicas
    world.run(600)

    assert before == 1
    assert during >= 800 / world.pace
    assert peak == kept == math.ceil(800 / (0.9 * world.pace))
    assert world.replicas == 1
    assert max(world.waits_s[begin:]) < 15  # a start takes 8 s
    assert max(world.waits_s[begin + 15 :]) < 5
    assert world.reversals(begin) == 1


def test_nodes_are_ordered_once_for_one_backlog() -> None:
    """A backlog that present and ordered nodes work off in time orders no more nodes, while the ordered ones start."""
    bursts = ((100, 102), (700, 702))
    settings = Autoscale(max=20, targetWait=10, scaleDownWindow=120)
    world = World(settings, lambda now_s: 4000 if any(begin < now_s <= end for begin, end in bursts) else 100)
    world.run(700)
    before, begin = world.replicas, len(world.ordered)
    world.run(120)

    assert before == 1
    assert 1 < max(world.ordered[begin:]) <= 2 * math.ceil(8000 / 10 / world.pace)  # the burst might go on
    assert world.arrived - world.served < 1000


@pytest.mark.parametrize("seed", range(3))
def test_noise_makes_no_reversals(seed: int) -> None:
    chance = random.Random(seed)
    noise = [chance.uniform(0.5, 1.5) for _ in range(1000)]
    world = World(Autoscale(max=20), lambda now_s: 500 * noise[int(now_s) // 5 % 1000], seed=seed)
    world.run(600)
    settled = len(world.ordered)
    world.run(600)

    assert len({*world.ordered[settled:]}) <= 2
    assert world.reversals() <= 1


@pytest.mark.parametrize("period_s", [60.0, 300.0, 1200.0])
def test_a_periodic_load_makes_two_reversals_a_period_at_most(period_s: float) -> None:
    periods = 5
    world = World(Autoscale(max=20), lambda now_s: 500 + 400 * math.sin(2 * math.pi * now_s / period_s))
    world.run(periods * period_s)

    assert world.reversals() <= 2 * periods


def traffic_of_a_day(seed: int) -> list[float]:
    """Records a second for each minute of a day: a night, two humps, slow drift, and three events of some minutes."""
    chance = random.Random(seed)
    events = [(chance.uniform(7, 22), chance.uniform(1.3, 1.8)) for _ in range(3)]
    drift, rates = 1.0, []
    for minute in range(24 * 60):
        hour = minute / 60
        drift += 0.02 * chance.gauss(0, 1) - 0.05 * (drift - 1)
        humps = math.exp(-(((hour - 11) / 2.5) ** 2)) + 0.9 * math.exp(-(((hour - 19.5) / 2.2) ** 2))
        event = max([1.0] + [factor for begin, factor in events if begin <= hour < begin + 0.3])
        rates.append((250 + 2500 * humps) * max(0.8, drift) * event)
    return rates


@pytest.mark.slow
def test_a_day_keeps_the_objective_with_little_more_than_an_oracle() -> None:
    """The oracle knows each minute beforehand, and runs the fewest nodes that do it."""
    seed = 0
    rates = traffic_of_a_day(seed)
    world = World(
        Autoscale(max=50, targetWait=10), lambda now_s: rates[int(now_s / 60) % len(rates)], seed=seed, look_s=4
    )
    world.run(600)  # to learn the model
    begin = len(world.ordered)
    world.run(24 * HOUR_S - 600)
    oracle = [max(1, math.ceil(rate / world.pace)) for rate in rates[10:]]

    waits_s = sorted(world.waits_s[begin:])
    used = sum(world.ordered[begin:]) / len(world.ordered[begin:])
    print(f"seed {seed}: {used:.2f} nodes, oracle {sum(oracle) / len(oracle):.2f}, longest wait {waits_s[-1]:.1f} s")
    assert waits_s[int(0.999 * len(waits_s))] <= 10
    assert used <= 1.25 * sum(oracle) / len(oracle)


def test_no_records_end_the_last_node_and_the_first_record_wakes_one() -> None:
    world = World(Autoscale(min=0, scaleDownWindow=60), lambda now_s: 20 if now_s <= 60 or now_s > 400 else 0)
    world.run(60)
    served = world.replicas
    world.run(340)
    asleep = world.replicas
    world.run(4)
    awake = world.replicas
    world.run(60)

    assert (served, asleep, awake) == (1, 0, 1)
    assert world.served >= world.arrived - 100  # but for those of the last look


def decided(policy: Policy, facts: Facts, looks: int = 10) -> list[tuple[int | None, str]]:
    """Decide about facts that stay."""
    found = [policy.decide(2 * look, MIDNIGHT, facts) for look in range(looks)]
    return [(decision.wanted, decision.words) for decision in found]


def test_a_model_that_takes_longer_than_records_may_wait_starts_no_crowd() -> None:
    running = NodeWork(workers=2, batch=1, rows=1, records_s=0.06, busy=0.9)  # 30 s a record
    facts = Facts(arrived=0, backlog=2, model="model", ready=[running] * 2, replicas=2)

    assert decided(Policy(Autoscale(max=50, targetWait=1)), facts, looks=60)[-1][0] == 2


def test_floor_and_ceiling_are_kept_and_told() -> None:
    loaded = Facts(arrived=0, backlog=40_000, model="model", ready=[busy_node(16)] * 4, replicas=4)
    idle = Facts(arrived=0, backlog=0, model="model", ready=[IDLE], replicas=1)

    assert decided(Policy(Autoscale(max=6)), loaded)[-1][0] == 6
    assert "max, " in decided(Policy(Autoscale(max=6)), loaded)[-1][1]
    assert decided(Policy(Autoscale(min=3)), idle)[-1] == (3, "3 nodes from 1: min, 0 would do: no records come")


def test_a_wrong_speed_starts_no_more_than_twice_the_nodes() -> None:
    slow_begin = NodeWork(workers=2, batch=16, rows=1, records_s=1, busy=1)
    facts = Facts(arrived=0, backlog=10_000, model="model", ready=[slow_begin] * 10, replicas=10)
    starting = facts._replace(replicas=20)

    assert decided(Policy(Autoscale(max=1000)), facts)[-1][0] == 20
    assert decided(Policy(Autoscale(max=1000)), starting)[-1][0] == 20


def test_a_job_whose_speed_is_not_known_keeps_its_nodes() -> None:
    facts = Facts(arrived=0, backlog=500, model="model", ready=[IDLE] * 3, replicas=3)

    assert decided(Policy(Autoscale()), facts)[-1][0] == 3
    assert decided(Policy(Autoscale(min=0)), facts._replace(ready=[], replicas=0))[-1][0] == 1


def test_doubt_leaves_the_number_alone_and_begins_the_window_anew() -> None:
    policy = Policy(Autoscale(scaleDownWindow=30))
    facts = Facts(arrived=0, backlog=0, model="model", ready=[IDLE] * 4, replicas=4)
    for second in range(0, 30, 2):
        policy.decide(second, MIDNIGHT, facts)
    held = policy.hold("Redis is away")
    after = {second: policy.decide(second, MIDNIGHT, facts) for second in range(90, 150, 2)}

    assert (held.wanted, held.reason, held.words) == (None, Reason.HELD, "left alone: Redis is away")
    assert {after[second].wanted for second in (90, 98)} == {None}
    assert after[128].wanted == 4
    assert (after[130].wanted, after[130].reason) == (3, Reason.DOWN)


def test_a_redis_with_fewer_records_than_before_is_doubtful() -> None:
    policy = Policy(Autoscale())
    facts = Facts(arrived=100, backlog=0, model="model", ready=[IDLE], replicas=1)
    policy.decide(0, MIDNIGHT, facts)

    assert policy.decide(2, MIDNIGHT, facts._replace(arrived=5)).reason is Reason.HELD


def test_one_step_down_at_a_time() -> None:
    policy, replicas, seen = Policy(Autoscale(scaleDownWindow=20, max=30)), 30, []
    for second in range(0, 120, 2):
        facts = Facts(arrived=0, backlog=0, model="model", ready=[IDLE] * replicas, replicas=replicas)
        replicas = policy.decide(second, MIDNIGHT, facts).wanted or replicas
        seen.append(replicas)

    assert list(dict.fromkeys(seen)) == [30, 27, 25, 23, 21, 19, 18]
    assert seen.count(27) == 8  # 15 s and more


def test_a_lower_max_is_reached_in_one_step_which_the_scaler_takes() -> None:
    policy = Policy(Autoscale(scaleDownWindow=20, max=8))
    facts = Facts(arrived=0, backlog=0, model="model", ready=[IDLE] * 30, replicas=30)
    orders = [policy.decide(second, MIDNIGHT, facts).wanted for second in range(0, 40, 2)]

    assert next(order for order in orders if order not in (None, 30)) == 8


# Settings


def test_the_schedule_takes_the_place_of_min() -> None:
    settings = Autoscale.model_validate({"min": 1, "schedule": {"8-18": "4", "12-14": "6", "22-6": "0"}})
    least = [settings.least_at(MIDNIGHT + timedelta(hours=hour)) for hour in range(24)]

    assert least == [0] * 6 + [1] * 2 + [4] * 4 + [6] * 2 + [4] * 4 + [1] * 4 + [0] * 2


def test_the_schedule_is_in_its_time_zone() -> None:
    settings = Autoscale.model_validate({"schedule": {"8-18": "4"}, "timeZone": "Europe/Berlin"})

    assert settings.least_at(datetime(2026, 7, 1, 6, 30, tzinfo=UTC)) == 4
    assert settings.least_at(datetime(2026, 12, 1, 6, 30, tzinfo=UTC)) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("autoscale:\n  min: 12\n", "config.yaml, line 2: min of autoscale has 12 nodes, but max is 10: raise max"),
        ("autoscale:\n  schedule: {8-18: 11}\n", "schedule of autoscale has 11 nodes, but max is 10"),
        ("autoscale:\n  schedule: {8-25: 2}\n", "must have hours such as 8-18"),
        ("autoscale:\n  schedule: 8-18\n", "must have hours such as 8-18"),
        ("autoscale:\n  timeZone: Mars/Base\n", "must be a time zone of this machine"),
        ("autoscale:\n  targetwait: 0\n", "line 2"),
        ("autoscale:\n  minimum: 2\n", "unknown key minimum; did you mean min?"),
        ("min: 2\n", "min belongs below autoscale"),
    ],
)
def test_wrong_settings_are_named_with_their_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)

    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        load_autoscale(file, {}, {})


def test_settings_of_other_programs_in_the_file_are_left_to_them(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "modelPath: /models/x\nfrontend: {port: 1}\nredis: {timeout: 3}\nautoscale: {max: 4, targetUtilization: 0.5}\n"
    )

    settings = load_autoscale(file, {}, {"dryRun": True})
    assert (settings.max, settings.target_utilisation, settings.dry_run) == (4, 0.5, True)
