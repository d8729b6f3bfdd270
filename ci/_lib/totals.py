"""The results of all tiers, and the closing lines with them."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SLOWEST = 10
PLACE = re.compile(
    r"^\S+:\d+: "
)  # the place of a block in a document, which differs between skips with the same reason


@dataclass
class Totals:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)  # test or tier, and the reason
    durations: list[tuple[float, str]] = field(default_factory=list)  # of tests, in seconds
    tiers: dict[str, tuple[float, float]] = field(default_factory=dict)  # seconds and CPU seconds of each tier
    started: float = field(default_factory=time.monotonic)

    def check(self, passed: bool, what: str) -> None:
        """Count one check that is not a test of a test runner."""
        if passed:
            self.passed += 1
        else:
            self.failed.append(what)

    def skip(self, what: str, reason: str) -> None:
        self.skipped.append((what, PLACE.sub("", reason)))

    def add_junit(self, tier: str, report: Path) -> int:
        """Count the test cases of a pytest report; returns how many there were."""
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
        for case in cases:
            name = f"{tier}: {case.get('classname', '')}::{case.get('name', '')}"
            skip = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed.append(name)
            elif skip is not None:
                self.skip(name, skip.get("message", "no reason given"))
            else:
                self.passed += 1
            self.durations.append((float(case.get("time") or 0), name))
        return len(cases)

    def add(self, other: Totals) -> None:
        """Count what a tier that ran in another process found."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.durations += other.durations
        self.tiers |= other.tiers

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Totals:
        """Read what `asdict` made and JSON kept."""
        lists = {key: [tuple(each) for each in data[key]] for key in ("skipped", "durations")}
        return cls(**{**data, **lists, "tiers": {name: tuple(took) for name, took in data["tiers"].items()}})

    def closing(self) -> str:
        """The times, the skips by reason, each failure, and last the totals in the form of pytest's closing line."""
        seconds = time.monotonic() - self.started
        counts = [f"{len(self.failed)} failed"] if self.failed else []
        counts += [f"{self.passed} passed"]
        counts += [f"{len(self.skipped)} skipped"] if self.skipped else []
        total = f" {', '.join(counts)} in {seconds:.2f}s ".center(100, "=")
        failures = [f"FAILED {failure}" for failure in self.failed]
        return "\n".join([*self.slowest(), *self.skips(), *failures, total])

    def slowest(self) -> list[str]:
        """The tiers and the slowest tests, longest first."""
        tiers = sorted(self.tiers.items(), key=lambda tier: -tier[1][0])
        lines = [f"{seconds:7.0f} s  {cpu:5.0f} s of CPU time  {name}" for name, (seconds, cpu) in tiers]
        tests = [f"{took:7.1f} s  {name}" for took, name in sorted(self.durations, reverse=True)[:SLOWEST]]
        return [*(["tiers:", *lines] if len(tiers) > 1 else []), *(["slowest tests:", *tests] if tests else [])]

    def skips(self) -> list[str]:
        """Each reason with the number of skips and the tiers they are in."""
        groups: dict[str, list[str]] = defaultdict(list)
        for what, reason in self.skipped:
            groups[reason].append(what.partition(": ")[0])
        found = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
        return [f"SKIPPED [{len(tiers)}] {', '.join(dict.fromkeys(tiers))}: {reason}" for reason, tiers in found]
