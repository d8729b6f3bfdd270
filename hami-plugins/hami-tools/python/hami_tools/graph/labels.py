"""What pictures of a pipe say about a node and an edge: names, settings and numbers as short text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hami.cli import printable

from hami_tools.figures import figure

if TYPE_CHECKING:
    from hami.observe.description import BackendDescription, NodeDescription

MAX_VALUE = 40  # characters of the value of a parameter

# Settings with these values are the defaults and say nothing.
DEFAULTS: dict[str, Any] = {
    "instance_num": 1,
    "batching": "adaptive",
    "batching_timeout": 0.0,
    "max_queue_size": 1024,
    "on_full": "block",
    "aging": 2.0,
    "max_wait": 0.0,
    "reserve": 0,
    "admission": "all",
    "on_batch_error": "isolate",
}
KILO = 1000
UNITS = ("B", "kB", "MB", "GB")
PROBLEMS = ("failed", "rejected", "expired", "cancelled", "retried")


def names_of(backends: Iterable[BackendDescription]) -> str:
    """Return the names of backends as an expression without parameters; `+` joins those that run as one."""
    text = ""
    for backend in backends:
        text += "" if not text else "+" if backend["absorbed"] else ","
        text += printable(backend["name"])
        text += f"[{names_of(backend['children'])}]" if backend["children"] else ""
    return text


def backend_lines(backends: Iterable[BackendDescription], indent: str = "") -> Iterator[str]:
    """Return one line for each backend with the parameters that have a value."""
    for backend in backends:
        given = [
            f"{name}={shortened(value)}" if not name.isdecimal() else shortened(value)
            for name, value in backend["params"].items()
            if value is not None and value != ""
        ]
        params = f"({', '.join(given)})" if given else ""
        fused = "  runs with the backend before it" if backend["absorbed"] else ""
        yield f"{indent}{printable(backend['name'])}{params}{fused}"
        yield from backend_lines(backend["children"], f"{indent}  ")


def shortened(value: Any) -> str:
    """Return a value in one line of limited length."""
    text = " ".join(printable(str(value)).split())
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


def settings_of(node: NodeDescription) -> dict[str, str]:
    """Return the settings of the scheduling that differ from their defaults."""
    settings = {
        name: shortened(value)
        for name, value in node["batching"].items()
        if value is not None and DEFAULTS.get(name) != value
    }
    for name in ("or", "accept_skipped"):
        if node[name]:
            settings[name] = "true"
    return settings


def edge_labels(source: str, target: NodeDescription) -> tuple[str, ...]:
    """Return what an edge maps, such as `boxes -> data`."""
    return tuple(
        f"{printable(entry['from'])} -> {printable(entry['to'])}" for entry in target["map"] if entry["node"] == source
    )


def size_label(size: float) -> str:
    """Return a number of bytes with its unit, with three digits."""
    power = 0
    while size >= KILO and power < len(UNITS) - 1:
        size, power = size / KILO, power + 1
    return f"{figure(size)} {UNITS[power]}"


def statistics_of(stats: Mapping[str, Any]) -> Iterator[str]:
    """Return lines of numbers of a node that has received requests."""
    if not stats.get("submitted"):
        return
    counts = [f"{stats.get('completed', 0):,} completed"]
    counts += [f"{stats[name]:,} {name}" for name in PROBLEMS if stats.get(name)]
    yield ", ".join(counts)
    if batches := stats.get("batches", 0):
        yield f"batch: {stats['batch_items'] / batches:.1f} items, {figure(stats['compute_ms'] / batches)} ms"
    if stats.get("waiting") or stats.get("running"):
        yield f"{stats.get('waiting', 0):,} waiting, {stats.get('running', 0):,} running"


def operators_of(operators: Sequence[str]) -> str:
    """Return the operators of a module in the order of their first use, such as `2 Conv, Relu`."""
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in Counter(operators).items())
