"""The wheels in the museum, built when their plugin ABI was current, install and run with this core."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import HERE, kept_wheels
from hami_build import cores, matrix

PAGE = HERE.parents[1] / "hami-core" / "docs" / "reference" / "tested-versions.md"


def test_every_golden_version_is_in_the_museum() -> None:
    versions = {folder.name[1:].replace("_", ".") for folder in (HERE / "golden").glob("v*")}
    if not kept_wheels():
        pytest.skip("the museum has no wheel for this architecture")
    assert {str(cores.version_of(wheel)) for wheel in kept_wheels()} == versions


@pytest.mark.parametrize("wheel", kept_wheels(), ids=lambda wheel: wheel.name.split("-")[1])
def test_a_kept_wheel_runs_with_this_core_as_the_page_says(wheel: Path) -> None:
    (row,) = matrix.measure([wheel])
    assert matrix.failures([row]) == []
    (said,) = row.results.values()
    assert said == "ok: 13 backends, 1 checked"
    assert re.search(rf"^\| `hami-golden` \| {row.version} \| {re.escape(row.abi)} \|", PAGE.read_text(), re.MULTILINE)
