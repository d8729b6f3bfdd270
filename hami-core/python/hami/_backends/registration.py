"""Registers backends: Python classes, and names for expressions."""

from __future__ import annotations

from hami import _core
from hami._errors import ConfigError, PluginError
from hami._text import is_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar, overload

    from hami._backends.base import Backend, Outline

    BackendType = TypeVar("BackendType", bound="type[Backend]")
    Plain = TypeVar("Plain")

PYTHON_CLASSES: dict[str, Any] = {}
"""The backends whose `forward` is in Python, by name: the class, or the object, that was registered last."""

if TYPE_CHECKING:

    @overload
    def register(target: BackendType, /) -> BackendType: ...
    @overload
    def register(target: str, /) -> Callable[[BackendType], BackendType]: ...
    @overload
    def register(target: str, plain: Plain, /) -> Plain: ...


def register(target: Any = None, plain: Any = None, /) -> Any:
    """Register a backend class in this process, under its own name or under a given name.

    >>> @hami.register
    ... class Double(hami.Backend):
    ...     def forward(self, batch):
    ...         for item in batch:
    ...             item["result"] = 2 * item["data"]
    >>> @hami.register("Twofold")
    ... class OtherName(Double):
    ...     pass
    >>> with hami.pipe("S[Double,Twofold]") as pipe:
    ...     pipe({"data": 3})["result"]
    12

    With a name and a second argument, it also takes classes and objects that do not derive from hami.Backend:

    >>> class Triple:
    ...     def init(self, params, options):
    ...         self.unit = params.get("unit", "")
    ...     def forward(self, ios):
    ...         for io in ios:
    ...             io["result"] = f"{3 * io['data']}{self.unit}"
    >>> cls = hami.register("Triple", Triple)
    >>> with hami.pipe({"backend": "Triple", "unit": "ms"}) as pipe:
    ...     pipe({"data": 3})["result"]
    '9ms'

    Such a class is created without arguments. `init(self, params, options)` is optional: `params` is a dict of all keys
    of the node, as text. `max` and `min`, ints or methods, are optional too. An object is used as it is, without
    `init`, by the expressions `Forward[name]` and `name`.

    Registering a name again replaces the class for pipes that are built later.

    Args:
        target: The class, or the name for the class that the decorator is applied to, or for `plain`.
        plain: A class or an object with a method `forward(self, ios)`.

    Returns:
        The class or object, unchanged.

    Raises:
        PluginError: The class is not a valid backend class, or the name is not a valid name.
    """
    if target is None:
        raise PluginError(
            'hami.register takes a subclass of hami.Backend, got none; write @hami.register or @hami.register("Name")'
        )
    if plain is not None:
        return _define_plain(target, plain)
    if isinstance(target, str):
        return lambda cls: _define(cls, target)
    return _define(target, getattr(target, "__name__", ""))


def generate(name: str, expression: str, /, **defaults: Any) -> None:
    """Register a name for an expression in this process.

    >>> hami.generate("Both", "S[Identity,Identity]")
    >>> with hami.pipe("Both") as pipe:
    ...     pipe({"data": 1})["result"]
    1

    A parameter that is given with the name reaches every backend of the expression that declares it. An item in the
    brackets of the name, such as X in `Both[X]`, becomes an item of the last brackets of the expression.

    Args:
        name: The name; letters, digits and `_`.
        expression: The expression that replaces the name.
        defaults: Values of parameters that are not configured.

    Raises:
        PluginError: The name is not a valid name.
        ConfigError: The expression is not valid.
        AlreadyExists: The core has a backend of that name.
    """
    _core.define(make_generated(name, expression, defaults, owner=""))


def _define_plain(name: Any, target: Any) -> Any:
    from hami._backends.base import Backend
    from hami._backends.plain import plain_class

    is_backend = isinstance(target, type) and issubclass(target, Backend)
    _core.define(make_class(target, name, owner="") if is_backend else plain_class(target, name))
    PYTHON_CLASSES[name] = target
    return target


def _define(cls: Any, name: str) -> Any:
    _core.define(make_class(cls, name, owner=""))
    return cls


def make_outlines(items: list[tuple[str, dict[str, Any], list[str]]]) -> tuple[Outline, ...]:
    """Return `Backend.outlines`: the items in brackets as the core describes them, with the classes that they name."""
    return tuple((text, keys, {name: PYTHON_CLASSES.get(name) for name in names}) for text, keys, names in items)


def make_generated(name: str, expression: str, defaults: Mapping[str, Any], *, owner: str) -> _core.BackendClass:
    """Return the core's handle of a name for an expression.

    `owner` is the distribution that registers the name, or "" for this process.
    """
    from hami._backends.description import check_name

    check_name(name)
    if not isinstance(expression, str) or not is_text(expression):
        raise ConfigError(f'the expression of "{name}" must be a str such as "S[A,B]", got {expression!r}')
    _core.print_expression(expression, f'the expression of "{name}"')
    return _core.generated_class(name, expression, owner=owner, defaults=dict(defaults))


def make_class(cls: Any, name: str, *, owner: str, only_checks: bool = False) -> _core.BackendClass:
    """Return the core's handle of a Python class.

    `owner` is the distribution that registers the class, or "" for this process. `only_checks`: the backend of this
    name is native, and the class checks its parameters.
    """
    from hami._backends.description import check_name, describe_class

    description: Mapping[str, Any] = describe_class(cls)
    check_name(name)
    if not only_checks:
        PYTHON_CLASSES[name] = cls
    try:
        return _core.python_class(cls, name, owner=owner, **description)
    except Exception as error:
        raise PluginError(f"{cls.__module__}.{cls.__qualname__} cannot be registered: {error}") from error
