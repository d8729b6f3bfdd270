"""What all tiers together found, and the closing lines that say so."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Totals:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def check(self, passed: bool, what: str) -> None:
        """Count one check that is no test of a test runner."""
        if passed:
            self.passed += 1
        else:
            self.failed.append(what)

    def skip(self, what: str, reason: str) -> None:
        self.skipped.append(f"{what}: {reason}")

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
        return len(cases)

    def closing(self) -> str:
        """Each skip with its reason, each failure, and last the totals in the form of pytest's closing line."""
        seconds = time.monotonic() - self.started
        counts = [f"{len(self.failed)} failed"] if self.failed else []
        counts += [f"{self.passed} passed"]
        counts += [f"{len(self.skipped)} skipped"] if self.skipped else []
        total = f" {', '.join(counts)} in {seconds:.2f}s ".center(100, "=")
        return "\n".join([*(f"SKIPPED {s}" for s in self.skipped), *(f"FAILED {f}" for f in self.failed), total])
