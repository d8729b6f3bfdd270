"""What the annotations of a hami.TypedDict mean: a check for each key. Imported by the first declaration."""

from __future__ import annotations

import copy
import inspect
import types
import typing
from typing import Any

from hami._errors import DataTypeError
from hami._runtime.typed_dict import TypedDict

SUPPORTED = "a class, list[…], tuple[…], set[…], frozenset[…], dict[…, …], Literal[…], X | Y, None or Any"
_MISSING = object()
_SEQUENCES = (list, set, frozenset)


class Key:
    """One declared key: what it takes, and what stands in for it where it is absent."""

    def __init__(self, owner: type, name: str, annotation: Any, *, required: bool, default: Any = _MISSING) -> None:
        self.name = name
        self.annotation = annotation
        _check_support(owner, name, annotation)
        self.takes = show(annotation)
        self.default = default
        self.has_default = default is not _MISSING
        self.required = required and not self.has_default and name != "result"
        if self.has_default and (got := self.problem(default)):
            raise DataTypeError(f'{owner.__name__}: key "{name}" takes {self.takes}, its default is {got}')

    def problem(self, value: object) -> str | None:
        """Say what was got if it is not what the key takes."""
        return problem(value, self.annotation)

    def fresh_default(self) -> Any:
        return copy.copy(self.default)


def declared_keys(cls: type[TypedDict], *, total: bool) -> dict[str, Key]:
    """Return the keys of a class: those of its bases, then its own."""
    keys: dict[str, Key] = {}
    for base in reversed(cls.__mro__[1:]):
        if issubclass(base, TypedDict):
            keys.update(base._keys)
    for name, annotation in _own_annotations(cls).items():
        if annotation is typing.ClassVar or typing.get_origin(annotation) is typing.ClassVar:
            continue
        default = cls.__dict__.get(name, _MISSING)
        if default is not _MISSING:
            delattr(cls, name)  # a key named `items` must not hide the method
        inner, marked = _required(annotation)
        keys[name] = Key(cls, name, inner, required=total if marked is None else marked, default=default)
    return keys


def extra_key(cls: type, annotation: Any) -> Key:
    return Key(cls, "extra_items", annotation, required=False)


def _own_annotations(cls: type) -> dict[str, Any]:
    try:
        return inspect.get_annotations(cls, eval_str=True)
    except Exception as error:
        raise DataTypeError(
            f"{cls.__name__}: cannot resolve the types of its keys: {error}; use names that its module defines"
        ) from error


def _required(annotation: Any) -> tuple[Any, bool | None]:
    """Take Annotated, Required and NotRequired (of typing or typing_extensions) off; None: not marked."""
    marked: bool | None = None
    while True:
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        elif (name := getattr(origin, "_name", None)) in ("Required", "NotRequired"):
            marked = name == "Required"
            annotation = typing.get_args(annotation)[0]
        else:
            return annotation, marked


def _check_support(owner: type, name: str, annotation: Any) -> None:
    """Refuse at the declaration what no value could be checked against."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal or annotation in (Any, None, ...):
        return
    if origin in (typing.Union, types.UnionType, tuple, dict, *_SEQUENCES):
        for argument in arguments:
            _check_support(owner, name, argument)
    elif not isinstance(origin or annotation, type) or _is_protocol(origin or annotation):
        raise DataTypeError(f'{owner.__name__}: key "{name}" cannot take {show(annotation)}; use {SUPPORTED}')


def _is_protocol(cls: type) -> bool:
    return getattr(cls, "_is_protocol", False) and not getattr(cls, "_is_runtime_protocol", False)


def show(annotation: Any) -> str:
    """Write a type as one would in an annotation."""
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is Any:
        return "Any"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(show, arguments))
    if origin is typing.Literal:
        return " or ".join(map(repr, arguments))
    if isinstance(origin, type) and arguments:
        return f"{origin.__qualname__}[{', '.join('...' if one is ... else show(one) for one in arguments)}]"
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def problem(value: object, annotation: Any) -> str | None:
    """Say what was got if a value is not of a type: `str`, or where inside it the first wrong thing is."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return None
    if annotation is None:
        return None if value is None else _kind(value)
    if origin in (typing.Union, types.UnionType):
        found = [problem(value, member) for member in arguments]
        deeper = [text for text in found if text is not None and text != _kind(value)]
        return None if None in found else (deeper or [_kind(value)])[0]
    if origin is typing.Literal:
        same = any(type(value) is type(choice) and value == choice for choice in arguments)
        return None if same else repr(value)
    if not _is_instance(value, origin or annotation):
        return _kind(value)
    return _inner_problem(value, origin, arguments) if arguments else None


def _is_instance(value: object, cls: type) -> bool:
    if cls in (int, float) and isinstance(value, bool):  # a bool is not a number
        return False
    return isinstance(value, (int, float) if cls is float else cls)


def _inner_problem(value: Any, origin: Any, arguments: tuple[Any, ...]) -> str | None:
    """Check the elements of containers with declared element types; others are checked by class only."""
    if origin in _SEQUENCES or (origin is tuple and arguments[-1] is ...):
        return _first_problem(value, ((place, item, arguments[0]) for place, item in enumerate(value)), "at")
    if origin is tuple:
        arguments = () if arguments == ((),) else arguments
        if len(value) != len(arguments):
            return f"tuple of {len(value)}"
        return _first_problem(
            value, ((place, *pair) for place, pair in enumerate(zip(value, arguments, strict=True))), "at"
        )
    if origin is dict:
        keys = _first_problem(value, ((repr(key), key, arguments[0]) for key in value), "as the key")
        return keys or _first_problem(value, ((repr(key), item, arguments[1]) for key, item in value.items()), "under")
    return None


def _first_problem(value: object, parts: Any, word: str) -> str | None:
    for place, item, annotation in parts:
        if got := problem(item, annotation):
            where = f" {word} {place}" if not isinstance(value, (set, frozenset)) else ""
            return f"{_kind(value)} with {got}{where}"
    return None


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__qualname__
