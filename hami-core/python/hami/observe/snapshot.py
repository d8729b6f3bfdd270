"""The base of statistics: values that do not change."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Snapshot:
    """A value whose fields are the annotations of its class, and do not change. Equal ones have equal `as_dict`."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: Mapping[str, Any]) -> None:
        for name in type(self).__annotations__:
            vars(self)[name] = self._field(name, values)

    def _field(self, name: str, values: Mapping[str, Any]) -> Any:
        """Return the value of a field, or its default."""
        return values.get(name)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict, for JSON. Values that are None are left out."""
        return {name: value for name in type(self).__annotations__ if (value := getattr(self, name)) is not None}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is a snapshot; {name} cannot be set")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.as_dict() == other.as_dict()
