"""Finds links of a Markdown document that lead nowhere in this repository."""

from __future__ import annotations

import re
from pathlib import Path

_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def broken_links(document: Path) -> list[str]:
    """Return every relative target that is no file."""
    targets = [found[1] for found in _LINK.finditer(document.read_text("utf-8"))]
    return [target for target in targets if "://" not in target and not (document.parent / target).is_file()]
