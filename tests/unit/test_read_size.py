"""Number of entries that the reader asks for, by the bytes of the replies before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.node.reader.read_size import ReadSize

MOST = 64
REPLY_BYTES = 64 << 20


def after(*replies: tuple[int, int], times: int = 1) -> int:
    """Entries to ask for after these replies, of so many entries with so many bytes each."""
    size = ReadSize(REPLY_BYTES)
    for entries, entry_bytes in replies * times:
        size.note(entries, entries * entry_bytes)
    return size.entries(MOST)


def test_the_first_read_takes_a_single_entry() -> None:
    assert after() == 1


def test_a_read_without_entries_tells_nothing() -> None:
    assert after((0, 0), times=100) == 1


@pytest.mark.parametrize(
    ("entry_bytes", "entries"), [(600, MOST), (600 << 10, MOST), (4 << 20, 16), (60 << 20, 1), (512 << 20, 1)]
)
def test_replies_come_to_have_the_bytes_of_a_slot(entry_bytes: int, entries: int) -> None:
    assert after((1, entry_bytes), times=40) == entries


def test_small_entries_come_twice_as_many_at_a_time() -> None:
    assert [after(*[(1, 600)] * replies) for replies in range(1, 8)] == [2, 4, 8, 16, 32, 64, 64]


def test_a_large_entry_comes_alone_and_so_do_the_next() -> None:
    found = [after((MOST, 600), (1, 512 << 20), *[(1, 600)] * further) for further in range(12)]

    assert found == [1, 1, 1, 1, 2, 4, 8, 16, 32, 64, 64, 64]


@given(
    st.lists(st.integers(1, 600 << 20), min_size=1, max_size=60),
    st.integers(1, 256),
)
def test_no_read_of_entries_like_those_before_takes_more_than_a_slot_or_one(sizes: list[int], most: int) -> None:
    size = ReadSize(REPLY_BYTES)
    for entry_bytes in sizes:
        entries = size.entries(most)
        size.note(entries, entries * entry_bytes)

        assert 1 <= size.entries(most) <= max(1, REPLY_BYTES // entry_bytes)
