"""`hami_torchpipe.TypedDict`: a dict with declared keys and types that are checked on every write."""

from __future__ import annotations

from hami import DataTypeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from typing_extensions import Self

    from hami_torchpipe.typed_dict_checks import Key

# Keys that every request may have, declared or not. `result` is never required: the pipe sets it.
REQUEST_KEYS = frozenset(
    (
        *("data", "result", "node_name", "event", "request_size", "req_id"),
        *("context", "state", "priority", "deadline", "timeout"),
    )
)


class TypedDict(dict):  # type: ignore[type-arg]
    """Declare the keys and types of a request; every write is checked.

    >>> class Detect(hami_torchpipe.TypedDict):
    ...     data: bytes
    ...     boxes: list[int] = []
    >>> request = Detect(data=b"jpeg")
    >>> request["boxes"] = "none"
    Traceback (most recent call last):
    hami.DataTypeError: key "boxes" takes list[int], got str

    A key is optional if it has a default, which is filled in, or if its annotation is `NotRequired[…]`. The class
    keyword `total=False` makes every key of the class optional. The reserved keys of a request, such as `result` and
    `timeout`, are always accepted. The class keyword `extra_items=type` accepts other undeclared keys with values of
    that type. A change inside a value, such as an item appended to a list, is not checked.

    Raises:
        DataTypeError: A value has a wrong type, a required key is missing, or a key is not declared.
    """

    _keys: dict[str, Key] = {}  # noqa: RUF012 (each subclass sets its own)
    _extra: Key | None = None

    def __init_subclass__(cls, *, total: bool = True, extra_items: Any = None, **others: Any) -> None:
        super().__init_subclass__(**others)
        from hami_torchpipe.typed_dict_checks import declared_keys, extra_key

        cls._keys = declared_keys(cls, total=total)
        if extra_items is not None:
            cls._extra = extra_key(cls, extra_items)

    def __new__(cls, *_: Any, **__: Any) -> Self:
        if cls is TypedDict:
            raise DataTypeError(
                "hami_torchpipe.TypedDict is a base class; declare a subclass: "
                "class Detect(hami_torchpipe.TypedDict): data: bytes"
            )
        return super().__new__(cls)

    def __init__(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /, **more: Any) -> None:
        given = dict(items, **more)
        for name, key in self._keys.items():
            if name not in given and key.has_default:
                given[name] = key.fresh_default()
        missing = [key for name, key in self._keys.items() if key.required and name not in given]
        if missing:
            lacks = ", ".join(f'"{key.name}" ({key.takes})' for key in missing)
            raise DataTypeError(f"{type(self).__name__} lacks the key{'s' if len(missing) > 1 else ''} {lacks}")
        self.update(given)

    def __setitem__(self, name: str, value: Any) -> None:
        self._check(name, value)
        super().__setitem__(name, value)

    def update(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /, **more: Any) -> None:  # type: ignore[override]
        """Write several keys, or none of them if one is rejected."""
        given = dict(items, **more)
        for name, value in given.items():
            self._check(name, value)
        super().update(given)

    def __ior__(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Self:  # type: ignore[override,misc]
        self.update(items)
        return self

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return the value of a key; write `default` first if the key is absent."""
        if name not in self:
            self[name] = default
        return self[name]

    def __delitem__(self, name: str) -> None:
        self._check_removal(name)
        super().__delitem__(name)

    def pop(self, name: str, *default: Any) -> Any:
        """Remove a key and return its value; raise DataTypeError if the key is required."""
        self._check_removal(name)
        return super().pop(name, *default)

    def popitem(self) -> tuple[str, Any]:
        """Remove the last key and return it with its value; raise DataTypeError if the key is required."""
        if self:
            self._check_removal(next(reversed(self)))
        return super().popitem()

    def clear(self) -> None:
        """Remove all keys; raise DataTypeError if one of them is required."""
        for name in self:
            self._check_removal(name)
        super().clear()

    def copy(self) -> Self:
        """Return a shallow copy of the same class."""
        return type(self)(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"

    def _check(self, name: object, value: object) -> None:
        if not isinstance(name, str):
            raise DataTypeError(f"the keys of {type(self).__name__} must be str, got {name!r}")
        key = self._keys.get(name)
        if key is None:
            key = self._undeclared(name)
        if key is not None and (got := key.mismatch(value)):
            raise DataTypeError(f'key "{name}" takes {key.takes}, got {got}')

    def _undeclared(self, name: str) -> Key | None:
        """Return the check for an undeclared key, None if it takes any value; raise DataTypeError if it is rejected."""
        if name in REQUEST_KEYS:
            return None
        if self._extra is not None:
            return self._extra
        from hami.cli import did_you_mean

        near = did_you_mean(name, self._keys, quoted=True)
        known = ", ".join(self._keys) or "none"
        raise DataTypeError(f'{type(self).__name__} has no key "{name}"{near}  (its keys: {known})')

    def _check_removal(self, name: object) -> None:
        key = self._keys.get(name) if isinstance(name, str) else None
        if key is not None and key.required and name in self:
            raise DataTypeError(f'key "{name}" of {type(self).__name__} is required; it cannot be removed')
