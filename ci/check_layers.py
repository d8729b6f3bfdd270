#!/usr/bin/env python3
"""Prove that dependencies only point down: C++ layers, the public headers, the Python package, the plugins.

Usage: ci/check_layers.py [ROOT]. Prints one line per arrow that points up, and exits 1 if there is any
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Lowest first. A room includes itself and the rows below its own; rooms of one row are siblings and include none of each
# other. `bind` connects the core and a program: hami-core/python/bind for Python, hami-core/embed for C.
ROWS = (
    ("base",),
    ("value",),
    ("sync",),
    ("observe",),
    ("lang",),
    ("request",),
    ("backend",),
    ("registry",),
    ("container", "schedule", "plugin"),
    ("pipe",),
    ("bind",),
)
RANK = {room: rank for rank, row in enumerate(ROWS) for room in row}
LAYERS = tuple(RANK)
QUOTED_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
ANY_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
CPP_SUFFIXES = {".hpp", ".h", ".cpp"}


def cpp_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in CPP_SUFFIXES)


def includes(path: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    for match in pattern.finditer(text):
        yield text.count("\n", 0, match.start(1)) + 1, match.group(1)


def core_violations(root: Path) -> Iterator[str]:
    """Each include of the core names its layer, and that layer is not above its own."""
    source = root / "hami-core" / "src"
    folders = [(path.name, path) for path in sorted(source.glob("*")) if path.is_dir()]
    folders += [("bind", root / "hami-core" / "python" / "bind"), ("bind", root / "hami-core" / "embed")]
    for layer, folder in folders:
        if layer not in LAYERS:
            yield f"{folder.relative_to(root)}: no such layer; the layers are {', '.join(LAYERS)}"
            continue
        for path in cpp_files(folder):
            for line, target in includes(path, QUOTED_INCLUDE):
                where = f"{path.relative_to(root)}:{line}"
                top = target.partition("/")[0]
                if top == "hami" or (layer == "bind" and (path.parent / target).is_file()):
                    continue
                if top not in LAYERS[:-1] or not (source / target).is_file():
                    yield f'{where}: "{target}" is no file of a layer; write #include "layer/file.hpp"'
                elif RANK[top] > RANK[layer]:
                    yield f'{where}: layer {layer} includes "{target}" of layer {top}, which is above it'
                elif RANK[top] == RANK[layer] and top != layer:
                    yield f'{where}: layer {layer} includes "{target}" of layer {top}, its sibling'


def header_violations(root: Path) -> Iterator[str]:
    """The public headers stand alone: the standard library, the system and each other."""
    for path in cpp_files(root / "hami-core" / "include"):
        for line, target in includes(path, QUOTED_INCLUDE):
            if not target.startswith("hami/"):
                yield f'{path.relative_to(root)}:{line}: a public header includes "{target}"; it may see only hami/…'


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Every absolute module name that a file imports, also inside functions; `from a import b` gives a and a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def package_violations(root: Path) -> Iterator[str]:
    """The package knows plugins by name only: it never imports one."""
    for path in sorted((root / "hami-core" / "python" / "hami").rglob("*.py")):
        for line, module in imported_modules(path):
            if module.startswith("hami_"):
                yield f"{path.relative_to(root)}:{line}: the core imports {module}, a plugin"


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
        for path in cpp_files(folder):
            for line, target in includes(path, ANY_INCLUDE):
                if target.partition("/")[0] in LAYERS or "hami-core" in target:
                    yield f'{path.relative_to(root)}:{line}: a plugin includes "{target}"; only <hami/…> is public'


def violations(root: Path) -> list[str]:
    checks = (core_violations, header_violations, package_violations, plugin_violations)
    return [line for check in checks for line in dict.fromkeys(check(root))]


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[1]
    found = violations(root)
    print("\n".join(found) or "every arrow points down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
