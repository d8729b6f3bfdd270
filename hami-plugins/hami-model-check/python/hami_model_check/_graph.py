"""What the walk through an ONNX file records: nodes, calls of local functions, and dependencies between nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Name = bytes
Operator = tuple[Name, Name]  # domain and op_type; of a local function: domain and name


class Refused(Exception):
    """A model that is damaged or exceeds a limit. The text follows the name of the file in messages."""


class Node(NamedTuple):
    """A node of a graph."""

    operator: Operator
    uses: set[Name]  # its inputs, and what its subgraphs use from outside
    outputs: list[Name]


class Use(NamedTuple):
    """How a body uses an operator."""

    times: int
    graph_depth: int  # of the most deeply nested use; 0: not in a subgraph


class Body:
    """The main graph or a local function, with all of its subgraphs."""

    def __init__(self) -> None:
        self.nodes = 0
        self.graph_depth = 0
        self.uses: dict[Operator, Use] = {}

    def add(self, operator: Operator, graph_depth: int) -> None:
        self.nodes += 1
        self.graph_depth = max(self.graph_depth, graph_depth)
        times, deepest = self.uses.get(operator, (0, 0))
        self.uses[operator] = Use(times + 1, max(deepest, graph_depth))


class Size(NamedTuple):
    """The size of a body after its calls of local functions have been inlined."""

    nodes: int
    graph_depth: int
    call_depth: int  # 0: it calls no local function


class Limits(NamedTuple):
    """Limits of a graph after inlining; see OnnxLimits."""

    max_nodes: int
    max_graph_depth: int
    max_call_depth: int


def inlined_size(main: Body, functions: Mapping[Operator, Body], limits: Limits) -> Size:
    """Return the size of the main graph. Raises Refused if it, or any function, exceeds a limit."""
    sizes: dict[Operator, Size] = {}

    def size_of(body: Body, trail: tuple[Operator, ...]) -> Size:
        check_call_depth(len(trail), limits)
        nodes, graph_depth, call_depth = body.nodes, body.graph_depth, 0
        for operator, use in body.uses.items():
            if operator not in functions:
                continue
            if operator in trail:
                raise Refused(f'has a local function "{show(operator)}" that calls itself')
            if operator not in sizes:
                sizes[operator] = size_of(functions[operator], (*trail, operator))
            callee = sizes[operator]
            nodes += use.times * callee.nodes
            graph_depth = max(graph_depth, use.graph_depth + callee.graph_depth)
            call_depth = max(call_depth, callee.call_depth + 1)
        check_nodes(nodes, limits)
        check_graph_depth(graph_depth, limits)
        check_call_depth(call_depth, limits)
        return Size(nodes, graph_depth, call_depth)

    for operator, body in functions.items():
        if operator not in sizes:
            sizes[operator] = size_of(body, (operator,))
    return size_of(main, ())


def check_nodes(count: int, limits: Limits) -> None:
    if count > limits.max_nodes:
        raise Refused(
            f"has more than max_nodes = {limits.max_nodes:,} nodes after its local functions are inlined; simplify the "
            "model or raise max_nodes"
        )


def check_graph_depth(depth: int, limits: Limits) -> None:
    if depth > limits.max_graph_depth:
        raise Refused(
            f"has subgraphs (If, Loop, Scan) nested deeper than max_graph_depth = {limits.max_graph_depth}; simplify "
            "the model or raise max_graph_depth"
        )


def check_call_depth(depth: int, limits: Limits) -> None:
    if depth > limits.max_call_depth:
        raise Refused(
            f"has local functions that call each other deeper than max_call_depth = {limits.max_call_depth}; inline "
            "some of them or raise max_call_depth"
        )


def check_order(nodes: Sequence[Node]) -> set[Name]:
    """Return the names that nodes use and no node provides. Raises Refused if nodes depend on each other in a cycle."""
    provider = {name: index for index, node in enumerate(nodes) for name in node.outputs if name}
    missing: set[Name] = set()
    sorted_already = True
    for index, node in enumerate(nodes):
        for name in node.uses:
            found = provider.get(name)
            if found is None:
                missing.add(name)
            elif found >= index:
                sorted_already = False
    if not sorted_already:
        _check_no_cycle(nodes, provider)
    return missing


def _check_no_cycle(nodes: Sequence[Node], provider: Mapping[Name, int]) -> None:
    """Take away nodes whose inputs are available until none is left."""
    waiting = [sum(name in provider for name in node.uses) for node in nodes]
    users: dict[Name, list[int]] = {}
    for index, node in enumerate(nodes):
        for name in node.uses:
            users.setdefault(name, []).append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    taken = 0
    while ready:
        node = nodes[ready.pop()]
        taken += 1
        for name in set(node.outputs):
            for user in users.get(name, ()):
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
    if taken < len(nodes):
        index = next(index for index, count in enumerate(waiting) if count)
        raise Refused(
            "has nodes that depend on each other in a cycle; one that needs them is node "
            f"{index} ({show(nodes[index].operator)})"
        )


def show(operator: Operator) -> str:
    return ".".join(part.decode("utf-8", "backslashreplace") for part in operator if part)
