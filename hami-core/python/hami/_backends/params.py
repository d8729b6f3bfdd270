"""Reads the parameters of a Python backend class from its annotations."""

from __future__ import annotations

import inspect
import os
import pathlib
import re
import sys
import types
import typing
from typing import Any

from hami._backends.base import Backend
from hami._errors import PluginError
from hami.types import Alias, ByteSize, Duration, FilePath, Key

TRAITS = frozenset(Backend.__annotations__)
METHODS = frozenset({"init", "forward", "forward_with_dep", "inject_dependency", "close"})
TYPES = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    pathlib.Path: "path",
    os.PathLike: "path",
    list: "list",
    Duration: "duration",
    ByteSize: "bytesize",
    FilePath: "file",
}
SUPPORTED = (
    'bool, int, float, str, pathlib.Path, list[str], Literal["a", "b"], hami.types.Duration, hami.types.ByteSize, '
    "hami.types.FilePath, or one of these | None"
)
# Names that resolve even if the module imports them only inside a function or for type checkers.
_COMMON_NAMES = {
    **{name: getattr(typing, name) for name in ("Annotated", "List", "Literal", "Optional", "Union")},
    **{"Path": pathlib.Path, "Duration": Duration, "ByteSize": ByteSize, "FilePath": FilePath},
}
_PARAMETER_NAME = r"[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*"
_MISSING = object()


def describe_params(cls: type[Backend]) -> dict[str, Any]:
    """Return the arguments `params` and `attributes` of `_core.python_class`."""
    annotations = _annotations(cls)
    names = _names(cls, annotations)
    return {
        "params": [_describe(cls, names[attribute], attribute, found) for attribute, found in annotations.items()],
        "attributes": {name: attribute for attribute, name in names.items() if name != attribute},
    }


def _annotations(cls: type) -> dict[str, Any]:
    """Return the annotation of each parameter by attribute, base classes first. A subclass may redeclare one."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base is Backend or not issubclass(base, Backend):
            continue
        for name, annotation in _own_annotations(base).items():
            if name.startswith("_") or name in TRAITS or _is_class_variable(annotation):
                continue
            if name in METHODS:
                raise PluginError(f"{cls.__qualname__}: {name} is a method of every backend and cannot be a parameter")
            found[name] = _resolve(cls, base, name, annotation)
    return {name: annotation for name, annotation in found.items() if not _is_class_variable(annotation)}


def _own_annotations(base: type) -> dict[str, Any]:
    if sys.version_info >= (3, 14):  # evaluated lazily there; one name that is not defined must not affect the others
        import annotationlib

        return annotationlib.get_annotations(base, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(base)


def _is_class_variable(annotation: object) -> bool:
    if isinstance(annotation, str):
        return re.match(r"(\w+\.)*ClassVar\b", annotation) is not None
    return annotation is typing.ClassVar or typing.get_origin(annotation) is typing.ClassVar


def _resolve(cls: type, base: type, name: str, annotation: object) -> object:
    """Evaluate a string annotation in the module of the class that has it."""
    text = annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else annotation
    if not isinstance(text, str):
        return annotation
    module = sys.modules.get(base.__module__)
    try:
        return eval(text, {**_COMMON_NAMES, **(vars(module) if module else {})})
    except Exception as error:
        raise PluginError(
            f'{cls.__qualname__}: cannot resolve the type "{text}" of parameter "{name}": {error}; use {SUPPORTED}'
        ) from error


def _names(cls: type, annotations: dict[str, Any]) -> dict[str, str]:
    """Return the parameter name of each attribute: the text of its Key, otherwise the name of the attribute."""
    names: dict[str, str] = {}
    declared: set[str] = set()
    for attribute, annotation in annotations.items():
        names[attribute] = str(next((extra for extra in _extras(annotation) if isinstance(extra, Key)), attribute))
        for name in (names[attribute], *_aliases(annotation)):
            if name != attribute and not re.fullmatch(_PARAMETER_NAME, name):
                raise PluginError(
                    f'{cls.__qualname__}: "{name}" is not a valid parameter name: use letters, digits and _, '
                    "and :: between parts"
                )
            if name in declared:
                raise PluginError(f'{cls.__qualname__}: parameter "{name}" is declared twice')
            declared.add(name)
    return names


def _extras(annotation: object) -> tuple[Any, ...]:
    """Return what `Annotated[type, …]` adds to the type."""
    return typing.get_args(annotation)[1:] if typing.get_origin(annotation) is typing.Annotated else ()


def _aliases(annotation: object) -> list[str]:
    return [str(extra) for extra in _extras(annotation) if isinstance(extra, Alias)]


def _describe(cls: type, name: str, attribute: str, annotation: Any) -> dict[str, Any]:
    inner, help_text = _without_help(annotation)
    optional = False
    if typing.get_origin(inner) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(inner) if member is not type(None)]
        optional = len(members) < len(typing.get_args(inner))
        if len(members) != 1:
            raise _unsupported(cls, name, annotation)
        inner, inner_help = _without_help(members[0])
        help_text = help_text or inner_help
    kind, choices = _kind_of(cls, name, inner, annotation)
    default = getattr(cls, attribute, _MISSING)
    if default is _MISSING and optional:
        default = None
    if isinstance(default, os.PathLike):
        default = os.fspath(default)
    return {
        "name": name,
        "aliases": _aliases(annotation),
        "type": kind,
        "required": default is _MISSING,
        "default": None if default is _MISSING else default,
        "choices": choices,
        "help": help_text,
    }


def _without_help(annotation: Any) -> tuple[Any, str]:
    """Split `Annotated[type, "help"]` into the type and the help text."""
    if typing.get_origin(annotation) is not typing.Annotated:
        return annotation, ""
    inner, *extras = typing.get_args(annotation)
    return inner, next((extra for extra in extras if type(extra) is str), "")


def _kind_of(cls: type, name: str, inner: Any, declared: Any) -> tuple[str, list[str]]:
    """Return the parameter type of the core, and the choices of a Literal."""
    if typing.get_origin(inner) is typing.Literal:
        values = typing.get_args(inner)
        kinds = {type(value) for value in values}
        if kinds <= {str} or kinds <= {int}:
            return TYPES[kinds.pop()], [str(value) for value in values]
    elif inner in (typing.List, list[str], typing.List[str], list[Any]):  # noqa: UP006 (older spellings)
        return "list", []
    elif isinstance(inner, type) and inner in TYPES:
        return TYPES[inner], []
    raise _unsupported(cls, name, declared)


def _unsupported(cls: type, name: str, annotation: object) -> PluginError:
    shown = annotation.__qualname__ if isinstance(annotation, type) and not typing.get_args(annotation) else annotation
    return PluginError(f'{cls.__qualname__}: {shown} is not a valid type for parameter "{name}"; use {SUPPORTED}')
