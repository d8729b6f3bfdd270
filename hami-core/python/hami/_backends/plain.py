"""Adapts classes and objects that do not derive from hami.Backend but have a method `forward(ios)`."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, cast

from hami import _core
from hami._backends.base import Backend
from hami._backends.description import VARIADIC, check_name, describe_class
from hami._errors import PluginError


class PlainClass(Backend):
    """Runs an object of a plain class. The keys of the node reach its `init` as one dict of texts."""

    params: ClassVar[dict[str, Any]]  # the keys of the node; set before `init`

    def make(self) -> Any:
        """Return the object; a subclass defines this method."""
        raise NotImplementedError

    def init(self, options: Any) -> None:
        self._object = self.make()
        init = getattr(self._object, "init", None)
        if init is not None:
            init({key: as_text(value) for key, value in self.params.items()}, options)

    def forward(self, batch: list[Any]) -> None:
        self._object.forward(batch)

    def close(self) -> None:
        close = getattr(self._object, "close", None)
        if close is not None:
            close()

    @property
    def max(self) -> Any:
        """The maximum batch size that the object declares."""
        return limit_of(self._object, "max")

    @property
    def min(self) -> Any:
        """The minimum batch size that the object declares."""
        return limit_of(self._object, "min")


class PlainInstance(PlainClass):
    """Runs one object of the program, which exists already and outlives the pipe."""

    thread = "serialized"

    def init(self, options: Any) -> None:
        self._object = self.make()

    def close(self) -> None: ...


def plain_class(target: Any, name: Any) -> _core.BackendClass:
    """Return the core's handle of a class or an object that does not derive from hami.Backend."""
    check_name(name)
    is_class = isinstance(target, type)
    adapter = _adapter_of(target, name)
    description = describe_class(adapter)
    return _core.python_class(adapter, name, owner="", **description, takes_all_keys=is_class, is_instance=not is_class)


def _adapter_of(target: Any, name: str) -> type[PlainClass]:
    """Return a backend class for a class or an object with a method `forward(self, ios)`."""
    is_class = isinstance(target, type)
    shown = target.__qualname__ if is_class else f"the object of {type(target).__qualname__}"
    if not callable(getattr(target, "forward", None)):
        raise PluginError(
            f'hami.register("{name}", …) takes a class or an object with a method forward(self, ios), got {shown}'
        )
    if is_class:
        _check_default_constructor(target)
    base = PlainClass if is_class else PlainInstance
    doc = inspect.getdoc(target if is_class else type(target)) or ""
    make = (lambda _: target()) if is_class else (lambda _: target)
    return cast("type[PlainClass]", type(name, (base,), {"__doc__": doc, "__qualname__": name, "make": make}))


def limit_of(target: Any, name: str) -> Any:
    """Return `max` or `min` of an object: an int, or a method that returns one; None if it has neither."""
    value = getattr(target, name, None)
    return value() if callable(value) else value


def as_text(value: object) -> str:
    """Return the value of a key as text; a list as "a,b", a bool as "1" or "0"."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return ",".join(map(as_text, value))
    return str(value)


def _check_default_constructor(cls: type) -> None:
    try:
        parameters = inspect.signature(cls).parameters.values()
    except ValueError:  # a class of an extension module without a signature
        return
    required = [one.name for one in parameters if one.default is one.empty and one.kind not in VARIADIC]
    if required:
        raise PluginError(
            f"{cls.__qualname__}.__init__ requires {', '.join(required)}, but the pipe creates the object without "
            "arguments; give each a default, or register an object"
        )
