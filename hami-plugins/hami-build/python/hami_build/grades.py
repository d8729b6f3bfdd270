"""Grades a wheel: bronze, silver or gold, with the reason for every check."""

from __future__ import annotations

import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hami_build import checks, integrity
from hami_build.errors import Failure, reason
from hami_build.unpacked import Skipped, Wheel, Wrong

GRADES = ("none", *checks.CHECKS)
COLOURS = {"none": "#9f9f9f", "bronze": "#a97142", "silver": "#8a9597", "gold": "#c9a227"}
MARKS = {"passed": "ok", "failed": "FAILED", "skipped": "skipped", "exempt": "exempt"}


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    grade: str  # the grade that needs it
    check: str
    state: str  # "passed", "failed", "skipped" or "exempt"
    detail: str


@dataclass(frozen=True)
class Report:
    """The findings about one wheel."""

    wheel: str
    grade: str
    seconds: float
    findings: Sequence[Finding]

    def text(self) -> str:
        """Return the report for a terminal."""
        width = max(len(each.check) for each in self.findings)
        lines = [
            f"  {MARKS[each.state]:7} {each.grade:6} {each.check:{width}}  {each.detail}" for each in self.findings
        ]
        return "\n".join([f"{self.wheel}: {self.grade}", *lines])

    def as_json(self) -> dict[str, Any]:
        """Return the report as values for JSON."""
        return {**asdict(self), "findings": [asdict(each) for each in self.findings]}


def grade(wheel: Path, cores: Sequence[str] = (), source: Path | None = None) -> Report:
    """Check a wheel. Its code runs in child processes of this environment, which must contain what it requires.

    Args:
        wheel: The wheel of a plugin.
        cores: Other versions of hami-core to run it with: wheels, folders of wheels, addresses of package indexes.
        source: The folder of the project that it was built from, to run it under sanitizers.

    Raises:
        Failure: The file does not exist, or its quality.toml is not valid.
    """
    if not wheel.is_file():
        raise Failure(f"{wheel} is not a file; give the path of a wheel")
    start = time.monotonic()
    _, complete, detail = integrity.check(wheel) if wheel.suffix == ".whl" else ("", False, "not a wheel")
    if not complete:
        found = [Finding("bronze", "archive", "failed", f"{detail}; build or download the wheel again")]
    else:
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
            found = [
                Finding("bronze", "archive", "passed", detail),
                *findings(Wheel(wheel, Path(folder), cores, source)),
            ]
    return Report(wheel.name, grade_of(found), round(time.monotonic() - start, 3), found)


def findings(wheel: Wheel) -> list[Finding]:
    """Return the finding of every check."""
    exempt = wheel.quality.exempt
    known = {name for group in checks.CHECKS.values() for name, _ in group}
    if unknown := sorted(set(exempt) - known):
        raise Failure(f'{wheel.path.name}: exempt has no check "{unknown[0]}"; the checks: {", ".join(sorted(known))}')
    return [finding(wheel, level, name, check) for level, group in checks.CHECKS.items() for name, check in group]


def finding(wheel: Wheel, level: str, name: str, check: checks.Check) -> Finding:
    """Run one check."""
    try:
        return Finding(level, name, "passed", check(wheel))
    except Skipped as why:
        return Finding(level, name, "skipped", str(why))
    except Exception as error:
        wrong = str(error) if isinstance(error, (Wrong, Failure)) else reason(error)
        if name in wheel.quality.exempt:
            return Finding(level, name, "exempt", f"{wheel.quality.exempt[name]} ({wrong})")
        return Finding(level, name, "failed", wrong)


def grade_of(found: Sequence[Finding]) -> str:
    """Return the highest grade of which, and below which, no check failed."""
    failed = {finding.grade for finding in found if finding.state == "failed"}
    reached = "none"
    for level in checks.CHECKS:
        if level in failed:
            break
        reached = level
    return reached


def badge(reached: str) -> str:
    """Return a badge for a README, as SVG."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="130" height="20" role="img" '
        f'aria-label="hami plugin: {reached}"><title>hami plugin: {reached}</title>'
        '<rect width="78" height="20" rx="3" fill="#444"/>'
        f'<rect x="75" width="55" height="20" rx="3" fill="{COLOURS[reached]}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="38" y="14">hami plugin</text><text x="102" y="14">{reached}</text></g></svg>\n'
    )
