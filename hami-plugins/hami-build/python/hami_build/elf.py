"""Reads which symbols a shared object exports and needs, from its dynamic symbol table."""

from __future__ import annotations

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


def missing(objects: Iterable[Path], libraries: Iterable[Path]) -> list[str]:
    """Return the symbols that `objects` need and neither they nor `libraries` have in that version, except Python's."""
    wanted = [read(path) for path in objects]
    known = set().union(*(symbols.defined for symbols in wanted), *(read(path).defined for path in libraries))
    needed = set().union(*(symbols.needed for symbols in wanted))
    return sorted(name for name in needed - known if not name.startswith(("Py", "_Py")))
