"""Names of jobs: keys of one job are never taken for keys of another."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cluster_serving.client import AsyncOutputQueue, InputQueue, keys


def is_name(text: str) -> bool:
    try:
        return keys.check_job(text) == text
    except ValueError:
        return False


NAMES = st.text(":ab{", min_size=1, max_size=4).filter(is_name)


@given(NAMES, NAMES)
def test_no_prefix_of_a_job_begins_as_one_of_another(one: str, other: str) -> None:
    assume(one != other)

    assert not keys.result_prefix(one).startswith(keys.result_prefix(other))
    assert not keys.reply_prefix(one).startswith(keys.reply_prefix(other))
    assert not keys.node_key(one, "").startswith(keys.node_key(other, ""))
    assert not keys.reply_prefix(one).startswith(keys.OLD_FRONTENDS)


@pytest.mark.parametrize("queue", [InputQueue, AsyncOutputQueue])
@pytest.mark.parametrize(
    ("name", "why"), [("a:b", "results of the job a too"), ("", "must not be empty"), (5, "must be a text")]
)
def test_a_queue_says_what_is_wrong_with_its_name(queue: type, name: object, why: str) -> None:
    with pytest.raises(ValueError, match=f"^name is {name!r}, but .*{why}$"):
        queue(name=name)
