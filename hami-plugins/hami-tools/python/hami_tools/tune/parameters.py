"""Parameter: a setting of a node that `hami tune` may change, and the values that it may have."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hami_tools.instances import AUTO
from hami_tools.machine import cpus

if TYPE_CHECKING:
    from hami.observe.description import BackendDescription, NodeDescription, PipeDescription

TIMEOUTS_MS = (0.0, 1.0, 2.0, 5.0, 10.0)  # of batching_timeout
MAX_BATCH = 256
MIN_INSTANCES = 4  # tried on small machines too: an instance may wait for a device

Setting = tuple[str, str]  # node and key
Settings = dict[Setting, Any]


@dataclass(frozen=True)
class Parameter:
    """A setting, its present value, and the numbers that it may have, in ascending order."""

    node: str
    key: str
    value: Any
    values: tuple[Any, ...]

    @property
    def setting(self) -> Setting:
        """The node and the key."""
        return self.node, self.key

    def neighbours(self, value: Any) -> list[Any]:
        """Return the next larger and the next smaller value; for "auto", the number in the middle."""
        if value == AUTO:
            return [self.values[len(self.values) // 2]]
        at = self.values.index(value)
        return [*self.values[at + 1 : at + 2], *self.values[max(0, at - 1) : at]]


def parameters_of(description: PipeDescription, slo_s: float | None, clients: int) -> list[Parameter]:
    """Return what may be changed, for each node: instances and engine threads first, because they gain most.

    Args:
        description: The description of the pipe.
        slo_s: The objective; no `batching_timeout` above half of it is tried.
        clients: Requests at a time; larger batches cannot fill.
    """
    return [
        parameter
        for name, node in description["nodes"].items()
        if "instance_num" in node["batching"]
        for parameter in _of_node(name, node, slo_s, clients)
    ]


def _of_node(name: str, node: NodeDescription, slo_s: float | None, clients: int) -> Iterator[Parameter]:
    batching = node["batching"]
    cores = math.ceil(cpus())
    instances = batching["instance_num"]
    yield Parameter(name, "instance_num", instances, _with(instances, powers(max(MIN_INSTANCES, 2 * cores))))
    threads = _threads(node["backends"])
    if threads is not None:
        yield Parameter(name, "threads", threads, _with(threads, (0, *powers(cores))))
    largest = batching.get("max")
    if largest == AUTO:
        yield Parameter(name, "max", AUTO, tuple(powers(min(MAX_BATCH, clients))))
    elif isinstance(largest, int) or largest is None:
        most = min(MAX_BATCH, max(clients, largest or 1))
        yield Parameter(name, "max", largest or 1, _with(largest or 1, powers(most)))
    if "batching_timeout" in batching:
        timeout = float(batching["batching_timeout"] or 0.0) * 1e3
        limit = math.inf if slo_s is None else slo_s * 1e3 / 2
        yield Parameter(
            name, "batching_timeout", timeout, _with(timeout, (value for value in TIMEOUTS_MS if value <= limit))
        )


def joint_changes(parameters: Sequence[Parameter]) -> Iterator[Settings]:
    """Yield changes of two settings that gain only together: one instance with one engine thread for each core."""
    instances = {parameter.node: parameter for parameter in parameters if parameter.key == "instance_num"}
    cores = math.ceil(cpus())
    for parameter in parameters:
        if parameter.key == "threads" and parameter.node in instances:
            yield {instances[parameter.node].setting: cores, parameter.setting: 1}


def powers(most: int) -> list[int]:
    """Return the powers of two up to a number, and the number."""
    return sorted({1 << power for power in range(most.bit_length()) if 1 << power <= most} | {most})


def _with(value: Any, values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted({value, *values} - {AUTO}))


def _threads(backends: Iterable[BackendDescription]) -> int | None:
    """Return the parameter `threads` of the first backend that has it."""
    for backend in backends:
        if "threads" in backend["params"]:
            text = str(backend["params"]["threads"] or 0)
            return int(text) if text.isdecimal() else None
        found = _threads(backend["children"])
        if found is not None:
            return found
    return None


def as_text(setting: Setting, value: Any) -> str:
    """Return a value as a configuration contains it."""
    return f"{value:g}" if setting[1] == "batching_timeout" else str(value)
