"""Move a batch onto a guard's stream and its results off it, by the ordering rule in _streams.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hami_torch._rows import rows_of_batch
from hami_torch._streams import (
    clear_stream_mark,
    cuda_tensors_in,
    current_stream,
    drop_held_inputs,
    is_on_foreign_stream,
    record_use,
    swap_held_inputs,
    use_default_stream,
    use_stream,
    wait_for_inputs,
    wait_for_stream,
)
from hami_torch._torch import torch
from hami_torch._types import Batch, Forwards

HostWait = Callable[[torch.cuda.Stream], None]  # blocks the CPU until the work on the stream is done


def run_on_stream(
    stream: torch.cuda.Stream, batch: Batch, backend: Forwards, host_wait: HostWait | None = None
) -> None:
    """Run a backend on `stream`, ordered with the stream that is current now.

    With `host_wait` the CPU waits for the results; without it the current stream does.
    """
    if is_on_foreign_stream(stream.device):
        with use_default_stream(stream.device):
            run_on_stream(stream, batch, backend, host_wait)
        return
    outer = current_stream(stream.device)
    rows = rows_of_batch(batch, "data")
    if rows is None:
        inputs = [tensor for item in batch if "data" in item for tensor in cuda_tensors_in(item["data"])]
        wait_for_inputs(inputs, stream.device)
    else:
        inputs = list(cuda_tensors_in(rows.tensor))
        rows.wait_for_inputs(stream.device)
    if inputs:
        wait_for_stream(stream, outer)
    held: list[Any] = []
    outer_held = swap_held_inputs(held)
    try:
        with use_stream(stream):
            backend.forward(batch)
        hand_off_results(batch, stream, outer, host_wait)
    except BaseException:
        record_use([inputs, held], stream)
        raise
    finally:
        swap_held_inputs(outer_held)


def hand_off_results(
    batch: Batch, stream: torch.cuda.Stream, outer: torch.cuda.Stream, host_wait: HostWait | None
) -> None:
    """Order the results of a batch, made on `stream`, with the stream `outer`.

    Call it also if no result is on the GPU: it releases the inputs that were held for the batch.
    """
    rows = rows_of_batch(batch, "result")
    if rows is None:
        results = [tensor for item in batch for tensor in cuda_tensors_in(item.get("result"))]
    else:
        results = list(cuda_tensors_in(rows.tensor))
        if host_wait:  # the parts are made while the GPU works: after the wait, callers would wait for them
            with use_stream(stream):
                rows.wait_for_inputs(stream.device)
                rows.stream_handle = int(stream.cuda_stream)
                results += cuda_tensors_in(rows.parts())
        rows.clear_stream_mark()
    for tensor in results:
        clear_stream_mark(tensor)
    record_use(results, outer)
    if host_wait:
        host_wait(stream)
    else:
        outer.wait_stream(stream)
    drop_held_inputs()
