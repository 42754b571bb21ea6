from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.client import keys
from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.node.chaos.records import NO_URI, Encoder, Mix, Pools, RecordKind, SentRecord, flaws_for
from cluster_serving.node.chaos.samples import Sample, made_up, read
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.reader.decoding import RecordDecoder
from support.broken_arrays import HUGE, UNCLOSED, npz

NUMBERS = (TensorSpec("x", "float32", (None, 4)), TensorSpec("mask", "bool", (None, 2)))
TEXT = (TensorSpec("words", "str", (None, 2)),)
SCALAR = (TensorSpec("n", "int64", (None,)),)
PREFIX = b"cluster-serving.reply_job:"
MAGIC = {RecordKind.RAISING: [1], RecordKind.CRASHING: [2], RecordKind.HANGING: [3], RecordKind.SLOW: [4]}


def samples_of(inputs: tuple[TensorSpec, ...], count: int = 12) -> list[Sample]:
    return made_up(inputs, np.random.default_rng(1), count)


def encoder_of(inputs: tuple[TensorSpec, ...]) -> Encoder:
    return Encoder(samples_of(inputs), PREFIX.decode() + "chaos")


def sent(seed: int, seconds: float, pools: Pools) -> list[SentRecord]:
    """The records of a load of 100 a second."""
    mix = Mix(seed, seconds, pools)
    return [mix.next(at / 100, 1_000_000 + at) for at in range(int(seconds * 100))]


def test_the_same_seed_gives_the_same_records() -> None:
    pools = Pools([0, 5, 6], MAGIC, ["native", "original"], [NO_URI])

    assert sent(1, 5, pools) == sent(1, 5, pools)
    assert sent(1, 5, pools) != sent(2, 5, pools)


def test_every_kind_is_sent_and_each_uri_once() -> None:
    records = sent(1, 30, Pools([0, 5, 6], MAGIC, ["native", "original"], [NO_URI]))
    kinds = Counter(record.kind for record in records)

    assert set(kinds) == set(RecordKind)
    assert kinds[RecordKind.GOOD] > 0.8 * len(records)
    assert len({record.uri for record in records}) == len(records)


def test_each_kind_uses_its_own_samples_and_an_expired_one_that_which_raises() -> None:
    records = sent(1, 30, Pools([0, 5, 6], MAGIC, ["native"], [NO_URI]))

    assert {record.sample for record in records if record.kind is RecordKind.GOOD} == {0, 5, 6}
    assert {record.sample for record in records if record.kind is RecordKind.CRASHING} == {2}
    assert {record.sample for record in records if record.kind is RecordKind.EXPIRED} == {1}


def test_an_expired_record_was_late_before_it_was_sent() -> None:
    mix = Mix(1, 30, Pools([0], MAGIC, ["native"], []))
    deadlines = [
        record.deadline_ms for at in range(3000) if (record := mix.next(at / 100, 5_000_000)).kind is RecordKind.EXPIRED
    ]

    assert deadlines
    assert all(deadline is not None and deadline < 5_000_000 for deadline in deadlines)


def test_two_records_that_cost_much_never_come_at_once() -> None:
    mix = Mix(1, 60, Pools([0], MAGIC, ["native"], []))
    costly = {RecordKind.CRASHING, RecordKind.HANGING, RecordKind.SLOW}
    burst = [mix.next(60, 0).kind for _ in range(100)]

    assert sum(kind in costly for kind in burst) == 1


def test_without_poison_there_is_none() -> None:
    kinds = {record.kind for record in sent(1, 30, Pools([0], {}, ["native"], []))}

    assert kinds == {RecordKind.GOOD, RecordKind.EXPIRED, RecordKind.IMPATIENT}


@pytest.mark.parametrize("inputs", [NUMBERS, TEXT, SCALAR])
def test_a_good_record_is_taken_in_both_dialects(inputs: tuple[TensorSpec, ...]) -> None:
    encoder, decoder = encoder_of(inputs), RecordDecoder(inputs, PREFIX)

    for record in (
        SentRecord("a", RecordKind.GOOD, 0),
        SentRecord("b", RecordKind.GOOD, 1, "original"),
        SentRecord("c", RecordKind.GOOD, 2, replies=True),
    ):
        assert decoder.decode(b"1-0", encoder.fields(record), 0).error is None


@pytest.mark.parametrize("own_processing", [False, True])
@pytest.mark.parametrize("inputs", [NUMBERS, TEXT, SCALAR])
def test_every_flaw_is_refused(inputs: tuple[TensorSpec, ...], own_processing: bool) -> None:
    encoder, decoder = encoder_of(inputs), RecordDecoder(inputs, PREFIX)
    flaws = flaws_for(inputs, own_processing=own_processing)

    errors = {
        flaw: decoder.decode(b"1-0", encoder.fields(SentRecord("a", RecordKind.MALFORMED, 0, flaw=flaw)), 0).error
        for flaw in flaws
    }

    assert len(flaws) >= 4
    assert {flaw: error and error[0] for flaw, error in errors.items()} == dict.fromkeys(flaws, ErrorCode.INVALID_INPUT)


def test_a_deadline_is_a_time_or_a_life() -> None:
    encoder = encoder_of(NUMBERS)

    expired = encoder.fields(SentRecord("a", RecordKind.EXPIRED, 0, deadline_ms=17))
    impatient = encoder.fields(SentRecord("a", RecordKind.IMPATIENT, 0, life_ms=17))

    assert expired[-2:] == [keys.DEADLINE, b"17"]
    assert impatient[-2:] == [keys.DEADLINE, b"+17"]


def test_samples_differ_and_have_the_shapes_and_types_of_the_inputs() -> None:
    samples = samples_of(NUMBERS, 20)

    assert len(samples) == 20 * 5  # bools are not sure to be taken as they come
    assert {(sample["x"].shape, sample["x"].dtype.name) for sample in samples} == {((4,), "float32")}
    assert len({sample["x"].tobytes() for sample in samples}) == len(samples)


def test_a_single_bool_has_room_for_two_samples() -> None:
    assert len(samples_of((TensorSpec("flag", "bool", (None,)),))) == 2


def test_a_free_dimension_is_tried_in_several_sizes() -> None:
    assert len({sample["x"].shape for sample in samples_of((TensorSpec("x", "float32", (None, None, 3)),))}) > 2


@pytest.mark.parametrize("inputs", [(), (TensorSpec("x", "float32", None),)])
def test_a_model_that_does_not_tell_what_it_takes_needs_a_file(inputs: tuple[TensorSpec, ...]) -> None:
    with pytest.raises(Fault, match="--samples"):
        samples_of(inputs)


def test_samples_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    np.savez(path, x=np.arange(6).reshape(3, 2), words=np.array(["a", "b", "c"]))

    samples = read(path, (), 2)

    assert [sample["x"].tolist() for sample in samples] == [[0, 1], [2, 3]]
    assert [sample["words"] for sample in samples] == ["a", "b"]


def test_a_file_of_arrays_of_different_lengths_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    np.savez(path, x=np.zeros(3), y=np.zeros(2))

    with pytest.raises(Fault, match="x 3, y 2"):
        read(path, (), 2)


@pytest.mark.parametrize("content", [b"x", npz("x", HUGE), npz("x", UNCLOSED)])
def test_a_file_that_is_none_of_arrays_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "samples.npz"
    path.write_bytes(content)

    with pytest.raises(Fault, match=r"no \.npz file"):
        read(path, (), 2)
