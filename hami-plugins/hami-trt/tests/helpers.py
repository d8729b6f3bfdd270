"""What several test files need: a message's first line."""

from __future__ import annotations

from typing import Any


def message(raised: Any) -> str:
    """Return what the raised exception says, without the notes and the place."""
    return str(raised.value).splitlines()[0]
