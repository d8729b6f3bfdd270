"""The results of all checks as a table, as JSON and as JUnit XML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from xml.etree import ElementTree


@dataclass(frozen=True)
class Result:
    """How a check ended: passed, failed or skipped, and why."""

    group: str
    claim: str
    outcome: str
    message: str
    seconds: float


def as_table(results: Sequence[Result], server: str) -> str:
    """Return a line for each check, its reason if it did not pass, and the totals."""
    width = max(len(result.group) for result in results)
    lines = [server]
    for result in results:
        lines.append(f"{result.outcome:7}  {result.group:{width}}  {result.claim}")
        if result.message:
            lines.append(f"{'':{9 + width}}  {result.message}")
    return "\n".join([*lines, "", totals(results)])


def totals(results: Sequence[Result]) -> str:
    counts = Counter(result.outcome for result in results)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))


def as_json(results: Sequence[Result], server: str) -> str:
    counts = Counter(result.outcome for result in results)
    return json.dumps({"server": server, "totals": counts, "checks": [asdict(each) for each in results]}, indent=1)


def as_junit(results: Sequence[Result], server: str) -> str:
    counts = Counter(result.outcome for result in results)
    suite = ElementTree.Element(
        "testsuite",
        name=f"Open Inference Protocol: {server}",
        tests=str(len(results)),
        failures=str(counts["failed"]),
        skipped=str(counts["skipped"]),
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    for result in results:
        case = ElementTree.SubElement(
            suite, "testcase", classname=result.group, name=result.claim, time=f"{result.seconds:.3f}"
        )
        if result.outcome != "passed":
            kind = "failure" if result.outcome == "failed" else "skipped"
            ElementTree.SubElement(case, kind, message=result.message)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
