"""The operator cases of the package onnx give the expected outputs, or are refused, or differ in a listed way."""

from __future__ import annotations

import functools
import json
import os

import pytest
from conformance import EXPECTED, VERSIONS, Outcome, counts_of, others_of, outcomes_of_part, status_of_each

# Under AddressSanitizer all cases would take many minutes, and some run.
PARTS, CHOSEN = (64, 1) if "asan" in os.environ.get("LD_PRELOAD", "") else (16, 16)


@functools.cache
def outcomes_of(kind: str, part: int) -> dict[str, Outcome]:
    return outcomes_of_part(kind == "joined", part, PARTS)


@functools.cache
def expected(kind: str) -> dict | None:
    """Return what each case is known to become; None with other versions, which have other cases and differences."""
    read = json.loads(EXPECTED.read_text())
    return read[kind] if read["versions"] == VERSIONS else None


def without_listed(statuses: dict[str, str]) -> dict[str, str]:
    """Leave out the cases with a listed difference: whether it shows depends on the instructions of the processor."""
    return {name: status for name, status in statuses.items() if status != "listed"}


@pytest.mark.parametrize("part", range(CHOSEN))
@pytest.mark.parametrize("kind", ["alone", "joined"])
def test_every_operator_case_is_equal_or_its_difference_is_known(kind, part):
    """No case differs in silence, alone or in a batch with other numbers."""
    outcomes = outcomes_of(kind, part)
    assert {name: each for name, each in outcomes.items() if each.status in ("differs", "not run")} == {}
    if known := expected(kind):
        others = {name: each.status for name, each in others_of(outcomes).items()}
        statuses = {name: each for name, each in status_of_each(known["others"]).items() if name in outcomes}
        assert without_listed(others) == without_listed(statuses)


@pytest.mark.skipif(CHOSEN < PARTS, reason="under AddressSanitizer some cases run")
@pytest.mark.parametrize("kind", ["alone", "joined"])
def test_as_many_operator_cases_are_equal_as_expected(kind):
    outcomes = {name: each for part in range(PARTS) for name, each in outcomes_of(kind, part).items()}
    if known := expected(kind):
        found, counts = counts_of(outcomes), dict(known["counts"])
        assert found.pop("equal") + found.pop("listed") == counts.pop("equal") + counts.pop("listed")
        assert found == counts
