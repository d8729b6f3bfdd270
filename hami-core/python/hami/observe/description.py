"""The types of the dict that `Pipe.describe` returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from hami._backends.registration import PYTHON_CLASSES
from hami.observe.machine import cpus

if TYPE_CHECKING:
    from hami.observe.node_stats import NodeStats

AUTO = "auto"  # a number that the node learns

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


def instances_of(batching: Mapping[str, Any], stats: NodeStats | None = None) -> int:
    """Return the number of instances of a node, by the parameters of its scheduling.

    For a node that learns it, this is the number in use, or without statistics the largest possible one.
    """
    number = batching.get("instance_num") or 1
    if number == AUTO:
        return (stats.instances_in_use if stats else None) or math.ceil(cpus())
    return int(number)


def uses_python(backend: BackendDescription) -> bool:
    """Return whether a backend, or one in its brackets, is in Python."""
    return backend["class"] in PYTHON_CLASSES or any(map(uses_python, backend["children"]))
