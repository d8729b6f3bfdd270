"""The operator cases of the package onnx give the expected outputs, or are refused, or differ in a listed way."""

from __future__ import annotations

import json
import os

import pytest
from conformance import EXPECTED, VERSIONS, all_outcomes, counts_of

# Under AddressSanitizer all cases would take many minutes.
STEP = 16 if "asan" in os.environ.get("LD_PRELOAD", "") else 1


@pytest.mark.parametrize("kind", ["alone", "joined"])
def test_every_operator_case_is_equal_or_its_difference_is_known(kind):
    """No case differs in silence, alone or in a batch with other numbers."""
    outcomes = all_outcomes(kind == "joined", STEP)
    assert {name: each for name, each in outcomes.items() if each.status in ("differs", "not run")} == {}
    expected = json.loads(EXPECTED.read_text())
    if expected["versions"] != VERSIONS:
        return  # other versions have other cases, and OpenVINO other differences
    others = {name: each.status for name, each in outcomes.items() if each.status not in ("equal", "no rows")}
    assert others == {name: status for name, (status, _) in expected[kind]["others"].items() if name in outcomes}
    if STEP == 1:
        assert counts_of(outcomes) == expected[kind]["counts"]
