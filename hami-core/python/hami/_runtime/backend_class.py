"""Reads a Python backend class: which parameters, threads and bracket items it declares, and whether that is sound."""

from __future__ import annotations

import inspect
import os
import pathlib
import re
import sys
import types
import typing
from typing import Any

from hami._errors import PluginError
from hami._runtime.backend import Backend, ByteSize, Duration, Key

RESERVED = frozenset({"max", "min", "thread", "non_blocking", "idempotent", "child_count", "children"})
METHODS = frozenset({"init", "forward", "forward_with_dep", "inject_dependency", "close"})
THREADS = ("dedicated", "serialized", "concurrent")
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
}
SUPPORTED = (
    'bool, int, float, str, pathlib.Path, list[str], Literal["a", "b"], hami.Duration, hami.ByteSize, '
    "each also with | None"
)
# What an annotation may mean whose own import is local to a function or kept for type checkers.
_USUAL_NAMES = {
    **{name: getattr(typing, name) for name in ("Annotated", "List", "Literal", "Optional", "Union")},
    **{"Path": pathlib.Path, "Duration": Duration, "ByteSize": ByteSize},
}
_KEY = r"[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*"
_MISSING = object()
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_name(name: object) -> None:
    """Refuse what an expression could not name."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise PluginError(f"{name!r} is not a valid backend name: use letters, digits and _, not starting with a digit")


def describe_class(cls: Any) -> dict[str, Any]:
    """Return what _core.python_class has to know of a class, by its names for that."""
    if not isinstance(cls, type) or not issubclass(cls, Backend):
        raise PluginError(f"a backend is a subclass of hami.Backend, got {_show(cls)}")
    if cls is Backend:
        raise PluginError("hami.Backend is the base class; register a subclass of it")
    if cls.forward is Backend.forward and not hasattr(cls, "forward_with_dep"):
        raise PluginError(f"{_show(cls)} has no method forward(self, batch)")
    _check_methods(cls)
    thread, non_blocking = cls.thread, _flag(cls, "non_blocking")
    if thread not in THREADS:
        raise PluginError(f'{_show(cls)}: thread is "dedicated", "serialized" or "concurrent", got {thread!r}')
    if non_blocking and thread == "dedicated":
        raise PluginError(
            f'{_show(cls)}: non_blocking = True needs thread = "serialized" or "concurrent"; it has "dedicated"'
        )
    names = _names(cls, annotations := _annotations(cls))
    return {
        "doc": _doc(cls),
        "range": _range(cls),
        "params": [_describe_param(cls, names[attribute], attribute, found) for attribute, found in annotations],
        "attributes": {name: attribute for attribute, name in names.items() if name != attribute},
        "thread": thread,
        "non_blocking": non_blocking,
        "idempotent": _flag(cls, "idempotent"),
        "child_count": _child_count(cls),
    }


def _check_methods(cls: type[Backend]) -> None:
    """Refuse what could only fail when a pipe is built or runs."""
    if inspect.iscoroutinefunction(cls.forward) or inspect.isgeneratorfunction(cls.forward):
        kind = "generator" if inspect.isgeneratorfunction(cls.forward) else "coroutine"
        raise PluginError(
            f'{_show(cls)}: forward is a {kind} function; it has to be a plain one, which sets item["result"] of each '
            "item of the batch before it returns"
        )
    if cls.__init__ is object.__init__:
        return
    parameters = inspect.signature(cls.__init__).parameters.values()
    needed = [one.name for one in list(parameters)[1:] if one.default is one.empty and one.kind not in _VARIADIC]
    if needed:
        raise PluginError(
            f"{_show(cls)}.__init__ needs {', '.join(needed)}, and backends are made without arguments; an annotated "
            f"attribute is a parameter, as  {needed[0]}: int = 1"
        )


def _show(thing: object) -> str:
    return thing.__qualname__ if isinstance(thing, type) else repr(thing)


def _doc(cls: type) -> str:
    text: str = cls.__dict__.get("__doc__") or ""
    lines = text.strip().splitlines()
    return "\n".join([lines[0].strip(), *_dedent(lines[1:])]).rstrip() if lines else ""


def _dedent(lines: list[str]) -> list[str]:
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[margin:].rstrip() for line in lines]


def _flag(cls: type, name: str) -> bool:
    value = getattr(cls, name)
    if not isinstance(value, bool):
        raise PluginError(f"{_show(cls)}: {name} is True or False, got {value!r}")
    return value


def _range(cls: type) -> str:
    for name in ("min", "max"):
        value = getattr(cls, name)
        if value is None or callable(value):
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise PluginError(f"{_show(cls)}: {name} is a whole number from 1 on, or a method, got {value!r}")
    least, most = cls.min, cls.max  # type: ignore[attr-defined]
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise PluginError(f"{_show(cls)}: min = {least} is above max = {most}")
    if callable(least) or callable(most):
        return "as its instances declare"
    return f"{least or 1} to {most}" if most else f"{least} or more" if least else ""


def _child_count(cls: type) -> tuple[int, int | None]:
    value = cls.child_count  # type: ignore[attr-defined]
    if isinstance(value, (tuple, list)) and len(value) == 2:
        least, most = value
        if _is_count(least) and (most is None or (_is_count(most) and most >= least)):
            return least, most
    raise PluginError(
        f"{_show(cls)}: child_count is (least, most) bracket items, as (1, 1), or (0, None) for any number,"
        f" got {value!r}"
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _annotations(cls: type) -> list[tuple[str, Any]]:
    """Return (name, annotation) of each parameter, of base classes first; a subclass may redeclare one."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base is Backend or not issubclass(base, Backend):
            continue
        for name, annotation in _own_annotations(base).items():
            if name.startswith("_") or name in RESERVED or _is_class_variable(annotation):
                continue
            if name in METHODS:
                raise PluginError(f"{_show(cls)}: {name} is a method of every backend and cannot be a parameter")
            found[name] = _resolve(cls, base, name, annotation)
    return [(name, annotation) for name, annotation in found.items() if not _is_class_variable(annotation)]


def _own_annotations(base: type) -> dict[str, Any]:
    if sys.version_info >= (3, 14):  # evaluated lazily there, and one bad name must not spoil the others
        import annotationlib

        return annotationlib.get_annotations(base, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(base)


def _is_class_variable(annotation: object) -> bool:
    if isinstance(annotation, str):
        return re.match(r"(\w+\.)*ClassVar\b", annotation) is not None
    return annotation is typing.ClassVar or typing.get_origin(annotation) is typing.ClassVar


def _resolve(cls: type, base: type, name: str, annotation: object) -> object:
    """Evaluate a string annotation as the author's module would."""
    text = annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else annotation
    if not isinstance(text, str):
        return annotation
    module = sys.modules.get(base.__module__)
    try:
        return eval(text, {**_USUAL_NAMES, **(vars(module) if module else {})})
    except Exception as error:
        raise PluginError(
            f'{_show(cls)}: cannot resolve the type "{text}" of parameter "{name}": {error}; use {SUPPORTED}'
        ) from error


def _names(cls: type, annotations: list[tuple[str, Any]]) -> dict[str, str]:
    """Return what users call the parameter that each attribute holds: its own name, or what hami.Key says."""
    names: dict[str, str] = {}
    for attribute, annotation in annotations:
        extras = typing.get_args(annotation)[1:] if typing.get_origin(annotation) is typing.Annotated else ()
        name = next((extra for extra in extras if isinstance(extra, Key)), attribute)
        if isinstance(name, Key) and not re.fullmatch(_KEY, name):
            raise PluginError(
                f'{_show(cls)}: "{name}" is not a valid parameter name: use letters, digits and _, parts by ::'
            )
        if name in names.values():
            raise PluginError(f'{_show(cls)}: parameter "{name}" is declared twice')
        names[attribute] = str(name)
    return names


def _describe_param(cls: type, name: str, attribute: str, annotation: Any) -> dict[str, Any]:
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
        "type": kind,
        "required": default is _MISSING,
        "default": None if default is _MISSING else default,
        "choices": choices,
        "help": help_text,
    }


def _without_help(annotation: Any) -> tuple[Any, str]:
    """Take `Annotated[type, "help"]` apart."""
    if typing.get_origin(annotation) is not typing.Annotated:
        return annotation, ""
    inner, *extras = typing.get_args(annotation)
    return inner, next((extra for extra in extras if isinstance(extra, str) and not isinstance(extra, Key)), "")


def _kind_of(cls: type, name: str, inner: Any, declared: Any) -> tuple[str, list[str]]:
    if typing.get_origin(inner) is typing.Literal:
        values = typing.get_args(inner)
        kinds = {type(value) for value in values}
        if kinds <= {str} or kinds <= {int}:
            return TYPES[kinds.pop()], [str(value) for value in values]
    elif inner in (typing.List, list[str], typing.List[str], list[Any]):  # noqa: UP006 (authors may write so)
        return "list", []
    elif isinstance(inner, type) and inner in TYPES:
        return TYPES[inner], []
    raise _unsupported(cls, name, declared)


def _unsupported(cls: type, name: str, annotation: object) -> PluginError:
    shown = annotation.__qualname__ if isinstance(annotation, type) and not typing.get_args(annotation) else annotation
    return PluginError(f'{_show(cls)}: {shown} is not a valid type for parameter "{name}"; use {SUPPORTED}')
