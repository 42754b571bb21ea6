"""Silence of a frontend's processes, on a clock of the test."""

from cluster_serving.frontend.server.hangs import HangDetector


def test_silence_counts_from_the_last_sign_of_life() -> None:
    now_s = 100.0
    detector = HangDetector(lambda: now_s)

    found = []
    for _ in range(4):
        now_s += 2
        detector.look()
        found.append(detector.silent_s(103.0))

    assert found == [-1.0, 1.0, 3.0, 5.0]
    assert detector.silent_s(0.0) == 8.0  # no longer than the detector looks


def test_a_pause_of_the_server_is_no_silence_of_its_processes() -> None:
    now_s = 100.0
    detector = HangDetector(lambda: now_s)
    now_s = 700.0
    detector.look()

    assert detector.silent_s(101.0) == 0.0
    now_s = 702.0
    detector.look()
    assert detector.silent_s(101.0) == 2.0
