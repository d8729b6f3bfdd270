"""Writes tests/wheels/results.md: the files in dist/, their sizes, and the findings of the audit."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

from hami_build.audit import Finding

from .paths import ROOT

RESULTS = ROOT / "tests" / "wheels" / "results.md"


def write(files: Sequence[Path], found: Sequence[Finding]) -> None:
    """Write the page."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(render(files, found), "utf-8")


def render(files: Sequence[Path], found: Sequence[Finding]) -> str:
    """Return two tables: the files, and the findings of each check, with equal findings in one row."""
    lines = [
        "# Files of a release",
        "",
        "Written by `ci/audit --write` after `ci/wheels --platform all --sdist`. Sizes are in kB (1000 bytes).",
        "",
        "| file | kB | kB installed | checks |",
        "|---|---:|---:|---|",
    ]
    for file in files:
        own = [finding for finding in found if finding.file == file.name]
        failed = [finding.check for finding in own if not finding.passed]
        said = f"FAILED: {', '.join(failed)}" if failed else f"{len(own)} passed"
        lines.append(f"| `{file.name}` | {file.stat().st_size / 1000:.0f} | {installed(file)} | {said} |")
    lines += ["", "## Findings", "", "| check | result | files |", "|---|---|---|"]
    rows: dict[tuple[str, str], list[str]] = {}
    for finding in found:
        detail = finding.detail if finding.passed else f"**FAILED** {finding.detail}"
        rows.setdefault((finding.check, detail), []).append(short(finding.file))
    for (check, detail), names in sorted(rows.items()):
        lines.append(f"| {check} | {detail.replace('|', '/')} | {', '.join(names)} |")
    return "\n".join(lines) + "\n"


def installed(file: Path) -> str:
    if file.suffix != ".whl":
        return ""
    with zipfile.ZipFile(file) as archive:
        return f"{sum(entry.file_size for entry in archive.infolist()) / 1000:.0f}"


def short(name: str) -> str:
    """Return the name of a file without version and platforms; the first table has these."""
    if name.endswith(".tar.gz"):
        return name.rsplit("-", 1)[0] + " sdist"
    parts = name.removesuffix(".whl").split("-")
    architecture = next((a for a in ("x86_64", "aarch64") if parts[-1].endswith(a)), "")
    return " ".join(part for part in (parts[0], "" if parts[-3] == "py3" else parts[-2], architecture) if part)
