"""The token bucket, with time passed in."""

import pytest

from cluster_serving.frontend.models.token_bucket import TokenBucket


def taken(bucket: TokenBucket, now_s: float, requests: int) -> list[float | None]:
    return [bucket.wait_s(now_s) for _ in range(requests)]


def test_a_full_bucket_holds_the_tokens_of_a_second() -> None:
    waits = taken(TokenBucket(4, 0), 100.0, 5)

    assert waits == [0, 0, 0, 0, None]


def test_it_fills_by_its_rate() -> None:
    bucket = TokenBucket(4, 0)
    taken(bucket, 100.0, 4)

    waits = [bucket.wait_s(now_s) for now_s in (100.2, 100.25, 100.3, 100.5)]

    assert waits == [None, 0, None, 0]


def test_requests_wait_for_their_tokens_in_turn() -> None:
    bucket = TokenBucket(10, 0.25)
    taken(bucket, 0.0, 10)

    waits = taken(bucket, 0.0, 3)

    assert waits == [pytest.approx(0.1), pytest.approx(0.2), None]


def test_who_gives_up_takes_no_token() -> None:
    bucket = TokenBucket(10, 0.05)
    taken(bucket, 0.0, 10)

    refused = taken(bucket, 0.0, 5)

    assert refused == [None] * 5
    assert bucket.wait_s(0.1) == pytest.approx(0, abs=1e-9)


def test_after_a_long_pause_it_holds_no_more_than_a_second_of_tokens() -> None:
    bucket = TokenBucket(3, 0)
    taken(bucket, 0.0, 3)

    waits = taken(bucket, 1000.0, 4)

    assert waits == [0, 0, 0, None]


def test_less_than_one_token_a_second() -> None:
    bucket = TokenBucket(0.5, 0)

    waits = [bucket.wait_s(now_s) for now_s in (0.0, 1.9, 2.0)]

    assert waits == [0, None, 0]


def test_the_rate_holds_over_time() -> None:
    bucket = TokenBucket(50, 0)

    let_through = sum(bucket.wait_s(step / 1000) is not None for step in range(10_000))

    assert let_through == pytest.approx(50 * 10 + 50, abs=2)
