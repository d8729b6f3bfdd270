#!/usr/bin/env python3
"""Prove that dependencies only point down: C++ rooms, public headers, floors of the Python package, plugins.

Usage: ci/check_layers.py [ROOT]. Prints one line per arrow that points up, and exits 1 if there is any
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

# The rooms of the core, lowest first, and those that each of them uses. A room uses another one by its facade, which
# includes the facades of its declarations: `sync` includes those of `value` and `base`, `backend` that of `lang`, which
# are not listed twice.
# `bind` connects the core to a program: Python in hami-core/python/bind, C in hami-core/embed.
ARROWS = {
    "base": (),
    "value": ("base",),
    "sync": ("value",),
    "observe": ("base",),
    "lang": ("value",),
    "request": ("sync", "observe"),
    "backend": ("observe", "lang", "request"),
    "registry": ("backend",),
    "container": ("request", "backend", "registry"),
    "schedule": ("observe", "lang", "request", "backend", "registry"),
    "plugin": ("request", "backend", "registry"),
    "telemetry": ("sync", "observe"),
    "pipe": ("observe", "lang", "request", "backend", "registry", "container", "schedule"),
}
ROOMS = (*ARROWS, "bind")
FACADE = "api.hpp"
# The floors of the package `hami`, lowest first: a module imports from its own floor and from lower ones. The longest
# name that a module begins with decides. Public modules and commands, which have no line, are above all others.
FLOORS = (
    ("hami._errors", "hami._no_core", "hami._text"),
    ("hami._backends", "hami.types"),
    ("hami._plugins",),
    ("hami._config",),
    ("hami.observe.",),
    ("hami._runtime",),
)
FACADES = {"hami.observe"}  # its public names come from several floors
CORE_NEEDS = {*sys.stdlib_module_names, "hami", "pluggy"}  # what files of the core may need
# Streams of the C++ library, which a wheel of the core contains, would add 0.2 MB to it.
STREAMS = {"fstream", "iomanip", "iostream", "istream", "locale", "ostream", "regex", "sstream"}
QUOTED_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
ANY_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
CPP_SUFFIXES = {".hpp", ".h", ".cpp"}


def cpp_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in CPP_SUFFIXES)


def includes(path: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    for match in pattern.finditer(text):
        yield text.count("\n", 0, match.start(1)) + 1, match.group(1)


def core_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Return each C++ file of the core with its room."""
    folders = [(path.name, path) for path in sorted((root / "hami-core" / "src").glob("*")) if path.is_dir()]
    folders += [("bind", root / "hami-core" / "python" / "bind"), ("bind", root / "hami-core" / "embed")]
    yield from ((room, path) for room, folder in folders for path in cpp_files(folder))


def core_violations(root: Path) -> Iterator[str]:
    """Each include of the core names its room, or the facade of a room that its own one may use."""
    source = root / "hami-core" / "src"
    for room, path in core_files(root):
        if room not in ROOMS:
            yield f"{path.parent.relative_to(root)}: unknown room; the rooms are {', '.join(ROOMS)}"
            continue
        may_use = ARROWS.get(room, tuple(ARROWS))
        for line, target in includes(path, QUOTED_INCLUDE):
            where = f"{path.relative_to(root)}:{line}"
            other, _, file = target.partition("/")
            if other in ("hami", room) or (room == "bind" and (path.parent / target).is_file()):
                continue
            if other not in ARROWS or not (source / target).is_file():
                yield f'{where}: "{target}" is not a file of a room; write #include "room/file.hpp"'
            elif other not in may_use:
                yield f'{where}: room {room} includes "{target}"; it may use {", ".join(may_use) or "no other room"}'
            elif file != FACADE:
                yield f'{where}: room {room} includes "{target}"; other rooms include only "{other}/{FACADE}"'


def stream_violations(root: Path) -> Iterator[str]:
    """The core uses no streams."""
    for _, path in core_files(root):
        for line, target in includes(path, ANY_INCLUDE):
            if target in STREAMS:
                yield f"{path.relative_to(root)}:{line}: the core includes <{target}>, which makes its wheel larger"


def arrows(root: Path) -> set[tuple[str, str]]:
    """Return the pairs of rooms of which the first includes the second."""
    found = {
        (room, target.partition("/")[0])
        for room, path in core_files(root)
        for _, target in includes(path, QUOTED_INCLUDE)
    }
    return {(room, other) for room, other in found if room in ARROWS and other in ARROWS and room != other}


def header_violations(root: Path) -> Iterator[str]:
    """The public headers include only the standard library, the system and each other."""
    for path in cpp_files(root / "hami-core" / "include"):
        for line, target in includes(path, QUOTED_INCLUDE):
            if not target.startswith("hami/"):
                yield f'{path.relative_to(root)}:{line}: a public header includes "{target}"; only hami/… is allowed'


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Every absolute module name that a file imports, also inside functions; `from a import b` imports a and a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def needed_packages(path: Path) -> Iterator[tuple[int, str]]:
    """Every package that a file needs to be imported: not those inside functions, conditions and `try`."""
    for node in ast.parse(path.read_text(encoding="utf-8"), str(path)).body:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0]


def package_violations(root: Path) -> Iterator[str]:
    """The package needs the standard library and pluggy, and knows plugins by name only: it never imports one."""
    for path in sorted((root / "hami-core" / "python" / "hami").rglob("*.py")):
        for line, module in imported_modules(path):
            if module.startswith("hami_"):
                yield f"{path.relative_to(root)}:{line}: the core imports {module}, a plugin"
        for line, package in needed_packages(path):
            if package not in CORE_NEEDS and not package.startswith("hami_"):
                where = f"{path.relative_to(root)}:{line}"
                yield f"{where}: the core needs {package}; it needs the standard library and pluggy"


def floor_of(module: str) -> int:
    """Return the floor of a module of `hami`."""
    found = [(len(name), floor) for floor, names in enumerate(FLOORS) for name in names if module.startswith(name)]
    return max(found)[1] if found else len(FLOORS)


def floor_violations(root: Path) -> Iterator[str]:
    """No module of the package imports one of a higher floor, also inside functions and for type checkers."""
    files = modules_of(root / "hami-core" / "python" / "hami")
    for module, path in files.items():
        for line, other in own_imports(path, files):
            if floor_of(other) > floor_of(module):
                yield f"{path.relative_to(root)}:{line}: {module} imports {other}, which is above it"


def cycle_violations(root: Path) -> Iterator[str]:
    """Neither files nor packages import each other in a cycle."""
    packages = [root / "hami-core" / "python" / "hami"]
    packages += [path.parent for path in sorted((root / "hami-plugins").glob("*/python/*/__init__.py"))]
    for package in packages:
        files = modules_of(package)
        imports = {module: {other for _, other in own_imports(path, files)} for module, path in files.items()}
        if cycle := cycle_in(imports) or cycle_in(between_parts(imports, package.name)):
            yield f"{package.relative_to(root)}: {' imports '.join(cycle)}"


def cycle_in(imports: Mapping[str, set[str]]) -> list[str]:
    """Return modules of which each imports the next one, up to the first one again; empty without a cycle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        found: list[str] = error.args[1][::-1]
        return found
    return []


def between_parts(imports: Mapping[str, set[str]], package: str) -> dict[str, set[str]]:
    """Return the imports between the folders of a package and the files beside them."""
    found: dict[str, set[str]] = {}
    for module, others in imports.items():
        if module not in {package, *FACADES}:
            part = ".".join(module.split(".")[:2])
            found.setdefault(part, set()).update(".".join(other.split(".")[:2]) for other in others - {package})
    return {part: others - {part} for part, others in found.items()}


def modules_of(package: Path) -> dict[str, Path]:
    """Return the files of a package by the name of the module."""
    named = {path: path.relative_to(package.parent).with_suffix("").parts for path in sorted(package.rglob("*.py"))}
    return {".".join(parts[:-1] if parts[-1] == "__init__" else parts): path for path, parts in named.items()}


def own_imports(path: Path, files: Mapping[str, Path]) -> Iterator[tuple[int, str]]:
    """Every file of its package that a file imports; `from a import b` imports a.b if that is a file, else a."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found = [name if name in files else node.module for name in names if name != "hami._core"]
        else:
            continue
        yield from ((node.lineno, name) for name in dict.fromkeys(found) if name in files and files[name] != path)


def plugin_violations(root: Path) -> Iterator[str]:
    """A plugin could be a repository of its own: it sees the public package, <hami/…>, and what it declares."""
    for plugin in sorted((root / "hami-plugins").glob("*/pyproject.toml")):
        folder, declared = plugin.parent, plugin.read_text(encoding="utf-8")
        own = folder.name.replace("-", "_")
        for path in sorted(folder.rglob("*.py")):
            for line, module in imported_modules(path):
                where, top = f"{path.relative_to(root)}:{line}", module.partition(".")[0]
                if module.startswith("hami._") and not module.startswith("hami.__"):
                    yield f"{where}: a plugin imports {module}, which is private; only the package hami is public"
                elif top.startswith("hami_") and top != own and top.replace("_", "-") not in declared:
                    yield f"{where}: imports {top}, which {plugin.relative_to(root)} does not declare"
        for path in sorted((folder / "python").rglob("*.py")):
            yield from library_violations(root, path, own, declared)
        for path in cpp_files(folder):
            for line, target in includes(path, ANY_INCLUDE):
                if target.partition("/")[0] in ROOMS or "hami-core" in target:
                    yield f'{path.relative_to(root)}:{line}: a plugin includes "{target}"; only <hami/…> is public'


def library_violations(root: Path, path: Path, own: str, declared: str) -> Iterator[str]:
    """A plugin imports other plugins by their public modules, and hami-tools needs nothing that it does not declare."""
    for line, module in imported_modules(path):
        top = module.partition(".")[0]
        if top.startswith("hami_") and top != own and "._" in module:
            yield f"{path.relative_to(root)}:{line}: a plugin imports {module}, which is private to {top}"
    for line, package in needed_packages(path) if own == "hami_tools" else ():
        known = package in CORE_NEEDS or package.startswith("hami_")
        if not known and f'"{package}' not in declared:
            where = f"{path.relative_to(root)}:{line}"
            yield f"{where}: hami-tools needs {package}, which its pyproject.toml does not declare"


def violations(root: Path) -> list[str]:
    checks = (
        core_violations,
        stream_violations,
        header_violations,
        package_violations,
        floor_violations,
        cycle_violations,
        plugin_violations,
    )
    return [line for check in checks for line in dict.fromkeys(check(root))]


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[1]
    found = violations(root)
    print("\n".join(found) or "every dependency points down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
