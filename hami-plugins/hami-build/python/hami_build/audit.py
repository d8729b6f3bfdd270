"""Audits files before they are published, also those of other projects than plugins.

A shared object exports one symbol and needs nothing that an old system lacks; a source distribution has sources alone.
"""

from __future__ import annotations

import re
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from hami_build import changelog, elf, platforms, tools, zig
from hami_build.binary import ENTRY, shared_objects, without_python

Check = tuple[str, bool, str]
IN_EVERY_SDIST = {"pyproject.toml", "PKG-INFO", "LICENSE", "README.md", "CHANGELOG.md"}
BUILT = (".so", ".pyc", ".a", ".o", ".whl")


def binary(wheel: Path, entry: str) -> Iterator[Check]:
    """There is one shared object for the oldest platform; it exports only `entry` and needs only glibc."""
    tags = wheel.stem.split("-")[-1]
    architecture = next((a for a in zig.ARCHITECTURES if tags.endswith(a)), zig.HOST)
    yield "platform", tags == ".".join(platforms.parse(f"manylinux2014_{architecture}").tags), tags
    yield auditwheel_show(wheel)
    names = shared_objects(wheel)
    yield "one binary", len(names) == 1, ", ".join(names) or "none"
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        objects = [Path(archive.extract(name, folder)) for name in names]
        read = [elf.read(path) for path in objects]
        exported = sorted(set().union(*(symbols.exported for symbols in read)))
        yield "exports", exported == [entry], ", ".join(exported[:5])
        glibc = zig.stub_libraries(zig.target(architecture))
        linked = set().union(*(symbols.libraries for symbols in read)) - {library.name for library in glibc}
        others = {name for name in linked if not name.startswith("ld-linux")}  # the loader, of glibc too
        yield "links", not others, ", ".join(sorted(others)) or "only glibc"
        missing = elf.missing(objects, glibc)
        yield f"symbols of glibc {zig.GLIBC}", not missing, ", ".join(missing[:5]) or "all available"
        if entry == ENTRY:
            yield "no Python ABI", *without_python(names, read)


def auditwheel_show(wheel: Path) -> Check:
    """auditwheel finds no symbol newer than our glibc."""
    tag = tools.auditwheel(wheel)
    glibc = re.fullmatch(r"manylinux_(\d+)_(\d+)_\w+", tag)
    return "auditwheel show", glibc is not None and tuple(map(int, glibc.groups())) <= zig.GLIBC_VERSION, tag


def sdist(file: Path, log: Path) -> Iterator[Check]:
    """It can be built, has licence and changelog, and no build products; the newest version of the changelog is its."""
    version = file.name.removesuffix(".tar.gz").rsplit("-", 1)[1]
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = IN_EVERY_SDIST - names
    yield "contents", not missing, f"missing: {', '.join(sorted(missing))}" if missing else f"{len(names)} files"
    built = sorted(name for name in names if name.endswith(BUILT) or "/.cache/" in name)
    yield "sources only", not built, ", ".join(built[:5]) or "no build products"
    entry = changelog.newest(log)
    newest = entry.version if entry else "none"
    yield "version", newest == version, f"file name {version}, changelog {newest}"
