"""The closing lines name what failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from _lib import runners
from _lib.totals import Totals

# What doctest prints, and what the subset of it in tests/cpp/fallback prints.
SAYS = (
    "./tests/test_dag.cpp:150:\nTEST CASE:  the first error wins\n\n./tests/test_dag.cpp:167: ERROR: CHECK( a )",
    "tests/cpp/test_dag.cpp:150: TEST CASE: the first error wins\ntests/cpp/test_dag.cpp:167: ERROR: CHECK( a )",
)


@pytest.mark.parametrize("says", SAYS)
def test_a_failed_cpp_test_case_is_named(says: str, tmp_path: Path) -> None:
    program = tmp_path / "tests"
    line = "[doctest] test cases:     2 |     1 passed | 1 failed | 0 skipped"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\n{line}\nEND\nexit 1\n")
    program.chmod(0o755)
    totals = Totals()
    runners.doctest(program, "tsan", totals)
    assert totals.failed == ["tsan: the first error wins"]
    assert totals.passed == 1
