"""The error of this package."""

from __future__ import annotations


class Failure(Exception):
    """An error that is shown to the user without a traceback."""
