"""Which functions and classes a configuration may call to make a module.

Importing a module and calling a function of it runs code, so a configuration alone never chooses one:
the process has a list.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import hami

VARIABLE = "HAMI_ALLOWED_FACTORIES"
_allowed = {"torch.nn", "torchvision.models"}  # what they define makes modules


def allow_factory(name: str) -> None:
    """Let configurations of this process use a factory.

    `name` is `package.module:name` for one function or class, or `package.module` for everything that the module, or
    one inside it, defines. A module allows its own functions with `hami_torch.allow_factory(__name__)`.
    """
    if not all(part.isidentifier() for part in name.replace(":", ".", 1).split(".")):
        raise ValueError(f'a factory is package.module:name, and a module package.module; got "{name}"')
    _allowed.add(name)


def find(factory: str, owner: str) -> Any:
    """Return what `factory`, package.module:name, names. Raises ConfigError if it is not allowed."""
    module_name, colon, path = factory.partition(":")
    if not colon or not path:
        raise hami.ConfigError(f'{owner}: "factory" must have the form package.module:name, got "{factory}"')
    allowed = _allowed | {entry.strip() for entry in os.environ.get(VARIABLE, "").split(",") if entry.strip()}
    if factory not in allowed and not _is_inside(module_name, allowed):
        raise hami.ConfigError(_refusal(factory, owner, module_name))
    found: Any = importlib.import_module(module_name)
    for part in path.split("."):
        found = getattr(found, part)
    # An attribute of an allowed module may be another module, or a function of one.
    home = getattr(found, "__module__", None)
    if factory not in allowed and not (isinstance(home, str) and _is_inside(home, allowed)):
        raise hami.ConfigError(_refusal(factory, owner, factory, f", which {module_name} does not define,"))
    return found


def _is_inside(module: str, allowed: set[str]) -> bool:
    return any(f"{module}.".startswith(f"{entry}.") for entry in allowed)


def _refusal(factory: str, owner: str, entry: str, why: str = "") -> str:
    return (
        f'{owner}: factory "{factory}"{why} is not allowed: it runs code, which a configuration alone cannot choose. '
        f'Call hami_torch.allow_factory("{entry}") in the program or in its module, or set the environment variable '
        f"{VARIABLE}={entry}"
    )
