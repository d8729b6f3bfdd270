"""Reads the shared objects in a wheel: what they export and link, for which machine, and which glibc they need."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from hami_build import elf

ENTRY = "hami_plugin_v1"
SHARED_OBJECT = re.compile(r"\.so(\.|$)")
MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
# Libraries of every Linux of the platform tags, by the name of the file without its version.
SYSTEM = {
    "libc",
    "libm",
    "libdl",
    "libpthread",
    "librt",
    "libgcc_s",
    "libstdc++",
    "ld-linux-x86-64",
    "ld-linux-aarch64",
}
SYSTEM |= {"libc.musl-x86_64", "libc.musl-aarch64"}
# Libraries that belong to a driver or to the wheel of an engine. A second copy in the process fails or crashes.
VENDOR = (
    *("libcuda*", "libcudart*", "libcudnn*", "libcublas*", "libcufft*", "libcurand*", "libcusolver*", "libcusparse*"),
    *("libnvinfer*", "libnvonnxparser*", "libnvrtc*", "libnvjpeg*", "libnvidia*", "libnccl*", "libnpp*"),
    *("libopenvino*", "libonnxruntime*", "libtorch*", "libc10*", "libtensorflow*", "libxla*", "libpython*"),
)


@dataclass(frozen=True)
class Binary:
    """A shared object in a wheel."""

    name: str
    machine: str  # "x86_64", "aarch64", or the name in the ELF format
    symbols: elf.Symbols
    problem: str = ""  # why it cannot be read


def shared_objects(wheel: Path) -> list[str]:
    """Return the names of the shared objects in `wheel`."""
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if SHARED_OBJECT.search(name)]


def read_all(folder: Path, names: Iterable[str]) -> list[Binary]:
    """Return the shared objects `names` of an unpacked wheel."""
    return [read(folder / name, name) for name in names]


def read(path: Path, name: str) -> Binary:
    """Return what a shared object says about itself; a damaged one has a `problem`."""
    try:
        with path.open("rb") as file:
            header = ELFFile(file)
            machine = MACHINES.get(header["e_machine"], str(header["e_machine"]))
            end = max(
                (
                    section["sh_offset"] + section["sh_size"]
                    for section in header.iter_sections()
                    if section["sh_type"] != "SHT_NOBITS"
                ),
                default=0,
            )
        if end > path.stat().st_size:
            raise ValueError(f"it ends after {path.stat().st_size} of {end} bytes")
        return Binary(name, machine, elf.read(path))
    except (ELFError, ValueError, KeyError, LookupError, TypeError, AttributeError, UnicodeError) as error:
        return Binary(name, "", elf.Symbols(), str(error) or "it is not a complete ELF file")


def stem(library: str) -> str:
    """Return the name of a library without `.so`, version and the hash that auditwheel adds."""
    return re.sub(r"(-[0-9a-f]{8})?(-\d+(\.\d+)+)?\.so.*$", "", library.rpartition("/")[2])


def is_vendor(library: str) -> bool:
    """Return whether a library belongs to a driver or an engine."""
    return any(fnmatchcase(stem(library), pattern) for pattern in VENDOR)


def foreign(binaries: Iterable[Binary]) -> dict[str, list[str]]:
    """Return the libraries that each binary links and that neither the system nor the wheel provides."""
    binaries = list(binaries)
    inside = {binary.name.rpartition("/")[2] for binary in binaries}
    found: Mapping[str, list[str]] = {
        binary.name: sorted(
            name for name in binary.symbols.libraries if stem(name) not in SYSTEM and name not in inside
        )
        for binary in binaries
    }
    return {name: libraries for name, libraries in found.items() if libraries}


def undefined(binaries: Iterable[Binary]) -> dict[str, list[str]]:
    """Return the symbols that each binary needs without a version and that no binary of the wheel has.

    Each symbol of glibc and of the libraries of the compiler has a version. A linker that finds a symbol in none of
    them leaves it without one: the wheel then loads only where a newer library happens to have it. auditwheel does not
    report it. The symbols of Python have no versions either, and musl has none at all.
    """
    binaries = [each for each in binaries if not any("musl" in library for library in each.symbols.libraries)]
    defined = set().union(*(each.symbols.defined for each in binaries))
    found = {
        each.name: sorted(
            name for name in each.symbols.needed - defined if "@" not in name and not name.startswith(("Py", "_Py"))
        )
        for each in binaries
    }
    return {name: symbols for name, symbols in found.items() if symbols}


def without_python(names: list[str], read: list[elf.Symbols]) -> tuple[bool, str]:
    """A native plugin is not compiled for one Python: its wheel serves all of them."""
    bound = [name for name in names if ".cpython-" in name or ".abi3." in name]
    bound += sorted(name for symbols in read for name in symbols.needed if name.startswith(("Py", "_Py")))
    return not bound, ", ".join(bound[:5]) or "uses no symbol of Python"


def newest_glibc(binaries: Iterable[Binary]) -> tuple[int, ...]:
    """Return the newest version of glibc whose symbols the binaries need; (0,) if they need none."""
    needed = (name for binary in binaries for name in binary.symbols.needed | binary.symbols.optional)
    versions = (found.group(1) for name in needed if (found := re.search(r"@GLIBC_(\d+(?:\.\d+)*)$", name)))
    return max((tuple(map(int, version.split("."))) for version in versions), default=(0,))
