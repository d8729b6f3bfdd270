"""The types of values of arguments that several commands take."""

from __future__ import annotations

import argparse

from hami.cli import positive

MAX_PERCENT = 1e6
MAX_RATE = 1e6  # the moments of a load are kept in memory


def positives(text: str) -> list[int]:
    """Return numbers from 1 on that are separated by commas."""
    return [positive(part.strip()) for part in text.split(",")]


def rate(text: str) -> float:
    """Return a number of requests per second, more than 0 and at most MAX_RATE."""
    value = number(text)
    if value is None or not 0 < value <= MAX_RATE:
        message = f"expected requests per second, more than 0 and at most {MAX_RATE:g}, got {text[:40]!r}"
        raise argparse.ArgumentTypeError(message)
    return value


def rates(text: str) -> list[float]:
    """Return rates that are separated by commas."""
    return [rate(part.strip()) for part in text.split(",")]


def percentage(text: str) -> float:
    """Return a share such as `5%` or `0.05`."""
    value = number(text[:-1] if text.endswith("%") else text)
    if value is None or not 0 <= value <= MAX_PERCENT:
        raise argparse.ArgumentTypeError(f"expected a percentage such as 5%, got {text[:40]!r}")
    return value / 100 if text.endswith("%") else value


def number(text: str) -> float | None:
    """Return the number that a text is; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None
