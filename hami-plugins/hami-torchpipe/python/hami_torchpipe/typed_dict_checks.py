"""Turns the annotations of a hami_torchpipe.TypedDict into checks. Imported when the first subclass is declared."""

from __future__ import annotations

import copy
import inspect
import types
import typing
from typing import Any

from hami import DataTypeError

SUPPORTED = "a class, list[…], tuple[…], set[…], frozenset[…], dict[…, …], Literal[…], X | Y, None or Any"
_MISSING = object()
_SEQUENCES = (list, set, frozenset)


class Key:
    """One declared key: the type of its values, and its default."""

    def __init__(self, owner: type, name: str, annotation: Any, *, required: bool, default: Any = _MISSING) -> None:
        self.name = name
        self.annotation = annotation
        _check_support(owner, name, annotation)
        self.takes = show(annotation)
        self.default = default
        self.has_default = default is not _MISSING
        self.required = required and not self.has_default and name != "result"
        if self.has_default and (got := self.mismatch(default)):
            raise DataTypeError(f'{owner.__name__}: key "{name}" takes {self.takes}, but its default is {got}')

    def mismatch(self, value: object) -> str | None:
        """Describe a value that the key does not take; None if it takes the value."""
        return mismatch(value, self.annotation)

    def fresh_default(self) -> Any:
        return copy.copy(self.default)


def declared_keys(cls: type, *, total: bool) -> dict[str, Key]:
    """Return the keys of a class: those of its bases, then its own."""
    keys: dict[str, Key] = {}
    for base in reversed(cls.__mro__[1:]):
        if issubclass(base, dict):
            keys.update(vars(base).get("_keys", {}))
    for name, annotation in _own_annotations(cls).items():
        if annotation is typing.ClassVar or typing.get_origin(annotation) is typing.ClassVar:
            continue
        default = cls.__dict__.get(name, _MISSING)
        if default is not _MISSING:
            delattr(cls, name)  # a key such as `items` must not hide the method
        inner, required = _required(annotation)
        keys[name] = Key(cls, name, inner, required=total if required is None else required, default=default)
    return keys


def extra_key(cls: type, annotation: Any) -> Key:
    """Return the check for undeclared keys."""
    return Key(cls, "extra_items", annotation, required=False)


def _own_annotations(cls: type) -> dict[str, Any]:
    try:
        return inspect.get_annotations(cls, eval_str=True)
    except Exception as error:
        raise DataTypeError(
            f"{cls.__name__}: cannot resolve the types of its keys: {error}; use names that its module defines"
        ) from error


def _required(annotation: Any) -> tuple[Any, bool | None]:
    """Return the type inside Annotated, Required and NotRequired, and whether the key is required; None: not stated."""
    required: bool | None = None
    while True:
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        elif (name := getattr(origin, "_name", None)) in ("Required", "NotRequired"):
            required = name == "Required"
            annotation = typing.get_args(annotation)[0]
        else:
            return annotation, required


def _check_support(owner: type, name: str, annotation: Any) -> None:
    """Reject a type that values cannot be checked against."""
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
    """Return a type as an annotation shows it."""
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


def mismatch(value: object, annotation: Any) -> str | None:
    """Describe a value that is not of a type, or the first wrong item in it; None if the value is of the type."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return None
    if annotation is None:
        return None if value is None else _kind(value)
    if origin in (typing.Union, types.UnionType):
        found = [mismatch(value, member) for member in arguments]
        deeper = [text for text in found if text is not None and text != _kind(value)]
        return None if None in found else (deeper or [_kind(value)])[0]
    if origin is typing.Literal:
        same = any(type(value) is type(choice) and value == choice for choice in arguments)
        return None if same else repr(value)
    if not _is_instance(value, origin or annotation):
        return _kind(value)
    return _inner_mismatch(value, origin, arguments) if arguments else None


def _is_instance(value: object, cls: type) -> bool:
    if cls in (int, float) and isinstance(value, bool):  # although bool is a subclass of int
        return False
    return isinstance(value, (int, float) if cls is float else cls)


def _inner_mismatch(value: Any, origin: Any, arguments: tuple[Any, ...]) -> str | None:
    """Check the items of containers with declared item types; other generic types are checked by their class alone."""
    if origin in _SEQUENCES or (origin is tuple and arguments[-1] is ...):
        return _first_mismatch(value, ((place, item, arguments[0]) for place, item in enumerate(value)), "at")
    if origin is tuple:
        arguments = () if arguments == ((),) else arguments
        if len(value) != len(arguments):
            return f"tuple of {len(value)}"
        return _first_mismatch(
            value, ((place, *pair) for place, pair in enumerate(zip(value, arguments, strict=True))), "at"
        )
    if origin is dict:
        keys = _first_mismatch(value, ((repr(key), key, arguments[0]) for key in value), "as the key")
        return keys or _first_mismatch(value, ((repr(key), item, arguments[1]) for key, item in value.items()), "under")
    return None


def _first_mismatch(value: object, parts: Any, word: str) -> str | None:
    for place, item, annotation in parts:
        if got := mismatch(item, annotation):
            where = f" {word} {place}" if not isinstance(value, (set, frozenset)) else ""
            return f"{_kind(value)} with {got}{where}"
    return None


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__qualname__
