"""Splits the name of a packaged pipeline, `name` or `distribution::name`."""

from __future__ import annotations

import re

_NAME = re.compile(r"(?:([A-Za-z0-9][A-Za-z0-9._-]*)::)?([A-Za-z0-9_.-]+)")


def split(text: str) -> tuple[str, str] | None:
    """Return the distribution, which may be empty, and the name; None if the text is not such a name."""
    found = _NAME.fullmatch(text)
    return (found.group(1) or "", found.group(2)) if found else None
