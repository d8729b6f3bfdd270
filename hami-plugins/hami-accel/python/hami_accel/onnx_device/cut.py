"""choose_borders: where a graph is cut into pieces. Pure: it knows numbers of nodes, seconds and bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence

# What a piece costs beside its nodes: one run of a session and one step of the engine, and writing what is live at its
# border and reading it again, with the layout changed (tests/bench/accel.md).
PIECE_S = 50e-6
BYTES_PER_S = 4e9


def choose_borders(seconds: Sequence[float], live_bytes: Sequence[int | None], limit_s: float) -> list[int]:
    """Return the ends of the pieces, the last of which is the number of nodes.

    >>> choose_borders([3, 3, 3, 3], [8, 8, 8, 0], limit_s=6)
    [2, 4]
    >>> choose_borders([3, 3, 3, 3], [8, None, 8, 0], limit_s=6)  # no border after node 2
    [1, 3, 4]

    Args:
        seconds: run time of each node.
        live_bytes: of the tensors that cross the border after each node; None: no border is possible there.
        limit_s: time of a piece. A piece between neighbouring possible borders may take longer.
    """
    count = len(seconds)
    ends = [index + 1 for index in range(count - 1) if live_bytes[index] is not None] + [count]
    starts = [0, *ends[:-1]]
    elapsed = [0.0]
    for one in seconds:
        elapsed.append(elapsed[-1] + one)
    # best[k]: least cost of cutting everything before starts[k], and where the last piece of it starts
    best: list[tuple[float, int]] = [(0.0, -1)]
    for end_index, end in enumerate(ends):
        crossing = live_bytes[end - 1] if end < count else 0
        own = PIECE_S + (crossing or 0) / BYTES_PER_S
        found = (math.inf, -1)
        for start_index in range(end_index, -1, -1):
            too_long = elapsed[end] - elapsed[starts[start_index]] > limit_s
            if too_long and start_index < end_index:
                break
            found = min(found, (best[start_index][0] + own, start_index))
        best.append(found)
    borders = []
    position = len(ends)
    while position > 0:
        borders.append(ends[position - 1])
        position = best[position][1]
    return borders[::-1]
