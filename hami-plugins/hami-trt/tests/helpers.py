"""Helpers of several test files."""

from __future__ import annotations

from typing import Any


def message(raised: Any) -> str:
    """Return the first line of the message of a raised exception, without notes and location."""
    return str(raised.value).splitlines()[0]
