import pytest

from cluster_serving.node.chaos.schedule import CHILDREN, KINDS, Act, Target, plan


def test_the_same_seed_gives_the_same_faults_and_another_one_others() -> None:
    assert plan(7, 60) == plan(7, 60)
    assert plan(7, 60) != plan(8, 60)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("seconds", [60, 61.5, 300])
def test_a_minute_has_every_kind_of_fault(seconds: float, seed: int) -> None:
    kinds = {(fault.target, fault.act) for fault in plan(seed, seconds)}

    assert kinds == set(KINDS)


@pytest.mark.parametrize("seconds", [1, 12, 60, 200])
def test_faults_come_in_order_and_while_the_load_lasts(seconds: float) -> None:
    times = [fault.at_s for fault in plan(3, seconds)]

    assert times
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] <= seconds


def test_a_child_dies_whenever_redis_is_away_and_a_writer_while_it_is_paused() -> None:
    of_redis = [fault for fault in plan(1, 60) if fault.target is Target.REDIS and fault.act is not Act.FAIL_OVER]

    assert len(of_redis) == 3
    assert {fault.meanwhile for fault in of_redis} == set(CHILDREN)
    assert "Redis paused, a writer of node" in " ".join(fault.describe() for fault in of_redis)


def test_both_nodes_have_faults_and_every_fault_can_be_told() -> None:
    faults = plan(1, 120)

    assert {fault.node for fault in faults} == {0, 1}
    assert all(fault.describe() for fault in faults)
