"""A sample of ONNX's own backend test suite; the whole: python -m bench.onnx_suite."""

import pytest
from bench.onnx_cases import KINDS, cases
from bench.onnx_suite import check, in_process

_ONE_IN = 20
# A model without inputs: there is nothing to send to it.
_NOT_SERVED = {"test_constant"}


@pytest.mark.timeout(1200)  # the suite computes its cases
def test_what_onnx_runtime_passes_is_served_with_the_same_outputs() -> None:
    sample = list(cases())[::_ONE_IN]

    reasons = {case.name: check(case, in_process) for case in sample if case.name not in _NOT_SERVED}

    assert {name: reason for name, reason in reasons.items() if reason} == {}
    assert list(reasons.values()).count("") > len(sample) / 2
    assert {case.kind for case in sample} == set(KINDS)
