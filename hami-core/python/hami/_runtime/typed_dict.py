"""hami.TypedDict: a dict with declared keys and types, checked whenever something is written."""

from __future__ import annotations

from hami._errors import DataTypeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from typing_extensions import Self

    from hami._runtime.typed_dict_checks import Key

# Every request may have these, declared or not. `result` is never required: it comes from the pipe.
REQUEST_KEYS = frozenset(
    (
        *("data", "result", "node_name", "event", "request_size", "req_id"),
        *("context", "state", "priority", "deadline", "timeout"),
    )
)


class TypedDict(dict):  # type: ignore[type-arg]
    """Declare the keys of a request, and have every write checked.

        class Detect(hami.TypedDict):
            data: bytes
            boxes: list[int] = []                # optional: filled in where it is not given
            label: NotRequired[str]              # optional: may be absent

        request = Detect(data=jpeg)
        pipe(request)["result"]
        request["boxes"] = "none"                # DataTypeError: key "boxes" takes list[int], got str

    With `class Detect(hami.TypedDict, total=False)` no key of that class is required. Keys that are not declared are
    refused, but for the reserved ones of a request (`result`, `event`, `timeout`, …);
    `extra_items=type` as a class keyword takes them and says what they hold.
    Values are checked when they are written; what changes inside a list afterwards is not seen.
    """

    _keys: dict[str, Key] = {}  # noqa: RUF012 (read, and set by each subclass)
    _extra: Key | None = None

    def __init_subclass__(cls, *, total: bool = True, extra_items: Any = None, **others: Any) -> None:
        super().__init_subclass__(**others)
        from hami._runtime.typed_dict_checks import declared_keys, extra_key

        cls._keys = declared_keys(cls, total=total)
        if extra_items is not None:
            cls._extra = extra_key(cls, extra_items)

    def __new__(cls, *_: Any, **__: Any) -> Self:
        if cls is TypedDict:
            raise DataTypeError("hami.TypedDict is declared by a subclass: class Detect(hami.TypedDict): data: bytes")
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
        """Write several keys; if one of them is refused, none is written."""
        given = dict(items, **more)
        for name, value in given.items():
            self._check(name, value)
        super().update(given)

    def __ior__(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Self:  # type: ignore[override,misc]
        self.update(items)
        return self

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return the value of a key, which is written first if it is absent."""
        if name not in self:
            self[name] = default
        return self[name]

    def __delitem__(self, name: str) -> None:
        self._check_removal(name)
        super().__delitem__(name)

    def pop(self, name: str, *default: Any) -> Any:
        """Remove a key and return its value; required keys stay."""
        self._check_removal(name)
        return super().pop(name, *default)

    def popitem(self) -> tuple[str, Any]:
        """Remove the last key and return it with its value; required keys stay."""
        if self:
            self._check_removal(next(reversed(self)))
        return super().popitem()

    def clear(self) -> None:
        """Remove all keys; refused if one of them is required."""
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
            raise DataTypeError(f"the keys of {type(self).__name__} are str, got {name!r}")
        key = self._keys.get(name)
        if key is None:
            key = self._undeclared(name)
        if key is not None and (got := key.problem(value)):
            raise DataTypeError(f'key "{name}" takes {key.takes}, got {got}')

    def _undeclared(self, name: str) -> Key | None:
        if self._extra is not None or name in REQUEST_KEYS:
            return None if name in REQUEST_KEYS else self._extra
        from hami import _core

        near = _core.did_you_mean(_core.near_names(name, list(self._keys)), quoted=True)
        known = ", ".join(self._keys) or "none"
        raise DataTypeError(f'{type(self).__name__} has no key "{name}"{near}  (its keys: {known})')

    def _check_removal(self, name: object) -> None:
        key = self._keys.get(name) if isinstance(name, str) else None
        if key is not None and key.required and name in self:
            raise DataTypeError(f'key "{name}" of {type(self).__name__} is required; it cannot be removed')
