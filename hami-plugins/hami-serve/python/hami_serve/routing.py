"""Which version of a component a request without a version gets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass
class Routing:
    """Which version of a component a request without a version gets."""

    default: str | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    aliases: frozenset[str] = frozenset()
    credits: dict[str, float] = field(default_factory=dict)

    def weighted(self, ready: Iterable[str]) -> str | None:
        """Return the next version in a smooth weighted round-robin over the versions that are ready."""
        shares = {version: self.weights[version] for version in ready if self.weights.get(version, 0) > 0}
        if not shares:
            return None
        for version, weight in shares.items():
            self.credits[version] = self.credits.get(version, 0.0) + weight
        chosen = max(shares, key=lambda version: self.credits[version])
        self.credits[chosen] -= sum(shares.values())
        return chosen


def natural(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts versions as people do: 9 before 10."""
    parts = re.findall(r"\d+|\D+", version)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)
