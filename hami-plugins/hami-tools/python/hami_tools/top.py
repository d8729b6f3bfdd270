"""The command `hami top`: shows what the pipes of a running process do, also if it is stuck."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hami import ConfigError
from hami.cli import aligned, json_of, print_table, printable
from hami.observe.histogram import Histogram
from hami.observe.node_stats import NodeStats

from hami_tools.instances import instances_of
from hami_tools.live import LivePipe, processes, read

HEADER = ("node", "req/s", "waiting", "running", "batch", "busy", "p99 ms")
CLEAR = "\x1b[H\x1b[J"  # of a terminal


def top(arguments: argparse.Namespace) -> int:
    """Show a process once or repeatedly; without a process, list those that can be shown."""
    if arguments.pid is None:
        return _list(arguments)
    before = read(arguments.pid)
    while True:
        time.sleep(arguments.interval)
        after = read(arguments.pid)
        shown = [_compared(pipe, _earlier(before, pipe)) for pipe in after]
        if arguments.json:
            print(json_of({"pid": arguments.pid, "pipes": shown}), flush=True)
        else:
            _print(arguments.pid, shown)
        if arguments.once:
            return 0
        before = after


def _list(arguments: argparse.Namespace) -> int:
    found = [{"pid": pid, "command": _command(pid)} for pid in processes()]
    if arguments.json:
        print(json_of({"processes": found}))
        return 0
    if not found:
        raise ConfigError("no process of this user has an open pipe")
    print_table([[str(each["pid"]), str(each["command"])] for each in found], ("pid", "command"))
    return 0


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    return printable(" ".join(words).strip())


def _earlier(before: list[LivePipe], pipe: LivePipe) -> LivePipe | None:
    """Return the earlier state of a pipe: the state of a pipe that was built at the same time."""
    same = [each for each in before if each.label == pipe.label]
    nearest = min(same, key=lambda each: abs(pipe.uptime_s - each.uptime_s), default=None)
    return nearest if nearest is not None and nearest.stats.keys() == pipe.stats.keys() else None


def _compared(pipe: LivePipe, before: LivePipe | None) -> dict[str, Any]:
    """Return the figures of a pipe since its earlier state, or since it was built."""
    nodes = {name: _node(pipe, before, name) for name in pipe.stats}
    return {
        "label": pipe.label,
        "uptime_s": pipe.uptime_s,
        "nodes": nodes,
        "threads": [vars(thread) for thread in pipe.threads],
    }


def _instances(pipe: LivePipe, node: str, stats: NodeStats) -> int:
    described = pipe.description["nodes"].get(node, {})
    return instances_of(described.get("batching", {}), stats)


def _busy(pipe: LivePipe, before: LivePipe | None, node: str, seconds: float) -> float:
    """Return the share of the time in which the instances of a node ran, with the batches that still run."""
    end, start = (
        each.stats[node].compute_ms + each.running_ms.get(node, 0.0) if each else 0.0 for each in (pipe, before)
    )
    busy = _rate(end - start, seconds * 1000 * _instances(pipe, node, pipe.stats[node]))
    return min(1.0, max(0.0, busy))  # a batch that ends while it is read may be counted twice, or not at all


def _node(pipe: LivePipe, earlier: LivePipe | None, name: str) -> dict[str, Any]:
    after, before = pipe.stats[name], earlier.stats[name] if earlier else NodeStats({})
    seconds = after.uptime_s - before.uptime_s
    batches = after.batches - before.batches
    rows: dict[str, Any] = {
        "per_second": _rate(after.completed - before.completed, seconds),
        "waiting": after.waiting,
        "running": after.running,
        "batch": (after.batch_items - before.batch_items) / batches if batches > 0 else None,
        "busy": _busy(pipe, earlier, name, seconds),
        "p99_ms": _p99(after.latency_ms, before.latency_ms),
    }
    lanes = {
        name: {
            "per_second": _rate(lane.completed - before.lanes[name].completed, seconds),
            "waiting": lane.waiting,
            "running": lane.running,
            "p99_ms": _p99(lane.latency_ms, before.lanes[name].latency_ms),
        }
        for name, lane in after.lanes.items()
    }
    if policy := after.policy.as_dict():
        rows["policy"] = policy
    if any(after.lanes[name].submitted for name in ("urgent", "high")):
        rows["lanes"] = lanes
    return rows


def _p99(after: Histogram, before: Histogram) -> float | None:
    recorded = after - before
    return recorded.p99 if recorded else None


def _rate(count: float, time: float) -> float:
    return count / time if time > 0 else 0.0


def _print(pid: int, pipes: list[dict[str, Any]]) -> None:
    lines = list(_lines(pid, pipes))
    if sys.stdout.isatty():
        size = shutil.get_terminal_size()
        lines = [line[: size.columns] for line in lines[: max(1, size.lines - 1)]]
        print(CLEAR, end="")
    print("\n".join(lines), flush=True)


def _lines(pid: int, pipes: list[dict[str, Any]]) -> Iterator[str]:
    for pipe in pipes:
        named = f" of {printable(pipe['label'])}" if pipe["label"] else ""
        yield f"process {pid}, pipe{named} open for {pipe['uptime_s']:.0f} s"
        rows: list[tuple[str, ...]] = [HEADER]
        for name, node in pipe["nodes"].items():
            rows.append(_row(name, node))
            rows += [_row(f"  {lane}", counts) for lane, counts in node.get("lanes", {}).items()]
        yield from aligned(rows)
        for name, node in pipe["nodes"].items():
            if policy := node.get("policy"):
                yield f"policy of {printable(name)}: {', '.join(_decisions(policy))}"
        for each in pipe["threads"]:
            place = f"{each['node']} / {each['backend']}"
            yield f"thread {each['thread']} {_thread_name(pid, each['thread'])}: {place} for {each['seconds']:.1f} s"


def _decisions(policy: dict[str, Any]) -> Iterator[str]:
    """Describe what the batching policy of a node has decided."""
    if size := policy.get("target_batch_size"):
        yield f"target batch size {size}"
    if (waits := policy.get("return_waits")) is not None:
        gain = policy.get("return_wait_gain")
        yield f"return waits {'on' if waits else 'off'}" + ("" if gain is None else f" (latency {-gain:+.1%})")
    if instances := policy.get("instances_in_use"):
        yield f"instances in use {instances}"
    if trial := policy.get("trial"):
        yield f"trying {trial.replace('_', ' ')}"
    if (padding := policy.get("padding")) is not None:
        yield f"padding {padding:.0%}, cost {policy['batch_cost']:.0f} a batch, {policy['cost_per_second']:.0f} a s"
    if policy.get("capped"):
        yield "high traffic caps batches"


def _row(name: str, node: dict[str, Any]) -> tuple[str, ...]:
    def shown(key: str, form: str) -> str:
        value = node.get(key)
        return "-" if value is None else format(value, form)

    return (
        printable(name),
        shown("per_second", ".1f"),
        shown("waiting", "d"),
        shown("running", "d"),
        shown("batch", ".1f"),
        shown("busy", ".0%"),
        shown("p99_ms", ".2f"),
    )


def _thread_name(pid: int, thread: int) -> str:
    try:
        return printable(Path(f"/proc/{pid}/task/{thread}/comm").read_text("utf-8", "replace").strip())
    except OSError:
        return "(ended)"
