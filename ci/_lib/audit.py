"""What must be true of a wheel before anyone gets it: platform, symbols, size, metadata; and what was found."""

from __future__ import annotations

import platform
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import elf, zig
from .steps import Failure, run

CORE_LIMIT = 1_500_000
TAGS = [f"{policy}_{platform.machine()}" for policy in ("manylinux2014", "manylinux_2_17", "manylinux_2_28")]


@dataclass(frozen=True)
class Finding:
    wheel: str
    check: str
    passed: bool
    detail: str

    def __str__(self) -> str:
        return f"{'ok    ' if self.passed else 'FAILED'} {self.wheel}: {self.check}: {self.detail}"


def audit(wheel: Path) -> list[Finding]:
    """Every finding about one wheel."""
    checks = core_checks(wheel) if wheel.name.startswith("hami_core-") else plugin_checks(wheel)
    return [Finding(wheel.name, *found) for found in checks]


def core_checks(wheel: Path) -> Iterator[tuple[str, bool, str]]:
    yield "size", wheel.stat().st_size <= CORE_LIMIT, f"{wheel.stat().st_size} bytes, limit {CORE_LIMIT}"
    yield from binary_checks(wheel, "PyInit__core")


def plugin_checks(wheel: Path) -> Iterator[tuple[str, bool, str]]:
    python, abi, platform = wheel.stem.split("-")[-3:]
    native = platform != "any"
    yield "tags", (python, abi) == ("py3", "none"), f"{python}-{abi}-{platform}"
    own = wheel.name.partition("-")[0]
    with zipfile.ZipFile(wheel) as archive:
        top = sorted(
            {name.partition("/")[0] for name in archive.namelist()}
            - {f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"}
        )
    yield "top-level names", top == [own], ", ".join(top)
    if native:
        yield from binary_checks(wheel, "hami_plugin_v1")


def binary_checks(wheel: Path, entry: str) -> Iterator[tuple[str, bool, str]]:
    """One shared object for every platform that we promise, with this one symbol, that needs nothing but glibc."""
    platform = wheel.stem.split("-")[-1]
    yield "platform", all(tag in platform.split(".") for tag in TAGS), platform
    yield auditwheel_show(wheel)
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        objects = [Path(archive.extract(name, folder)) for name in archive.namelist() if re.search(r"\.so(\.|$)", name)]
        yield "one binary", len(objects) == 1, ", ".join(path.name for path in objects)
        read = [elf.read(path) for path in objects]
        exported = sorted(set().union(*(symbols.exported for symbols in read)))
        yield "exports", exported == [entry], ", ".join(exported[:5])
        glibc = zig.stub_libraries()
        linked = set().union(*(symbols.libraries for symbols in read)) - {library.name for library in glibc}
        others = sorted(name for name in linked if not name.startswith("ld-linux"))  # glibc's loader
        yield "links", not others, ", ".join(others) or "glibc alone"
        missing = elf.missing(objects, glibc)
        yield f"symbols of glibc {zig.GLIBC}", not missing, ", ".join(missing[:5]) or "all there"


def auditwheel_show(wheel: Path) -> tuple[str, bool, str]:
    """auditwheel finds no symbol newer than our glibc."""
    program = Path(sys.executable).with_name("auditwheel")
    text = " ".join(run([program, "show", wheel], log=f"show-{wheel.stem}").split())
    found = re.search(r'consistent with the following platform tag: "([^"]+)"', text)
    tag = found.group(1) if found else text[:100]
    glibc = re.fullmatch(r"manylinux_(\d+)_(\d+)_\w+", tag)
    return "auditwheel show", glibc is not None and tuple(map(int, glibc.groups())) <= zig.GLIBC_VERSION, tag


def audit_all(wheels: list[Path]) -> list[Finding]:
    """The findings about all `wheels`; twine looks at them together."""
    findings = [finding for wheel in wheels for finding in audit(wheel)]
    try:
        run([Path(sys.executable).with_name("twine"), "check", "--strict", *wheels], log="twine-check")
        findings.append(Finding("all", "twine check --strict", True, "passed"))
    except Failure as failure:
        findings.append(Finding("all", "twine check --strict", False, str(failure)))
    return findings
