"""How many instances a node has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hami.observe import NodeStats

from hami_tools.machine import cpus

AUTO = "auto"  # a number that the node learns


def instances_of(batching: Mapping[str, Any], stats: NodeStats | None = None) -> int:
    """Return the number of instances of a node, by the parameters of its scheduling.

    For a node that learns it, this is the number in use, or without statistics the largest possible one.
    """
    number = batching.get("instance_num") or 1
    if number == AUTO:
        return (stats.instances_in_use if stats else None) or math.ceil(cpus())
    return int(number)
