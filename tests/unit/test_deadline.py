"""Until when a record is to be begun, by what its field says."""

import pytest

from cluster_serving.client.errors import CodecError
from cluster_serving.node.ring.deadline import deadline_ms, deadlines_ms, life_ms

IDS = [b"1700000000000-3", b"1700000000001-0", b"1700000000007-12"]


@pytest.mark.parametrize(
    ("field", "expected"), [(b"1000", 1000), (b"+500", 1700000000500), (b"+0", 1700000000000), (b"0", 0)]
)
def test_a_time_or_a_life(field: bytes, expected: int) -> None:
    assert deadline_ms(IDS[0], field) == expected


@pytest.mark.parametrize("field", [b"", b"+", b"soon", b"-5", b"++5", b"5+", b"1.5", b"1" * 18, b"+" + b"1" * 18])
def test_neither(field: bytes) -> None:
    with pytest.raises(CodecError, match=r"not a whole number of milliseconds: Unix time, or \+ and a time to live$"):
        deadline_ms(IDS[0], field)
    with pytest.raises(CodecError):
        deadlines_ms(IDS, [field] * 3)


@pytest.mark.parametrize("made_ms", [10**17 - 1, 10**17, (1 << 64) - 1])
def test_a_record_keeps_its_life_whatever_its_id(made_ms: int) -> None:
    far = b"%d-18446744073709551615" % made_ms

    for life in (500, 10**17 - 1):
        found = deadline_ms(far, b"+%d" % life)

        assert life_ms(far, found) == life
        assert 10**17 <= found < 1 << 63, "a number of the row table"
        assert deadlines_ms([IDS[0], far], [b"+%d" % life] * 2)[1] == found


@pytest.mark.parametrize(
    "fields", [[b"+500"] * 3, [b"1700000000900"] * 3, [b"+500", b"1700000000900", b"+2"], [b"+1", b"+2", b"+1"]]
)
def test_several(fields: list[bytes]) -> None:
    assert deadlines_ms(IDS, fields) == [deadline_ms(*each) for each in zip(IDS, fields, strict=True)]


def test_a_record_lives_from_its_entry_to_its_deadline() -> None:
    assert life_ms(b"1700000000000-3", 1700000000500) == 500
