"""Validates a Python backend class and describes it for the core: doc, traits, batch size range and parameters."""

from __future__ import annotations

import inspect
import re
from typing import Any

from hami._backends.base import Backend
from hami._backends.params import describe_params
from hami._errors import PluginError

THREADS = ("dedicated", "serialized", "concurrent", "process")
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_name(name: object) -> None:
    """Raise PluginError if an expression cannot contain this name."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise PluginError(f"{name!r} is not a valid backend name: use letters, digits and _, not starting with a digit")


def describe_class(cls: Any) -> dict[str, Any]:
    """Return the arguments of `_core.python_class` that describe a class; raise PluginError if the class is invalid."""
    if not isinstance(cls, type) or not issubclass(cls, Backend):
        shown = cls.__qualname__ if isinstance(cls, type) else repr(cls)
        raise PluginError(f"a backend must be a subclass of hami.Backend, got {shown}")
    if cls is Backend:
        raise PluginError("hami.Backend is the base class; register a subclass of it")
    if cls.forward is Backend.forward and not hasattr(cls, "forward_with_dep"):
        raise PluginError(f"{cls.__qualname__} has no method forward(self, batch)")
    _check_forward(cls)
    _check_constructor(cls)
    return {
        "doc": inspect.cleandoc(cls.__dict__.get("__doc__") or "").strip(),
        "range": _range(cls),
        **describe_params(cls),
        "thread": _thread(cls),
        "non_blocking": _flag(cls, "non_blocking"),
        "idempotent": _flag(cls, "idempotent"),
        "lightweight": _flag(cls, "lightweight"),
        "instances_on_device": _instances_on_device(cls),
        "by_device": _by_device(cls),
        "outlines_items": _flag(cls, "outlines_items"),
        "child_count": _child_count(cls),
    }


def _check_forward(cls: type[Backend]) -> None:
    """Reject a `forward` that returns before it has set the results."""
    for kind, matches in (
        ("a coroutine", inspect.iscoroutinefunction),
        ("an asynchronous generator", inspect.isasyncgenfunction),
    ):
        if matches(cls.forward):
            raise PluginError(
                f"{cls.__qualname__}: forward is {kind} function; it must be a plain function that sets "
                'item["result"] of each item of the batch before it returns, or a generator that yields parts'
            )


def _check_constructor(cls: type[Backend]) -> None:
    if cls.__init__ is object.__init__:
        return
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    required = [one.name for one in parameters if one.default is one.empty and one.kind not in VARIADIC]
    if required:
        raise PluginError(
            f"{cls.__qualname__}.__init__ requires {', '.join(required)}, but backends are created without arguments; "
            f"declare parameters as annotated attributes, such as  {required[0]}: int = 1"
        )


def _thread(cls: type[Backend]) -> str:
    thread: object = cls.thread
    if thread not in THREADS:
        raise PluginError(
            f'{cls.__qualname__}: thread must be "dedicated", "serialized", "concurrent" or "process", got {thread!r}'
        )
    if thread == "process" and cls.request_cost is not None:
        raise PluginError(f'{cls.__qualname__}: thread = "process" excludes request_cost; set it as a key of the node')
    for name in ("non_blocking", "lightweight"):
        if thread in ("dedicated", "process") and _flag(cls, name):
            raise PluginError(
                f'{cls.__qualname__}: {name} = True requires thread = "serialized" or "concurrent"; '
                f'the class has "{thread}"'
            )
    return str(thread)


def _by_device(cls: type[Backend]) -> bool:
    by_device = _flag(cls, "by_device")
    if by_device and (cls.non_blocking or cls.child_count != (0, 0)):
        raise PluginError(f"{cls.__qualname__}: a class with by_device = True is not non_blocking and has no brackets")
    return by_device


def _instances_on_device(cls: type[Backend]) -> int:
    count: object = cls.instances_on_device
    if not isinstance(count, int) or isinstance(count, bool) or count < 1 or (count > 1 and not cls.lightweight):
        raise PluginError(
            f"{cls.__qualname__}: instances_on_device must be an int of at least 1, and above 1 only with "
            f"lightweight = True; got {count!r}"
        )
    return count


def _flag(cls: type[Backend], name: str) -> bool:
    value = getattr(cls, name)
    if not isinstance(value, bool):
        raise PluginError(f"{cls.__qualname__}: {name} must be True or False, got {value!r}")
    return value


def _range(cls: type[Backend]) -> str:
    """Return the batch sizes that the class declares, as text; empty if it declares none."""
    limits: dict[str, int | str | None] = {}
    for name in ("min", "max"):
        value = getattr(cls, name)
        if callable(value) or isinstance(value, property):
            return "as its instances declare"
        is_auto = name == "max" and value == "auto"
        if value is not None and not is_auto and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            words = 'an int of at least 1, "auto"' if name == "max" else "an int of at least 1"
            raise PluginError(f"{cls.__qualname__}: {name} must be {words}, a property or a method, got {value!r}")
        limits[name] = value
    least, most = limits["min"], limits["max"]
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise PluginError(f"{cls.__qualname__}: min = {least} is greater than max = {most}")
    return f"{least or 1} to {most}" if most else f"{least} or more" if least else ""


def _child_count(cls: type[Backend]) -> tuple[int, int | None]:
    value: object = cls.child_count
    if isinstance(value, (tuple, list)) and len(value) == 2:
        least, most = value
        if _is_count(least) and (most is None or (_is_count(most) and most >= least)):
            return least, most
    raise PluginError(
        f"{cls.__qualname__}: child_count must be the minimum and maximum number of bracket items, such as (1, 1), "
        f"or (0, None) for any number, got {value!r}"
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
