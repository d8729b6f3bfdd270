"""CUDA graphs of a program, one for each captured batch size; a smaller batch is padded to the next size."""

from __future__ import annotations

import bisect
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import hami

from hami_torch import _streams
from hami_torch._device import capture_lock, synchronize
from hami_torch._program import first_line
from hami_torch._rows import merged
from hami_torch._tensor import map_tensors, tensors_of
from hami_torch._torch import torch

if TYPE_CHECKING:
    from hami_cuda.captured import CapturedModel

_WARM_UP_RUNS = 3  # before a capture, so that libraries choose algorithms and allocate workspaces outside it


def smallest_size_for(sizes: Sequence[int], rows: int) -> int | None:
    """Return the smallest of the sorted `sizes` that is at least `rows`, None if there is none."""
    index = bisect.bisect_left(sizes, rows)
    return sizes[index] if index < len(sizes) else None


class Captured(NamedTuple):
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
        self.input = example
        self._takes = example.shape[1:], example.dtype  # also after `close`
        self._device = example.device
        self.pads = len(set(self.sizes)) > 1 or self._rows_follow_input(call)
        self._lock = threading.Lock()  # guards the buffers, which one caller uses at a time
        self.captured: dict[int, Captured] = {}  # by number of rows
        # A graph also uses resources of the stream that it was captured on, such as the workspace of cuBLAS. Therefore
        # this stream has no other holder. Graphs are replayed on the stream of the caller.
        self._stream: torch.cuda.Stream | None = _streams.lease(self._device)
        self._pool = torch.cuda.graph_pool_handle()
        self._last_stream: torch.cuda.Stream | None = None  # on which the buffers were used last
        self._native: CapturedModel | None = None  # the graphs as hami-cuda runs them, with the same buffers
        self._joined = 0  # batches of several requests that hami-cuda ran, since `take_joined`
        synchronize(self._device)
        self._module_tensors: list[torch.Tensor] = []
        for size in reversed(self.sizes):  # the largest first, because the others fit into its memory
            try:
                self.captured[size] = self._capture(call, size, module, self._stream)
            except Exception as error:
                self._end_failed_capture(self._stream)
                self.close()
                if isinstance(error, torch.cuda.OutOfMemoryError):
                    raise
                raise hami.ConfigError(
                    f"{owner}: the model cannot be captured as a CUDA graph of {size} rows: {first_line(error)}; "
                    'remove "graphs" to run it without CUDA graphs'
                ) from error
        self.pads = self.pads and all(_is_per_row(each.output, size) for size, each in self.captured.items())

    @staticmethod
    def are_supported() -> bool:
        """Whether the allocator of this process allows graphs; see __init__."""
        return bool(torch.cuda.memory.get_allocator_backend() == "native")

    def _rows_follow_input(self, call: Callable[..., Any]) -> bool:
        """Whether outputs have as many rows as the input in a run with one row less than the only size.

        This tells an output per row from a constant that has the captured number of rows by chance.
        """
        rows = self.sizes[0] - 1
        if not rows:
            return False  # there is nothing to pad
        try:
            return _is_per_row(call(self.input[:rows]), rows)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:  # the model takes the captured size only
            return True

    def _capture(self, call: Callable[..., Any], size: int, module: Any, stream: torch.cuda.Stream) -> Captured:
        rows = self.input[:size]
        with capture_lock, torch.cuda.stream(stream):
            for _ in range(_WARM_UP_RUNS):
                call(rows)
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
                output = call(rows)
            self._module_tensors += _tensors_held_by(module)
        return Captured(graph, rows, output)

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
                self.input[:1].zero_()

    def fits(self, row_shape: torch.Size, dtype: torch.dtype, rows: int) -> bool:
        """Whether a graph can run this many rows of this shape and dtype.

        A batch is padded only if every output has one row for each input row; otherwise the output would be computed
        over the padding too.
        """
        return (rows <= self.sizes[-1] if self.pads else rows in self.captured) and (row_shape, dtype) == self._takes

    def run(self, parts: Sequence[torch.Tensor], rows: int) -> Any:
        """Concatenate the parts and run the smallest graph that fits them; the outputs are copies with `rows` rows.

        Returns None after `close`.
        """
        size = smallest_size_for(self.sizes, rows)
        assert size is not None, "the caller checks fits()"
        stream = _streams.current_stream(self._device)
        with self._lock, self._alone(stream):
            if self._stream is None:
                return None
            if self._last_stream is not None and self._last_stream is not stream:
                stream.wait_stream(self._last_stream)
            self._last_stream = stream
            graph, buffer, output = self.captured[size]
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

    def share(self, native: CapturedModel) -> None:
        """Use the graphs from now on by turns with hami-cuda, until `close`."""
        with self._lock:
            self._native = native

    def take_joined(self) -> int:
        """Return the number of batches of several requests that hami-cuda has run since the last call."""
        with self._lock:
            joined, self._joined = self._joined, 0
        return joined

    @contextlib.contextmanager
    def _alone(self, stream: torch.cuda.Stream) -> Iterator[None]:
        if self._native is None:
            yield
            return
        with self._native.using(int(stream.cuda_stream)) as joined:
            self._joined += joined
            yield

    def uses_random_numbers(self) -> bool:
        """Whether a replay advances torch's random numbers, which only torch can do."""
        stream = _streams.current_stream(self._device)
        with self._lock, self._alone(stream):
            if self._last_stream is not None and self._last_stream is not stream:
                stream.wait_stream(self._last_stream)
            self._last_stream = stream
            before = torch.cuda.get_rng_state(self._device)
            for each in self.captured.values():
                each.graph.replay()
            return not torch.equal(before, torch.cuda.get_rng_state(self._device))

    def close(self) -> None:
        """Free the graphs and buffers; a second call does nothing."""
        with self._lock:  # no run is between its check and its end
            stream, self._stream = self._stream, None
            native, self._native = self._native, None
        if stream is None:
            return
        try:
            if native is not None:
                native.close()
            synchronize(self._device)
        finally:
            self.captured.clear()
            self._module_tensors.clear()
            del self.input
            _streams.release(stream)


def _is_per_row(output: Any, rows: int) -> bool:
    return all(tensor.ndim and tensor.shape[0] == rows for tensor in tensors_of(output))


def _tensors_held_by(module: Any) -> list[torch.Tensor]:
    """Return the CUDA tensors that a module holds now; its graph reads them, and the module may replace them later."""
    parts = module.modules() if isinstance(module, torch.nn.Module) else ()
    return [tensor for part in parts for tensor in _streams.cuda_tensors_in(vars(part))]
