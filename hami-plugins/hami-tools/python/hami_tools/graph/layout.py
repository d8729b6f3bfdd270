"""Places the nodes of a graph in columns, from left to right, and its edges between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hami_tools.graph.graph import Edge, Graph

COLUMN_GAP = 90.0  # pixels between columns, where the labels of edges are
ROW_GAP = 24.0
MARGIN = 12.0
LANE = 14.0  # height of an edge that passes a column

Size = tuple[float, float]


@dataclass
class Box:
    """A rectangle; of a node, or of an edge that passes its column."""

    width: float
    height: float
    x: float = 0.0
    y: float = 0.0

    @property
    def middle(self) -> float:
        """Return the vertical middle."""
        return self.y + self.height / 2


@dataclass
class Layout:
    """Boxes by the name of the node, the boxes that each edge passes, and the size of the picture."""

    boxes: dict[str, Box]
    passed: dict[tuple[str, str], list[Box]]
    width: float
    height: float


def place(graph: Graph, sizes: Mapping[str, Size], label_width: float) -> Layout:
    """Return the places of nodes of these sizes; edges need `label_width` between columns."""
    columns = _columns(graph)
    boxes = {node.name: Box(*sizes[node.name]) for node in graph.nodes}
    members: list[list[Box]] = [[] for _ in range(max(columns.values(), default=0) + 1)]
    for node in graph.nodes:
        members[columns[node.name]].append(boxes[node.name])
    passed: dict[tuple[str, str], list[Box]] = {}
    for edge in graph.edges:
        between = range(columns[edge.source] + 1, columns[edge.target])
        passed[edge.source, edge.target] = [Box(0.0, LANE) for _ in between]
        for column, box in zip(between, passed[edge.source, edge.target], strict=True):
            members[column].append(box)
    heights = [sum(box.height for box in column) + ROW_GAP * (len(column) - 1) for column in members]
    x, tallest = MARGIN, max(heights, default=0.0)
    for members_here, height in zip(members, heights, strict=True):
        width = max((box.width for box in members_here), default=0.0)
        y = MARGIN + (tallest - height) / 2
        for box in members_here:
            box.x, box.y = x + (width - box.width) / 2, y
            if box.width == 0.0:  # an edge passes the whole column
                box.x, box.width = x, width
            y += box.height + ROW_GAP
        x += width + max(COLUMN_GAP, label_width)
    return Layout(boxes, passed, x - max(COLUMN_GAP, label_width) + MARGIN, tallest + 2 * MARGIN)


def _columns(graph: Graph) -> dict[str, int]:
    """Return the length of the longest path to each node. A comparison of two graphs may contain a cycle."""
    columns = {node.name: 0 for node in graph.nodes}
    edges: list[Edge] = list(graph.edges)
    for _ in graph.nodes:
        moved = False
        for edge in edges:
            if columns[edge.target] <= columns[edge.source] < len(columns) - 1:
                columns[edge.target] = columns[edge.source] + 1
                moved = True
        if not moved:
            break
    used = sorted(set(columns.values()))
    return {name: used.index(column) for name, column in columns.items()}
