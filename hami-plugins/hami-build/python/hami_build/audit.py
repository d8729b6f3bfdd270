"""Audits files before they are published, also those of other projects than plugins.

A shared object needs nothing that an old system lacks; a source distribution has sources alone.
"""

from __future__ import annotations

import re
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hami_build import archive, changelog, elf, integrity, platforms, tools, wheel_file, zig
from hami_build.binary import ENTRY, shared_objects, without_python
from hami_build.errors import Failure, reason

Check = tuple[str, bool, str]
IN_EVERY_SDIST = {"pyproject.toml", "PKG-INFO", "LICENSE", "README.md", "CHANGELOG.md"}
WARNING = "warning: "  # the start of the detail of a check that passes, which the author should read
BUILT = (".so", ".pyc", ".a", ".o", ".whl")


@dataclass(frozen=True)
class Rules:
    """What differs between projects."""

    entry: str = ""  # the only symbol that the only binary exports; empty: what Python or hami-core looks for in each
    package: str = ""  # the top-level name in the wheel; empty: any, but only one
    changelog: Path | None = None  # whose newest version must be that of the file
    ignored: Sequence[str] = ()  # rules of check-wheel-contents

    @property
    def tags_of_python(self) -> Sequence[str]:
        """Which Pythons a wheel may be for: "one", or "every" one."""
        if not self.entry:
            return ("one", "every")
        return ("one",) if self.entry.startswith("PyInit_") else ("every",)


@dataclass(frozen=True)
class Finding:
    """The result of one check of one file."""

    file: str
    check: str
    passed: bool
    detail: str

    def __str__(self) -> str:
        state = "FAILED" if not self.passed else "warn  " if self.detail.startswith(WARNING) else "ok    "
        return f"{state} {self.file}: {self.check}: {self.detail}"


def checks(file: Path, rules: Rules) -> Iterator[Check]:
    """Every check of a wheel or a source distribution; an incomplete file has only the first."""
    whole = integrity.check(file)
    yield whole
    if whole[1]:
        yield from wheel(file, rules) if file.suffix == ".whl" else sdist(file, rules.changelog)
        yield "twine check --strict", *tools.twine(file)


def wheel(file: Path, rules: Rules) -> Iterator[Check]:
    """It is what its name says, has its licence and its bill of materials, and runs on the platforms of its tags."""
    files = wheel_file.read(file)
    python, abi, platform = file.stem.split("-")[-3:]
    yield "interpreter", tag_of_python(python, abi) in rules.tags_of_python, f"{python}-{abi}"
    if platform == "any":
        objects = shared_objects(file)
        yield "pure Python", not objects, ", ".join(objects) or "no binary"
    else:
        yield from attempt("binaries", lambda: binaries(file, rules.entry))
    yield archive.file_name(file, files)
    yield archive.top_level_names(files, rules.package)
    yield archive.licences(files)
    yield from attempt("bill of materials", lambda: [archive.bill_of_materials(files)])
    yield from attempt("entry points", lambda: [entry_points(files)])
    yield versions(file, files, rules.changelog)
    yield "check-wheel-contents", *tools.contents(file, *rules.ignored)


def attempt(name: str, found: Callable[[], Iterable[Check]]) -> Iterator[Check]:
    """Yield the results of checks. What a damaged or hostile file makes them raise is a result too."""
    try:
        yield from found()
    except Failure:  # a tool is not installed
        raise
    except Exception as error:
        yield name, False, reason(error)


def tag_of_python(python: str, abi: str) -> str:
    """Return whether a wheel with these tags is for "one" Python, for "every" one, or for an unknown one: ""."""
    if (python, abi) == ("py3", "none"):
        return "every"
    return "one" if python.startswith("cp3") and (abi.rstrip("t") == python or abi == "abi3") else ""


def binaries(wheel: Path, entry: str) -> Iterator[Check]:
    """They run on the oldest platform of the tags, and export what is looked for in them."""
    tags = wheel.stem.split("-")[-1]
    architecture = next((a for a in zig.ARCHITECTURES if tags.endswith(a)), zig.HOST)
    try:
        oldest = platforms.parse(f"manylinux2014_{architecture}" if entry else tags.split(".")[0])
    except Failure as error:
        yield "platform", False, str(error)
        return
    yield "platform", tags == ".".join(oldest.tags), tags
    names = shared_objects(wheel)
    yield "one binary" if entry else "binaries", len(names) == 1 if entry else bool(names), ", ".join(names) or "none"
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as opened:
        objects = [Path(opened.extract(name, folder)) for name in names]
        read = [elf.read(path) for path in objects]
        exported = sorted(set().union(*(symbols.exported for symbols in read)))
        if entry:
            yield "exports", exported == [entry], ", ".join(exported[:5])
        else:
            found = [name for name in exported if name.startswith("PyInit_") or name == ENTRY]
            yield "exports", len(found) >= len(names), f"{', '.join(found) or 'no entry'} of {len(exported)} symbols"
        if architecture == "x86_64":
            yield "instructions", True, instructions(objects)
        if "-py3-none-" in wheel.name:
            yield "no Python ABI", *without_python(names, read)
        if oldest.libc != "glibc":
            return
        yield auditwheel_show(wheel, oldest.version)
        glibc = zig.stub_libraries(oldest.target)
        linked = set().union(*(symbols.libraries for symbols in read)) - {library.name for library in glibc}
        others = {name for name in linked if not name.startswith("ld-linux")}  # the loader, of glibc too
        yield "links", not others, ", ".join(sorted(others)) or "only glibc"
        missing = elf.missing(objects, glibc)
        version = ".".join(map(str, oldest.version))
        yield f"symbols of glibc {version}", not missing, ", ".join(missing[:5]) or "all available"


def instructions(objects: Sequence[Path]) -> str:
    """Say which binaries need AVX, which no tag of a wheel can demand."""
    if not (found := [path.name for path in objects if elf.needs_avx(path)]):
        return "no binary needs AVX"
    return (
        f"{WARNING}{', '.join(found)} needs AVX and ends a process on an older x86-64 processor; compile without "
        "-mavx, -march=native and -march=x86-64-v3, or choose such code at run time"
    )


def auditwheel_show(wheel: Path, oldest: tuple[int, int] = zig.GLIBC_VERSION) -> Check:
    """auditwheel finds no symbol newer than the oldest glibc of the tags."""
    tag = tools.auditwheel(wheel)
    glibc = re.fullmatch(r"manylinux_(\d+)_(\d+)_\w+", tag)
    return "auditwheel show", glibc is not None and tuple(map(int, glibc.groups())) <= oldest, tag


def entry_points(files: Mapping[str, bytes]) -> Check:
    """Each entry point names something in the wheel. Only a wheel without a module named plugin may have none."""
    declared = archive.declared_entry_points(files)
    if wrong := [target for target in declared if not archive.defines(files, *target.partition(":")[::2])]:
        return "entry points", False, f"not in the wheel: {', '.join(wrong)}"
    may_be_none = not any(name.endswith("/plugin.py") for name in files)
    return "entry points", bool(declared) or may_be_none, ", ".join(declared) or "none"


def versions(wheel: Path, files: Mapping[str, bytes], log: Path | None) -> Check:
    """File name, metadata and changelog agree on the version."""
    said = {"file name": wheel.stem.split("-")[1], "metadata": str(wheel_file.metadata(files)["Version"])}
    if log is not None:
        entry = changelog.newest(log)
        said["changelog"] = entry.version if entry else "none"
    return "version", len(set(said.values())) == 1, ", ".join(f"{place} {version}" for place, version in said.items())


def sdist(file: Path, log: Path | None) -> Iterator[Check]:
    """It can be built, has a licence and no build products; the newest version of the changelog, if given, is its."""
    version = file.name.removesuffix(".tar.gz").rsplit("-", 1)[1]
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = IN_EVERY_SDIST - names - ({"CHANGELOG.md"} if log is None else set())
    yield "contents", not missing, f"missing: {', '.join(sorted(missing))}" if missing else f"{len(names)} files"
    built = sorted(name for name in names if name.endswith(BUILT) or "/.cache/" in name)
    yield "sources only", not built, ", ".join(built[:5]) or "no build products"
    if log is not None:
        entry = changelog.newest(log)
        newest = entry.version if entry else "none"
        yield "version", newest == version, f"file name {version}, changelog {newest}"
