"""Audits files before they are published, and reports the findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hami_build import audit, integrity, tools, zig
from hami_build.binary import ENTRY, shared_objects

from . import audit_archive, interpreters

Check = tuple[str, bool, str]
CORE_ENTRY = "PyInit__core"


@dataclass(frozen=True)
class Finding:
    file: str
    check: str
    passed: bool
    detail: str

    def __str__(self) -> str:
        return f"{'ok    ' if self.passed else 'FAILED'} {self.file}: {self.check}: {self.detail}"


def of_file(file: Path, cores: audit_archive.Cores) -> list[Finding]:
    """Return every finding about one wheel or source distribution."""
    return [Finding(file.name, *found) for found in checks(file, cores)]


def checks(file: Path, cores: audit_archive.Cores) -> Iterator[Check]:
    whole = integrity.check(file)
    yield whole
    if whole[1]:
        yield from wheel_checks(file, cores) if file.suffix == ".whl" else audit.sdist(file, log_of_sdist(file))
        yield twine_check(file)


def wheel_checks(wheel: Path, cores: audit_archive.Cores) -> Iterator[Check]:
    python, abi, platform = wheel.stem.split("-")[-3:]
    if wheel.name.startswith("hami_core-"):
        yield "interpreter", python.startswith("cp3") and abi.rstrip("t") == python, f"{python}-{abi}"
        yield from audit.binary(wheel, CORE_ENTRY)
    else:
        yield "interpreter", (python, abi) == ("py3", "none"), f"{python}-{abi}"
        if platform == "any":
            objects = shared_objects(wheel)
            yield "pure Python", not objects, ", ".join(objects) or "no binary"
        else:
            yield from audit.binary(wheel, ENTRY)
    yield from audit_archive.checks(wheel, cores)


def log_of_sdist(file: Path) -> Path:
    """Return the changelog that belongs to a source distribution."""
    return audit_archive.log_of(file.name.rsplit("-", 1)[0].replace("_", "-"))


def twine_check(file: Path) -> Check:
    return "twine check --strict", *tools.twine(file)


def audit_all(files: Sequence[Path]) -> list[Finding]:
    """Return the findings about all `files`; plugins are imported with the wheels of the core among them."""
    cores = importable_cores(files)
    return [finding for file in files for finding in of_file(file, cores)]


def importable_cores(files: Sequence[Path]) -> dict[Path, interpreters.Interpreter]:
    """Return the wheels of the core that a CPython of this machine can import, each with that CPython."""
    ours = [file for file in files if file.name.startswith("hami_core-") and file.stem.endswith(zig.HOST)]
    return {
        file: found for found in interpreters.find()[0] for file in ours if f"-{found.tag}-{found.tag}-" in file.name
    }
