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


def test_an_entry_whose_id_is_no_time() -> None:
    for late in (b"%d-0" % (1 << 63), b"%d-0" % (10**17 - 500)):
        with pytest.raises(CodecError, match="which is out of range"):
            deadline_ms(late, b"+500")
        with pytest.raises(CodecError, match="which is out of range"):
            deadlines_ms([IDS[0], late], [b"+500"] * 2)


@pytest.mark.parametrize(
    "fields", [[b"+500"] * 3, [b"1700000000900"] * 3, [b"+500", b"1700000000900", b"+2"], [b"+1", b"+2", b"+1"]]
)
def test_several(fields: list[bytes]) -> None:
    assert deadlines_ms(IDS, fields) == [deadline_ms(*each) for each in zip(IDS, fields, strict=True)]


def test_a_record_lives_from_its_entry_to_its_deadline() -> None:
    assert life_ms(b"1700000000000-3", 1700000000500) == 500
