"""Bells between processes, heard in one."""

import os
import select
from collections.abc import Iterator

import pytest

from cluster_serving.node.ring.bell import Bell, Ear


@pytest.fixture
def bell() -> Iterator[Bell]:
    bell = Bell()
    yield bell
    bell.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def rung(bell: Bell) -> bool:
    return bool(select.select([bell], [], [], 0)[0])


def test_a_bell_is_silent_until_it_is_rung(bell: Bell) -> None:
    assert not rung(bell)

    bell.ring()

    assert rung(bell)


def test_many_rings_are_heard_as_one(bell: Bell) -> None:
    for _ in range(5):
        bell.ring()

    bell.hear()

    assert not rung(bell)


def test_another_process_rings_the_same_bell(bell: Bell) -> None:
    other = Bell(os.dup(bell.fileno()))

    other.ring()

    assert rung(bell)
    other.close()


def test_an_ear_mutes_the_bell_that_it_hears(bell: Bell) -> None:
    ear = Ear(bell)
    bell.ring()

    assert ear.wait() is False
    assert not rung(bell)
    assert ear.wait(0) is False


def test_an_ear_hears_something_else_too(bell: Bell, pipe: tuple[int, int]) -> None:
    ear = Ear(bell)
    ear.watch(pipe[0])
    assert ear.wait(0) is False

    os.write(pipe[1], b"x")
    assert ear.wait() is True
    bell.ring()
    assert ear.wait() is True, "both at once"

    assert not rung(bell)


def test_an_ear_watches_one_descriptor_at_a_time(bell: Bell, pipe: tuple[int, int]) -> None:
    ear = Ear(bell)
    second = Bell()
    os.write(pipe[1], b"x")
    ear.watch(pipe[0])
    ear.watch(pipe[0])

    ear.watch(second.fileno())
    assert ear.wait(0) is False
    second.ring()
    assert ear.wait() is True
    ear.watch(None)
    assert ear.wait(0) is False

    second.close()
