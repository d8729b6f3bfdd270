"""The types of the dict that `Pipe.describe` returns."""

from __future__ import annotations

from typing import Any, TypedDict

from hami._backends.registration import PYTHON_CLASSES

BackendDescription = TypedDict(
    "BackendDescription",
    {
        "name": str,
        "class": str,
        "distribution": "str | None",
        "params": dict[str, Any],
        "absorbed": bool,
        "children": "list[BackendDescription]",
    },
)
"""One backend: its name as written, its class, its parameters by name, and the backends in its brackets.

`absorbed`: the backend before it does its work, in one step.
"""

MapDescription = TypedDict("MapDescription", {"node": str, "from": str, "to": str})
"""One entry of `map`: the key `from` of the result of `node` becomes the key `to`."""


class PartDescription(TypedDict):
    """The entrypoint of a pipe: its expression, and the backends of the expression."""

    expression: str
    backends: list[BackendDescription]


NodeDescription = TypedDict(
    "NodeDescription",
    {
        "expression": str,
        "backends": list[BackendDescription],
        "batching": dict[str, Any],
        "next": list[str],
        "map": list[MapDescription],
        "or": bool,
        "accept_skipped": bool,
    },
)
"""One node: the backends of one instance, the parameters of its scheduling, and its edges."""


class PipeDescription(TypedDict):
    """A built pipe: its entrypoint, and its nodes by name in the order of the configuration."""

    entrypoint: PartDescription
    nodes: dict[str, NodeDescription]


def uses_python(backend: BackendDescription) -> bool:
    """Return whether a backend, or one in its brackets, is in Python."""
    return backend["class"] in PYTHON_CLASSES or any(map(uses_python, backend["children"]))
