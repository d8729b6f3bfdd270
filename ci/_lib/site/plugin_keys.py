"""Reads the backends of the plugins from their sources. Nothing is imported: engines need not be installed.

A Python plugin calls `registry.add("Name", "module:Class")`; the annotated attributes of the class and of its bases are
parameters. A native plugin has `HAMI_REGISTER(Class, "Name", "declarations", "description")`; the attributes of a class
in `registry.add_library(…, check=Class)` are parameters too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..paths import pyproject
from . import declarations
from .declarations import Declaration

# Attributes of hami.Backend that declare traits, not parameters.
TRAITS = frozenset({"max", "min", "thread", "non_blocking", "idempotent", "lightweight", "child_count", "children"})
TYPES = {"Path": "path", "Duration": "duration", "ByteSize": "bytesize"}
_REGISTER = re.compile(r"HAMI_REGISTER\((.*?)\);", re.DOTALL)
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')


class Backend(NamedTuple):
    """A backend of a plugin, and its parameters."""

    name: str
    summary: str
    parameters: list[Declaration]


def every(root: Path) -> dict[str, list[Backend]]:
    """Return the backends of each plugin, sorted by name."""
    folders = sorted(file.parent for file in (root / "hami-plugins").glob("*/pyproject.toml"))
    return {folder.name: of_plugin(folder) for folder in folders}


def of_plugin(folder: Path) -> list[Backend]:
    """Return the backends that a plugin registers; fail if its metadata name one that no source registers."""
    names = pyproject(folder)["project"].get("entry-points", {}).get("hami.backends", {})
    found = {backend.name: backend for backend in [*python_backends(folder), *native_backends(folder)]}
    for name in names:
        if name not in found:
            raise ValueError(f'{folder.name} declares the backend "{name}", and no source registers it')
    return [found[name] for name in sorted(found)]


def native_backends(folder: Path) -> Iterator[Backend]:
    """Yield what HAMI_REGISTER declares in the C++ sources."""
    for file in sorted((folder / "src").glob("**/*.cpp")):
        for arguments in _REGISTER.findall(file.read_text("utf-8")):
            _, *texts = _arguments(arguments)
            name, parameters, doc = (*texts, "", "")[:3]
            declared = declarations.every(parameters)
            keys = {declaration.key for declaration in declared}
            more = [declaration for declaration in check_parameters(folder) if declaration.key not in keys]
            yield Backend(name, _summary(doc), declared + more)


def check_parameters(folder: Path) -> list[Declaration]:
    """Return the parameters of the class that checks the native backends of a plugin."""
    for module in plugin_modules(folder):
        calls = [node for node in ast.walk(module.tree) if isinstance(node, ast.Call)]
        for call in calls:
            for keyword in call.keywords:
                if keyword.arg == "check" and ast.unparse(call.func).endswith(".add_library"):
                    return _backend("check", module, ast.unparse(keyword.value)).parameters
    return []


def plugin_modules(folder: Path) -> list[Module]:
    groups = pyproject(folder)["project"].get("entry-points", {}).get("hami", {})
    return [Module.load(group, folder / "python") for group in groups.values()]


def _arguments(text: str) -> list[str]:
    """Return the arguments of a macro; adjacent string literals are one argument, without its quotes."""
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|,|[^",\s]+', text)
    arguments = [""]
    for token in tokens:
        if token == ",":
            arguments.append("")
        else:
            literal = _LITERAL.fullmatch(token)
            arguments[-1] += literal[1].replace("\\n", "\n").replace('\\"', '"') if literal else token
    return arguments


def python_backends(folder: Path) -> Iterator[Backend]:
    """Yield what the plugin module registers."""
    sources = folder / "python"
    for module in plugin_modules(folder):
        for call in ast.walk(module.tree):
            method = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
            if not isinstance(call, ast.Call) or method not in ("add", "generate") or len(call.args) != 2:
                continue
            name, target = (module.value(argument) for argument in call.args)
            if method == "generate":
                yield Backend(name, "Generated from an expression.", [])
            else:
                place, _, cls = target.partition(":")
                yield _backend(name, Module.load(place, sources), cls)


def _backend(name: str, module: Module, cls: str) -> Backend:
    found = module.find_class(cls)
    if found is None:
        raise ValueError(f'the class of the backend "{name}", {cls}, is not in {module.path}')
    parameters = {declaration.key: declaration for declaration in _parameters(*found).values()}
    return Backend(name, _summary(ast.get_docstring(found[1]) or ""), list(parameters.values()))


def _summary(doc: str) -> str:
    return " ".join(doc.partition("\n\n")[0].split())


def _parameters(module: Module, cls: ast.ClassDef) -> dict[str, Declaration]:
    """Return the parameters of a class by attribute, those of its bases first."""
    found: dict[str, Declaration] = {}
    for base in reversed(cls.bases):
        inherited = module.find_class(ast.unparse(base)) if isinstance(base, ast.Name) else None
        found |= _parameters(*inherited) if inherited else {}
    for statement in cls.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            if not name.startswith("_") and name not in TRAITS and "ClassVar" not in ast.unparse(statement.annotation):
                found[name] = _declaration(module, name, statement.annotation, statement.value)
        elif isinstance(statement, ast.Assign):  # another default for a parameter of a base
            for target in statement.targets:
                if isinstance(target, ast.Name) and target.id in found:
                    found[target.id] = found[target.id]._replace(default=module.default(statement.value))
    return found


def _declaration(module: Module, name: str, annotation: ast.expr, value: ast.expr | None) -> Declaration:
    meaning = ""
    annotation = module.resolved(annotation)
    if _is_subscript_of(annotation, "Annotated"):
        annotation, *extras = _items(annotation)
        for extra in extras:
            if isinstance(extra, ast.Call) and ast.unparse(extra.func).endswith("Key"):
                name = module.value(extra.args[0])
            else:
                meaning = module.value(extra)
    type_, values, optional = _type(module, annotation)
    default = None if value is None else module.default(value)
    return Declaration(name, type_, "none" if optional and default is None else default, values, meaning)


def _type(module: Module, annotation: ast.expr) -> tuple[str, str, bool]:
    """Return the name of a type in configurations, the allowed values, and whether it may be None."""
    annotation = module.resolved(annotation)
    if isinstance(annotation, ast.BinOp):
        sides = [annotation.left, annotation.right]
        others = [side for side in sides if not (isinstance(side, ast.Constant) and side.value is None)]
        type_, values, optional = _type(module, others[0])
        return type_, values, optional or len(others) < len(sides)
    if _is_subscript_of(annotation, "Literal"):
        choices = [module.value(item) for item in _items(annotation)]
        return "str", ",".join(choices), False
    if isinstance(annotation, ast.Subscript):
        return _type(module, annotation.value)
    name = ast.unparse(annotation).rpartition(".")[2]
    return TYPES.get(name, name), "", False


def _is_subscript_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Subscript) and ast.unparse(node.value).rpartition(".")[2] == name


def _items(node: ast.expr) -> list[ast.expr]:
    inner = node.slice if isinstance(node, ast.Subscript) else node
    return list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]


class Module:
    """The source of a Python module, the names that its top level binds, and those that it imports anywhere."""

    def __init__(self, path: Path, sources: Path) -> None:
        self.path, self.sources = path, sources
        self.tree = ast.parse(path.read_text("utf-8"))
        self.values: dict[str, ast.expr] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.imports: dict[str, tuple[str, str]] = {}  # name here: module, name there
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.values[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self.values[node.target.id] = node.value
        for found in ast.walk(self.tree):
            if isinstance(found, ast.ImportFrom) and found.module:
                self.imports |= {alias.asname or alias.name: (found.module, alias.name) for alias in found.names}

    @staticmethod
    @cache
    def load(name: str, sources: Path) -> Module:
        """Return the module `name` of a plugin, or of another plugin of the repository."""
        parts = name.split(".")
        for folder in (sources, *sorted(sources.parents[1].glob("*/python"))):
            for path in (folder.joinpath(*parts).with_suffix(".py"), folder.joinpath(*parts, "__init__.py")):
                if path.is_file():
                    return Module(path, folder)
        raise ValueError(f"{sources} has no module {name}")

    def find_class(self, name: str) -> tuple[Module, ast.ClassDef] | None:
        """Return a class by its name here; None for a class of another package."""
        if name in self.classes:
            return self, self.classes[name]
        place = self._place(name)
        return place[0].find_class(place[1]) if place else None

    def resolved(self, node: ast.expr) -> ast.expr:
        """Return what a name at the top level stands for; any other expression as it is."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.resolved(ast.parse(node.value, mode="eval").body)
        if not isinstance(node, ast.Name):
            return node
        if node.id in self.values:
            return self.values[node.id]
        place = self._place(node.id)
        return place[0].resolved(ast.Name(place[1])) if place else node

    def _place(self, name: str) -> tuple[Module, str] | None:
        if name not in self.imports:
            return None
        module, there = self.imports[name]
        try:
            return Module.load(module, self.sources), there
        except ValueError:
            return None

    def value(self, node: ast.expr) -> str:
        """Return the text of a constant expression."""
        node = self.resolved(node) if isinstance(node, ast.Name) else node
        try:
            return str(ast.literal_eval(node))
        except ValueError:
            return ast.unparse(node)

    def default(self, node: ast.expr) -> str:
        """Return a default as a configuration file has it."""
        node = self.resolved(node) if isinstance(node, ast.Name) else node
        try:
            return _in_toml(ast.literal_eval(node))
        except ValueError:
            return ast.unparse(node)


def _in_toml(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_in_toml, value))}]" if value else "[]"
    return str(value)
