"""own_part: takes the rows of one request out of the output of a batch, so that a kept result keeps little more."""

from __future__ import annotations

from typing import Any

import numpy as np

_MOST_BYTES_WITH_GIL = 1 << 20  # copying 1 MiB takes about 100 us; a hand-over of the GIL takes longer
_COPIES_WITH_GIL = 500  # elements; NumPy releases the GIL for more


def own_part(output: Any, axis: int | None, start: int, stop: int, rows: int) -> Any:
    """Return rows `start` to `stop` of an output that has `rows` rows along `axis`.

    The result is a view only if it is at least half of the output and contiguous: it then keeps at most twice its own
    memory. Everything else is copied. An output without rows (`axis` None) is copied too, because each caller may
    change its result.
    """
    if axis == 0 and isinstance(output, list):
        return output[start:stop]
    if axis is None:
        return output.copy() if isinstance(output, np.ndarray) else output
    if axis:
        return output[(slice(None),) * axis + (slice(start, stop),)].copy()
    part = output[start:stop]
    if 2 * (stop - start) >= rows:
        return part
    if part.size <= _COPIES_WITH_GIL or part.dtype.hasobject or part.nbytes > _MOST_BYTES_WITH_GIL:
        return part.copy()
    own = np.empty_like(part)
    own.reshape(-1).view(np.uint8).data[:] = part.reshape(-1).view(np.uint8).data
    return own
