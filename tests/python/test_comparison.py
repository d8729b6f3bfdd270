"""The comparison of plugin distribution has thirty rows, and every cell of it a source."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "hami-core" / "docs" / "reference" / "plugin-distribution.md"
WITHOUT_SOURCE = {"not found", "not yet", "—"}  # the page explains them


def cells() -> list[list[str]]:
    """Return the cells of every row, without the first one, which names the feature."""
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ")[1:] for line in lines if not line.startswith("| feature")]


def test_each_feature_is_compared_with_five_systems() -> None:
    rows = cells()
    assert len(rows) >= 30
    assert {len(row) for row in rows} == {6}


def test_every_cell_links_to_its_source() -> None:
    definitions = set(re.findall(r"^\[([\w-]+)\]: \S+$", PAGE.read_text("utf-8"), re.MULTILINE))
    used = set()
    for cell in (cell for row in cells() for cell in row if cell not in WITHOUT_SOURCE):
        names = re.findall(r"\[[^\]]+\]\[([\w-]+)\]", cell)
        assert names, cell
        used.update(names)
    assert used == definitions
