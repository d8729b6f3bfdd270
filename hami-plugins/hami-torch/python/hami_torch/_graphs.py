"""CUDA graphs of a program, one for each captured batch size; a batch is padded to the next one."""

from __future__ import annotations

import bisect
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import hami

from hami_torch import _streams
from hami_torch._device import capturing, synchronize
from hami_torch._program import first_line
from hami_torch._rows import whole_of
from hami_torch._tensor import each_tensor, flat
from hami_torch._torch import torch

_WARM_UPS = 3  # runs before a capture: libraries choose their algorithms and take their workspaces there


def next_size(sizes: Sequence[int], rows: int) -> int | None:
    """Return the smallest of the sorted `sizes` that holds `rows`, None if none does."""
    at = bisect.bisect_left(sizes, rows)
    return sizes[at] if at < len(sizes) else None


class Graphs:
    """The captured program of one instance: a buffer for the input, and a graph for each size that reads its start."""

    def __init__(
        self, call: Callable[..., Any], sizes: Sequence[int], example: torch.Tensor, owner: str, module: Any = None
    ) -> None:
        """`example` has as many rows as the largest size, its values do not matter; `call` runs the `module`."""
        allocator = torch.cuda.memory.get_allocator_backend()
        if allocator != "native":
            # torch 2.11 ends the process when a capture fails, and at times when graphs are freed.
            raise hami.ConfigError(
                f'{owner}: "graphs" need torch\'s native allocator, and this process uses {allocator}: take it out of '
                'PYTORCH_CUDA_ALLOC_CONF, or leave "graphs" out'
            )
        self.sizes = sorted(sizes)
        self._input = example
        self._pads = len(set(self.sizes)) > 1 or self._follows(call)
        self._lock = threading.Lock()  # guards the buffers: concurrent callers take turns
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor, Any]] = {}  # with input and output
        # What a graph reads and writes besides, cuBLAS's workspace for one, belongs to the stream of its capture:
        # so that is nobody else's. It is replayed on the stream of the caller.
        self._stream = _streams.lease(example.device)
        self._pool = torch.cuda.graph_pool_handle()
        self._last: torch.cuda.Stream | None = None  # where the buffers were used last
        synchronize(example.device)
        self._kept: list[torch.Tensor] = []
        for size in reversed(self.sizes):  # the largest first, the others fit into its memory
            try:
                self._graphs[size] = self._capture(call, size, module)
            except Exception as error:
                self._end_broken_capture()
                self.close()
                if isinstance(error, torch.cuda.OutOfMemoryError):
                    raise
                raise hami.ConfigError(
                    f"{owner}: the model cannot be captured as a CUDA graph of {size} rows: {first_line(error)}; "
                    'leave "graphs" out to run it without'
                ) from error
        self._pads = self._pads and all(_is_per_row(output, size) for size, (*_, output) in self._graphs.items())

    def _follows(self, call: Callable[..., Any]) -> bool:
        """Whether outputs may be per row, as far as a run with fewer rows tells: a constant has as many by chance."""
        rows = self.sizes[0] - 1
        if not rows:
            return False  # and nothing to pad
        try:
            return _is_per_row(call(self._input[:rows]), rows)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:  # it takes the captured size only
            return True

    def _capture(
        self, call: Callable[..., Any], size: int, module: Any
    ) -> tuple[torch.cuda.CUDAGraph, torch.Tensor, Any]:
        given = self._input[:size]
        with capturing, torch.cuda.stream(self._stream):
            for _ in range(_WARM_UPS):
                call(given)
            self._stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                output = call(given)
            self._kept += _tensors_of(module)
        return graph, given, output

    def _end_broken_capture(self) -> None:
        """End a capture that failed for torch's allocator and random generators too, which were left in it.

        The allocator would reclaim no memory that several streams used, the generators would refuse to work.
        """
        for name in ("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"):  # the second in torch 2.3
            if hasattr(torch._C, name):
                with contextlib.suppress(RuntimeError):
                    getattr(torch._C, name)(self._input.device.index, self._pool)
                break
        with contextlib.suppress(RuntimeError), capturing, torch.cuda.stream(self._stream):
            empty = torch.cuda.CUDAGraph()
            with torch.cuda.graph(empty, stream=self._stream, capture_error_mode="thread_local"):
                self._input[:1].zero_()

    def fits(self, row_shape: torch.Size, dtype: torch.dtype, rows: int) -> bool:
        """Whether there is a graph for so many rows of that shape and dtype.

        Where an output is not per row a batch is not padded: the output would be one of the padding too.
        """
        buffer = self._input
        return (
            (rows <= self.sizes[-1] if self._pads else rows in self._graphs)
            and row_shape == buffer.shape[1:]
            and dtype == buffer.dtype
        )

    def run(self, parts: Sequence[torch.Tensor], rows: int) -> Any:
        """Gather the parts and run the graph of the next size; the outputs have `rows` rows and are the caller's."""
        size = next_size(self.sizes, rows)
        assert size is not None, "fits() said so"
        stream = _streams.current(self._input.device)
        with self._lock:
            if self._last is not None and self._last is not stream:
                stream.wait_stream(self._last)
            self._last = stream
            graph, given, output = self._graphs[size]
            if size > rows:
                given[rows:].zero_()
                given = given[:rows]
            whole = whole_of(parts)
            if whole is None and parts[0].dtype == given.dtype:
                torch.cat(list(parts), out=given)
            else:
                given.copy_(torch.cat(list(parts)) if whole is None else whole)  # cast on the way
            graph.replay()
            return each_tensor(output, lambda tensor: (tensor[:rows] if rows < size else tensor).clone())

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is None:
            return
        try:
            synchronize(self._input.device)
        finally:
            self._graphs.clear()
            self._kept.clear()
            self._input = None
            _streams.give_back(stream)


def _is_per_row(output: Any, rows: int) -> bool:
    return all(tensor.ndim and tensor.shape[0] == rows for tensor in flat(output))


def _tensors_of(module: Any) -> list[torch.Tensor]:
    """Return what a module holds now: a graph reads it, and a module may put others there for the next shape."""
    parts = module.modules() if isinstance(module, torch.nn.Module) else ()
    return [tensor for part in parts for tensor in _streams.tensors_in(vars(part))]
