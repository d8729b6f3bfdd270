"""The types of values of arguments that several commands take."""

from __future__ import annotations

import argparse

from hami.cli import positive


def positives(text: str) -> list[int]:
    """Return numbers from 1 on that are separated by commas."""
    return [positive(part.strip()) for part in text.split(",")]


def rate(text: str) -> float:
    """Return a number of requests per second, more than 0."""
    value = number(text)
    if value is None or not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected requests per second, more than 0, got {text!r}")
    return value


def rates(text: str) -> list[float]:
    """Return rates that are separated by commas."""
    return [rate(part.strip()) for part in text.split(",")]


def percentage(text: str) -> float:
    """Return a share such as `5%` or `0.05`."""
    value = number(text[:-1] if text.endswith("%") else text)
    if value is None or not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a percentage such as 5%, got {text!r}")
    return value / 100 if text.endswith("%") else value


def number(text: str) -> float | None:
    """Return the number that a text is; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None
