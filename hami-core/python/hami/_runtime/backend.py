"""The base class of backends written in Python, and `register`, which makes them known to this process."""

from __future__ import annotations

from hami._errors import ConfigError, PluginError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias, TypeVar, overload

    from hami._core import BackendClass, Child, DictView, Request

    BackendType = TypeVar("BackendType", bound="type[Backend]")
    Duration: TypeAlias = float
    ByteSize: TypeAlias = int
else:

    class Duration(float):
        """Annotates a parameter that is a duration: seconds as a float; configurations write "5ms" or "2s"."""

    class ByteSize(int):
        """Annotates a parameter that is a number of bytes; users write 1024, "64MiB" or "2GB"."""


class Key(str):
    """Gives a parameter a name that its attribute cannot have: `most: Annotated[int, hami.Key("max")]`."""

    __slots__ = ()


class Backend:
    """Base class of backends written in Python.

    Annotated class attributes are its declared parameters and hold the configured value before `init` runs:

        @hami.register
        class AddOne(hami.Backend):
            step: int = 1

            def forward(self, batch):
                for item in batch:
                    item["result"] = item["data"] + self.step

    Types: bool, int, float, str, pathlib.Path, list[str], Literal["a", "b"], hami.Duration, hami.ByteSize, and each of
    them `| None`. `Annotated[int, "what it is for"]` adds a help text; hami.Key("max") in it is what users
    write where an attribute cannot have that name. Names that start with `_` are not parameters.
    """

    # How many items one forward takes: numbers, or methods that are asked after init. None: no range declared.
    min: int | Callable[..., int | None] | None = None
    max: int | Callable[..., int | None] | None = None
    # "dedicated": init, forward and close on one thread of its own; "serialized": one call at a time; "concurrent".
    thread: str = "dedicated"
    # True: forward takes a few microseconds and never blocks, so it may run on any caller's thread.
    non_blocking: bool = False
    # False: a batch that failed is not tried again request by request.
    idempotent: bool = True
    # How many bracket items it takes, (least, most); most None: any number. They arrive in `children`.
    child_count: tuple[int, int | None] = (0, 0)
    # The backends in this one's brackets, initialised; set before `init`.
    children: tuple[Child, ...] = ()

    def init(self, options: DictView) -> None:
        """Prepare one instance; `options` is the dict that all backends of this instance share."""

    def forward(self, batch: list[Request]) -> None:
        """Give each request of the batch its `result`, or fail it with item.fail(exception)."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(self, batch)")

    def close(self) -> None:
        """Free what init took; runs once, after the last forward."""


if TYPE_CHECKING:

    @overload
    def register(target: BackendType, /) -> BackendType: ...
    @overload
    def register(target: str, /) -> Callable[[BackendType], BackendType]: ...


def register(target: Any = None, /) -> Any:
    """Make a backend class known in this process, under its own name or under the given one.

        @hami.register
        class AddOne(hami.Backend): ...

        @hami.register("add-one-fast")
        class Fast(hami.Backend): ...

    Registering a name again replaces it for pipes built from then on. Raises PluginError if the class is not sound.
    """
    if target is None:
        raise PluginError(
            'a backend is a subclass of hami.Backend, got none; write @hami.register or @hami.register("Name")'
        )
    if isinstance(target, str):
        return lambda cls: _define(cls, target)
    return _define(target, getattr(target, "__name__", ""))


def generate(name: str, expression: str, /, **defaults: Any) -> None:
    """Make `name` stand for an expression in pipes of this process.

        hami.generate("Thumbnail", "S[DecodeMat,ResizeMat]", width=64, height=64)
        hami.pipe("Thumbnail(width=32)")

    A parameter given where the name is used reaches every backend of the expression that declares it; `defaults` hold
    unless configured. The item in the name's brackets, Thumbnail[X], goes to the last item of the last
    brackets of the expression. Raises ConfigError if `expression` is none, AlreadyExists for a name of the core.
    """
    from hami import _core

    _core.define(make_generated(name, expression, defaults, owner=""))


def _define(cls: Any, name: str) -> Any:
    from hami import _core

    _core.define(make_class(cls, name, owner=""))
    return cls


def make_generated(name: str, expression: str, defaults: Mapping[str, Any], *, owner: str) -> BackendClass:
    """Return the core's handle of a name that stands for an expression; `owner` as for make_class."""
    from hami import _core
    from hami._runtime.backend_class import check_name

    check_name(name)
    if not isinstance(expression, str):
        raise ConfigError(f'"{name}" is generated from an expression in quotes, as "S[A,B]", got {expression!r}')
    _core.print_expression(expression, f'the expression of "{name}"')
    return _core.generated_class(name, expression, owner=owner, defaults=dict(defaults))


def make_class(cls: Any, name: str, *, owner: str) -> BackendClass:
    """Return the core's handle of a Python class that `owner`, a distribution or "" for this process, provides."""
    from hami import _core
    from hami._runtime.backend_class import check_name, describe_class

    description: Mapping[str, Any] = describe_class(cls)
    check_name(name)
    try:
        return _core.python_class(cls, name, owner=owner, **description)
    except Exception as error:
        raise PluginError(f"{cls.__module__}.{cls.__qualname__} cannot be registered: {error}") from error
