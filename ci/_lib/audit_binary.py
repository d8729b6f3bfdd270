"""Checks the shared object in a wheel: one exported symbol, and no dependency that an old system lacks."""

from __future__ import annotations

import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from . import core_wheel, elf, zig
from .steps import run

Check = tuple[str, bool, str]
CORE_ENTRY = "PyInit__core"
PLUGIN_ENTRY = "hami_plugin_v1"
SHARED_OBJECT = re.compile(r"\.so(\.|$)")


def shared_objects(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if SHARED_OBJECT.search(name)]


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
        if entry == PLUGIN_ENTRY:
            yield "no Python ABI", *without_python(names, read)


def without_python(names: list[str], read: list[elf.Symbols]) -> tuple[bool, str]:
    """A native plugin is not compiled for one Python: its wheel serves all of them."""
    bound = [name for name in names if ".cpython-" in name or ".abi3." in name]
    bound += sorted(name for symbols in read for name in symbols.needed if name.startswith(("Py", "_Py")))
    return not bound, ", ".join(bound[:5]) or "uses no symbol of Python"


def auditwheel_show(wheel: Path) -> Check:
    """auditwheel finds no symbol newer than our glibc."""
    program = Path(sys.executable).with_name("auditwheel")
    text = " ".join(run([program, "show", wheel], log=f"show-{wheel.stem}").split())
    found = re.search(r'consistent with the following platform tag: "([^"]+)"', text)
    tag = found.group(1) if found else text[:100]
    glibc = re.fullmatch(r"manylinux_(\d+)_(\d+)_\w+", tag)
    return "auditwheel show", glibc is not None and tuple(map(int, glibc.groups())) <= zig.GLIBC_VERSION, tag
