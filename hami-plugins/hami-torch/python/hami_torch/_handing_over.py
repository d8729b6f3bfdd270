"""A batch onto a guard's stream, and its results off it; the rule is told in _streams.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hami

from hami_torch._rows import rows_of_batch
from hami_torch._streams import (
    arrive,
    current,
    follow,
    forget,
    hold,
    keep,
    let_go,
    on_callers_own,
    on_default,
    tensors_in,
    using,
)
from hami_torch._torch import torch

Wait = Callable[[torch.cuda.Stream], None]  # returns when the work on a stream is done


def run_on(stream: torch.cuda.Stream, batch: list[Any], backend: Any, wait: Wait | None = None) -> None:
    """Run a backend on `stream`, in order with the stream that is current; `wait` is how to wait for the work."""
    if on_callers_own(stream.device):
        with on_default(stream.device):
            run_on(stream, batch, backend, wait)
        return
    outer = current(stream.device)
    rows = rows_of_batch(batch, "data")
    if rows is None:
        come = [tensor for item in batch if "data" in item for tensor in tensors_in(item["data"])]
        arrive(come, stream.device)
    else:
        come = list(tensors_in(rows.whole))
        rows.arrive(stream.device)
    if come:
        follow(stream, outer)
    held: list[Any] = []
    held_outside = hold(held)
    try:
        with using(stream):
            backend.forward(batch)
        hand_over(batch, stream, outer, wait)
    except BaseException:
        keep([come, held], stream)
        raise
    finally:
        hold(held_outside)


def hand_over(batch: list[Any], stream: torch.cuda.Stream, outer: torch.cuda.Stream, wait: Wait | None) -> None:
    """Hand the results of a batch, made on `stream`, over to those who work on `outer`; `wait` as for run_on.

    What the batch came with is handed back too, so this is said also where no result is on the GPU.
    """
    rows = rows_of_batch(batch, "result")
    if rows is None:
        left = [tensor for item in batch for tensor in tensors_in(item.get("result"))]
    else:
        left = list(tensors_in(rows.whole))
        rows.leave()
        if wait:
            hami.scatter(batch, rows.taken_apart())  # while the GPU works; after it, callers would wait for that
    for tensor in left:
        forget(tensor)
    keep(left, outer)
    if wait:
        wait(stream)
    else:
        outer.wait_stream(stream)
    let_go()
