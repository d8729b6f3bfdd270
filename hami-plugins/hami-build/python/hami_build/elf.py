"""Reads which symbols a shared object exports and needs, and whether its code needs AVX."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection


@dataclass
class Symbols:
    defined: set[str] = field(default_factory=set)  # "name" and, where it has one, "name@VERSION"
    needed: set[str] = field(default_factory=set)  # "name@VERSION", or "name" without a version
    optional: set[str] = field(default_factory=set)  # weak symbols, which may be missing
    libraries: set[str] = field(default_factory=set)  # linked libraries

    @property
    def exported(self) -> set[str]:
        return {name for name in self.defined if "@" not in name}


def read(path: Path) -> Symbols:
    """Return the dynamic symbols of the shared object `path` and the libraries that it needs."""
    symbols = Symbols()
    with path.open("rb") as file:
        elf = ELFFile(file)
        versions: dict[int, str] = {}
        indices = None
        for section in elf.iter_sections():
            if isinstance(section, GNUVerSymSection):
                indices = section
            elif isinstance(section, GNUVerNeedSection):
                versions |= {aux["vna_other"]: aux.name for _, auxes in section.iter_versions() for aux in auxes}
            elif isinstance(section, GNUVerDefSection):
                versions |= {definition["vd_ndx"]: next(auxes).name for definition, auxes in section.iter_versions()}
            elif isinstance(section, DynamicSection):
                tags: list[Any] = list(section.iter_tags("DT_NEEDED"))  # its class creates attributes dynamically
                symbols.libraries |= {tag.needed for tag in tags}
        table = elf.get_section_by_name(".dynsym")
        if not isinstance(table, SymbolTableSection):
            raise ValueError(f"{path} has no dynamic symbol table")
        for number, symbol in enumerate(table.iter_symbols()):
            binding = symbol["st_info"]["bind"]
            if not symbol.name or binding == "STB_LOCAL":
                continue
            index = indices.get_symbol(number)["ndx"] if indices else "VER_NDX_GLOBAL"
            version = versions.get(index & 0x7FFF) if isinstance(index, int) else None
            full = f"{symbol.name}@{version}" if version else symbol.name
            if symbol["st_shndx"] != "SHN_UNDEF":
                symbols.defined |= {symbol.name, full}
            else:
                (symbols.optional if binding == "STB_WEAK" else symbols.needed).add(full)
    return symbols


# Moves and arithmetic of floating-point numbers, with the prefix of AVX and with those of SSE. Such bytes occur by
# chance too, about ten times in a megabyte.
_NUMBERS = rb"[\x10\x11\x28\x29\x54\x57-\x59\x5c\x5e\x6f\x77\x7e\x7f\xd6\xef]"
_AVX = re.compile(rb"\xc5[\xf8-\xff]" + _NUMBERS)
_SSE = re.compile(rb"[\x66\xf2\xf3]\x0f" + _NUMBERS + rb"|[^\x66\xf2\xf3]\x0f[\x10\x11\x28\x29\x54\x57]")
_FEWEST = 4
_TIMES_SSE = 4  # 1.4 times as many in libraries that choose at run time, 9 times in code compiled for AVX alone


def needs_avx(path: Path) -> bool:
    """Return whether the code of a shared object for x86-64 computes with AVX and hardly ever with SSE.

    A library that chooses its code by the processor has both.
    """
    with path.open("rb") as file:
        text = ELFFile(file).get_section_by_name(".text")
        code = text.data() if text else b""
    avx = sum(1 for _ in _AVX.finditer(code))
    return avx >= _FEWEST and avx > _TIMES_SSE * sum(1 for _ in _SSE.finditer(code))


def missing(objects: Iterable[Path], libraries: Iterable[Path]) -> list[str]:
    """Return the symbols that `objects` need and neither they nor `libraries` have in that version, except Python's."""
    wanted = [read(path) for path in objects]
    known = set().union(*(symbols.defined for symbols in wanted), *(read(path).defined for path in libraries))
    needed = set().union(*(symbols.needed for symbols in wanted))
    return sorted(name for name in needed - known if not name.startswith(("Py", "_Py")))
