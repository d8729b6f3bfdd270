"""The report of ci/gpu: what each step gave, as tests/gpu/results.md, and as JSON, from which runs are merged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict


class Step(TypedDict):
    """What a program of ci/gpu gave: the tests of a plugin, or a benchmark."""

    good: bool
    tests: list[str]  # lines
    results: list[dict[str, Any]]
    incomplete: list[str]  # why a benchmark did not end


class Report:
    """The machine and the steps by name; rewritten after each step, so that a crash of the next step loses nothing."""

    def __init__(self, path: Path, order: Iterable[str] = ()) -> None:
        self.path = path
        self.order = list(order)
        self.machine: dict[str, Any] = {}
        self.steps: dict[str, Step] = {}

    @property
    def good(self) -> bool:
        return all(step["good"] for step in self.steps.values())

    def add(
        self,
        name: str,
        *,
        good: bool,
        tests: Iterable[str] = (),
        results: Iterable[dict[str, Any]] = (),
        incomplete: Iterable[str] = (),
    ) -> None:
        """Record a step, in the place of an earlier run of it, and write the report."""
        self.steps[name] = {
            "good": good,
            "tests": list(tests),
            "results": list(results),
            "incomplete": list(incomplete),
        }
        self.write()

    def merge(self, file: Path) -> None:
        """Add the JSON of another run; its steps replace earlier ones, and a machine that differs is named too."""
        other = json.loads(file.read_text("utf-8"))
        for name, value in other["machine"].items():
            values = [*self.machine.get(name, "").split("; in another run: "), str(value)]
            self.machine[name] = "; in another run: ".join(dict.fromkeys(filter(None, values)))
        self.steps |= other["steps"]
        self.write()

    def write(self) -> None:
        names = sorted(self.steps, key=lambda name: self.order.index(name) if name in self.order else len(self.order))
        self.steps = {name: self.steps[name] for name in names}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("\n".join(self._lines()) + "\n", "utf-8")
        state = {"machine": self.machine, "steps": self.steps}
        self.path.with_suffix(".json").write_text(json.dumps(state, indent=1) + "\n", "utf-8")

    def _lines(self) -> list[str]:
        steps = self.steps.values()
        results = [result for step in steps for result in step["results"]]
        incomplete = [reason for step in steps for reason in step["incomplete"]]
        missing = [name for name in self.order if name not in self.steps]
        lines = ["# GPU test and benchmark results", "", "Written by `ci/gpu`; do not edit.", "", "## Machine", ""]
        lines += [f"* {name}: {value}" for name, value in self.machine.items()]
        lines += ["", "## Tests", "", *(line for step in steps for line in step["tests"]), "", "## Benchmarks", ""]
        lines += ["Ratios are medians over rounds in which both sides run alternately.", ""]
        lines += ["| metric | value | bound | |", "|---|---|---|---|"]
        for each in results:
            lines.append(
                f"| {each['metric']} | {each['value']} | {each['bound']} | {'met' if each['holds'] else 'MISSED'} |"
            )
        lines += ["", *(f"* {each['metric']}: {shown(each['details'])}" for each in results)]
        if incomplete:
            lines += ["", "## Incomplete benchmarks", "", *(f"* {each}" for each in incomplete)]
        if missing:
            lines += ["", "## Not run", "", *(f"* {each}" for each in missing)]
        return lines


def shown(details: dict[str, Any]) -> str:
    parts = []
    for name, value in details.items():
        text = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else str(value)
        parts.append(f"{name.replace('_', ' ')}: {text}")
    return "; ".join(parts)


def grouped(skipped: Iterable[tuple[str, str]]) -> list[str]:
    """Return one line for each reason for which tests, by name, were skipped."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in skipped:
        by_reason.setdefault(reason, []).append(name)
    return [
        f"  * skipped: {names[0] if len(names) == 1 else f'{len(names)} tests'}: {reason}"
        for reason, names in by_reason.items()
    ]
