"""Figures for people: three digits, and never an exponent for what is not small."""

from __future__ import annotations

import math


def figure(value: float | None) -> str:
    """Return a figure with three digits, as a whole number from 1000 on, and in millions from a million on."""
    if value is None or math.isnan(value):
        return "-"
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
