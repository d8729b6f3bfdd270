"""CapturedModel: CUDA graphs of another library, which the native backend of that name runs without Python."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from hami_tensor import Device

from hami_cuda.memory import _CODES, _CUDA, _check, _DLTensor, _functions

BACKEND = "hami-cuda::CapturedModel"  # its parameters: `model`, a number, and `device`


class Region(NamedTuple):
    """Memory of the other library: where a tensor is. Strides are in elements."""

    address: int
    dtype: str
    shape: Sequence[int]
    strides: Sequence[int]


class CapturedModel:
    """The graphs of a model that read the first rows of one input and write one output each.

    captured = CapturedModel(device, input, pads=True, takes_rows=True, owner="MyModel")
    with captured.using(stream):
        captured.add(graph.raw_cuda_graph_exec(), 8, output)
    self.delegate(BACKEND, model=captured.number, device=str(device))

    The memory and the graphs belong to the caller and must stay valid until `close` returns.

    Args:
        device: The device of the graphs.
        input: The input of the largest graph. Its rows are dense in memory.
        pads: Whether a graph may run with fewer rows than it was captured for; the rest of its input is zero.
        takes_rows: Whether data without the batch axis is one row, whose result has no batch axis either.
        watch_every: One of so many batches of several requests is left to the caller; 0: none.
        owner: Starts the messages of errors.

    Raises:
        hami.RequestError: The rows of the input are not dense.
    """

    def __init__(
        self, device: Device, input: Region, *, pads: bool, takes_rows: bool, watch_every: int = 0, owner: str
    ) -> None:
        self._functions = _functions()
        self._device, self._owner = device, owner
        number = ctypes.c_int64()
        rules = int(pads), int(takes_rows), watch_every
        self._run("open_model", ctypes.byref(self._described(input)), *rules, ctypes.byref(number))
        self.number: int = number.value

    def add(self, graph: int, rows: int, output: Region) -> None:
        """Add a graph, the handle of a CUgraphExec, that runs so many rows; call it inside `using`."""
        self._run("add_graph", self.number, graph, rows, ctypes.byref(self._described(output)))

    @contextmanager
    def using(self, stream: int) -> Iterator[int]:
        """Use the graphs, or their memory, alone, on a stream that is given as a number.

        The value is the number of batches of several requests that ran natively since the last call.
        """
        joined = ctypes.c_int64()
        self._run("enter_model", stream, self.number, ctypes.byref(joined))
        try:
            yield joined.value
        finally:
            self._run("leave_model", stream, self.number)

    def close(self) -> None:
        """Drop the graphs: the native backend leaves all requests to its owner from now on."""
        self._run("close_model", self.number)

    def _described(self, region: Region) -> _DLTensor:
        code, bits = _CODES[region.dtype]
        count = len(region.shape)
        shape, strides = (ctypes.c_int64 * count)(*region.shape), (ctypes.c_int64 * count)(*region.strides)
        return _DLTensor(region.address, _CUDA, self._device.index, count, code, bits, 1, shape, strides)

    def _run(self, function: str, *arguments: object) -> None:
        _check(self._functions, getattr(self._functions, function)(self._device.index, *arguments), self._owner)
