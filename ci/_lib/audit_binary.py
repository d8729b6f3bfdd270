"""Checks the shared object in a wheel: one exported symbol, and no dependency that an old system lacks."""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from hami_build import elf, tools, zig
from hami_build.binary import ENTRY, shared_objects, without_python

from . import core_wheel

Check = tuple[str, bool, str]
CORE_ENTRY = "PyInit__core"


def checks(wheel: Path, entry: str) -> Iterator[Check]:
    """There is one shared object for every supported platform; it exports only `entry` and needs only glibc."""
    platforms = wheel.stem.split("-")[-1]
    architecture = next((a for a in zig.ARCHITECTURES if platforms.endswith(a)), zig.HOST)
    yield "platform", platforms == ".".join(core_wheel.platform_tags(architecture)), platforms
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
