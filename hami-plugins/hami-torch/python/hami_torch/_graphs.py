"""CUDA graphs of a program, one for each captured batch size; a smaller batch is padded to the next size."""

from __future__ import annotations

import bisect
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import hami

from hami_torch import _streams
from hami_torch._device import capture_lock, synchronize
from hami_torch._program import first_line
from hami_torch._rows import merged
from hami_torch._tensor import map_tensors, tensors_of
from hami_torch._torch import torch

_WARM_UP_RUNS = 3  # before a capture, so that libraries choose algorithms and allocate workspaces outside it


def smallest_size_for(sizes: Sequence[int], rows: int) -> int | None:
    """Return the smallest of the sorted `sizes` that is at least `rows`, None if there is none."""
    index = bisect.bisect_left(sizes, rows)
    return sizes[index] if index < len(sizes) else None


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    input: torch.Tensor  # the first rows of the shared input buffer
    output: Any


class Graphs:
    """The captured program of one instance: an input buffer, and for each size a graph that reads its first rows."""

    def __init__(
        self, call: Callable[..., Any], sizes: Sequence[int], example: torch.Tensor, owner: str, module: Any = None
    ) -> None:
        """Capture `call` for each size.

        `example` has the shape and dtype of an input of the largest size and becomes the input buffer. `module` is
        what `call` runs; the tensors that it holds are kept as long as the graphs.
        """
        allocator = torch.cuda.memory.get_allocator_backend()
        if allocator != "native":
            # torch 2.11 aborts the process when a capture fails, and sometimes when graphs are freed.
            raise hami.ConfigError(
                f'{owner}: "graphs" needs torch\'s native allocator, but this process uses {allocator}; remove the '
                'backend from PYTORCH_CUDA_ALLOC_CONF, or remove "graphs"'
            )
        self.sizes = sorted(sizes)
        self._input = example
        self._device = example.device
        self.pads = len(set(self.sizes)) > 1 or self._rows_follow_input(call)
        self._lock = threading.Lock()  # guards the buffers, which one caller uses at a time
        self._captured: dict[int, _Captured] = {}
        # A graph also uses resources of the stream that it was captured on, such as the workspace of cuBLAS. Therefore
        # this stream has no other holder. Graphs are replayed on the stream of the caller.
        self._stream: torch.cuda.Stream | None = _streams.lease(self._device)
        self._pool = torch.cuda.graph_pool_handle()
        self._last_stream: torch.cuda.Stream | None = None  # on which the buffers were used last
        synchronize(self._device)
        self._module_tensors: list[torch.Tensor] = []
        for size in reversed(self.sizes):  # the largest first, because the others fit into its memory
            try:
                self._captured[size] = self._capture(call, size, module, self._stream)
            except Exception as error:
                self._end_failed_capture(self._stream)
                self.close()
                if isinstance(error, torch.cuda.OutOfMemoryError):
                    raise
                raise hami.ConfigError(
                    f"{owner}: the model cannot be captured as a CUDA graph of {size} rows: {first_line(error)}; "
                    'remove "graphs" to run it without CUDA graphs'
                ) from error
        self.pads = self.pads and all(_is_per_row(each.output, size) for size, each in self._captured.items())

    def _rows_follow_input(self, call: Callable[..., Any]) -> bool:
        """Whether outputs have as many rows as the input in a run with one row less than the only size.

        This tells an output per row from a constant that has the captured number of rows by chance.
        """
        rows = self.sizes[0] - 1
        if not rows:
            return False  # there is nothing to pad
        try:
            return _is_per_row(call(self._input[:rows]), rows)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:  # the model takes the captured size only
            return True

    def _capture(self, call: Callable[..., Any], size: int, module: Any, stream: torch.cuda.Stream) -> _Captured:
        rows = self._input[:size]
        with capture_lock, torch.cuda.stream(stream):
            for _ in range(_WARM_UP_RUNS):
                call(rows)
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
                output = call(rows)
            self._module_tensors += _tensors_held_by(module)
        return _Captured(graph, rows, output)

    def _end_failed_capture(self, stream: torch.cuda.Stream) -> None:
        """End a failed capture for torch's allocator and random number generators, which would otherwise stay in it.

        The allocator would not reuse memory that several streams used, and the generators would raise errors.
        """
        for name in ("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"):  # the second in torch 2.3
            if hasattr(torch._C, name):
                with contextlib.suppress(RuntimeError):
                    getattr(torch._C, name)(self._device.index, self._pool)
                break
        with contextlib.suppress(RuntimeError), capture_lock, torch.cuda.stream(stream):
            empty = torch.cuda.CUDAGraph()
            with torch.cuda.graph(empty, stream=stream, capture_error_mode="thread_local"):
                self._input[:1].zero_()

    def fits(self, row_shape: torch.Size, dtype: torch.dtype, rows: int) -> bool:
        """Whether a graph can run this many rows of this shape and dtype.

        A batch is padded only if every output has one row for each input row; otherwise the output would be computed
        over the padding too.
        """
        return (
            (rows <= self.sizes[-1] if self.pads else rows in self._captured)
            and row_shape == self._input.shape[1:]
            and dtype == self._input.dtype
        )

    def run(self, parts: Sequence[torch.Tensor], rows: int) -> Any:
        """Concatenate the parts and run the smallest graph that fits them; the outputs are copies with `rows` rows."""
        size = smallest_size_for(self.sizes, rows)
        assert size is not None, "the caller checks fits()"
        stream = _streams.current_stream(self._device)
        with self._lock:
            if self._last_stream is not None and self._last_stream is not stream:
                stream.wait_stream(self._last_stream)
            self._last_stream = stream
            graph, buffer, output = self._captured[size]
            if size > rows:
                buffer[rows:].zero_()
                buffer = buffer[:rows]
            whole = merged(parts)
            if whole is None and parts[0].dtype == buffer.dtype:
                torch.cat(list(parts), out=buffer)
            else:
                buffer.copy_(torch.cat(list(parts)) if whole is None else whole)  # casts if the dtype differs
            graph.replay()
            return map_tensors(output, lambda tensor: (tensor[:rows] if rows < size else tensor).clone())

    def close(self) -> None:
        """Free the graphs and buffers; a second call does nothing."""
        stream, self._stream = self._stream, None
        if stream is None:
            return
        try:
            synchronize(self._device)
        finally:
            self._captured.clear()
            self._module_tensors.clear()
            del self._input
            _streams.release(stream)


def _is_per_row(output: Any, rows: int) -> bool:
    return all(tensor.ndim and tensor.shape[0] == rows for tensor in tensors_of(output))


def _tensors_held_by(module: Any) -> list[torch.Tensor]:
    """Return the CUDA tensors that a module holds now; its graph reads them, and the module may replace them later."""
    parts = module.modules() if isinstance(module, torch.nn.Module) else ()
    return [tensor for part in parts for tensor in _streams.cuda_tensors_in(vars(part))]
