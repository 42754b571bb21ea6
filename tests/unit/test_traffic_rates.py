from support.swarm.rates import full_again_s, throughput


def test_the_rate_of_a_node_is_counted_from_its_first_batch_to_its_last() -> None:
    done = [("a", second + 0.25) for second in range(10) for _ in range(8)] + [("b", 3.0), ("b", 5.0), ("b", 5.0)]

    assert throughput(done, 1.0, 9.0) == {"a": 8.0, "b": 1.0}


def test_a_node_with_one_batch_has_no_rate() -> None:
    assert throughput([("a", 1.0), ("a", 1.0)], 0.0, 2.0) == {}


def answers(*per_second: int) -> list[float]:
    """Return the times at which answers were seen: so many in each second."""
    return [second + place / count for second, count in enumerate(per_second) for place in range(count)]


def test_the_full_rate_is_back_when_three_seconds_had_it() -> None:
    assert full_again_s(answers(10, 10, 4, 5, 10, 5, 9, 12, 10, 1), 0.0, 10.0) == 7.0


def test_a_fault_that_is_not_felt_yet_is_not_over() -> None:
    assert full_again_s(answers(10, 10, 10, 10, 10), 0.0, 10.0) == 0.0


def test_a_second_that_is_not_over_says_nothing() -> None:
    assert full_again_s(answers(10, 2, 10, 10, 10), 0.0, 10.0) == 0.0
