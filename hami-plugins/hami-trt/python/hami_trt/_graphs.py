"""CUDA graphs of an engine, for one instance: a captured run for each set of input shapes, on fixed memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import hami
from hami_cuda.memory import Block, Graph, Reading

from hami_trt._execution_context import ExecutionContext
from hami_trt._shapes import Shape

MAX_GRAPHS = 16  # of an instance; other shapes run without a graph
_MAX_KNOWN_SHAPES = 1024  # that ran once

_Key = tuple[Shape, ...]  # the shapes of the inputs


class _Captured(NamedTuple):
    """A graph, with the context that it was captured from, which must not change while the graph exists."""

    graph: Graph
    context: ExecutionContext

    def close(self) -> None:
        self.graph.close()
        self.context.close()


class _Memory(NamedTuple):
    """What all graphs of an instance work on, one after the other: blocks for the largest shapes of the profile."""

    activations: Block
    inputs: list[Block]
    outputs: list[Block]

    @property
    def addresses(self) -> list[int]:
        return [each.address for each in (*self.inputs, *self.outputs)]


class Graphs:
    """The graphs of an instance. A run copies its inputs to the fixed memory, and its outputs to new tensors."""

    def __init__(self, context: ExecutionContext, warn: Callable[[str], None]) -> None:
        """Prepare graphs of runs like those of `context`; `warn` logs why there are none, once for each engine."""
        self._like = context
        self._stream = context.stream
        self._engine = context.engine
        self._warn = warn
        self._captured: dict[_Key, _Captured] = {}
        self._known: set[_Key] = set()
        self._memory: _Memory | None = None

    def run(self, inputs: Sequence[Reading]) -> list[hami.Tensor] | None:
        """Run a graph and return new output tensors. The stream of the instance must be entered.

        Returns:
            None if there is no graph for these shapes: the first time, beyond MAX_GRAPHS, or after a failed capture.
        """
        key = tuple(each.shape for each in inputs)
        captured = self._captured.get(key) or self._capture_second_run(key, inputs)
        if captured is None or self._memory is None:
            return None
        self._fill(self._memory, inputs)
        captured.graph.launch()
        return [
            self._stream.copy(block, shape).tensor
            for block, shape in zip(self._memory.outputs, captured.context.output_shapes, strict=True)
        ]

    def close(self) -> None:
        """Free the graphs, whose work must be done."""
        for captured in self._captured.values():
            captured.close()
        self._captured.clear()
        self._memory = None

    def _capture_second_run(self, key: _Key, inputs: Sequence[Reading]) -> _Captured | None:
        if not self._engine.captures or len(self._captured) >= MAX_GRAPHS:
            return None
        if key not in self._known:  # shapes that never come again are not worth a graph
            if len(self._known) < _MAX_KNOWN_SHAPES:
                self._known.add(key)
            return None
        try:
            captured = self._captured[key] = self._capture(key, inputs)
        except (hami.Error, MemoryError, RuntimeError, AttributeError, TypeError) as error:
            self._memory = self._memory if self._captured else None
            if self._engine.stop_captures():
                reason = str(error).splitlines()[0]
                self._warn(f"TensorrtInferTensor: the engine runs without CUDA graphs from now on: {reason}")
            return None
        return captured

    def _capture(self, key: _Key, inputs: Sequence[Reading]) -> _Captured:
        memory = self._memory = self._memory or self._allocate()
        context = self._new_context(memory.activations)
        try:
            context.set_input_shapes(list(key))
            self._check_outputs(context, memory)
            self._fill(memory, inputs)  # the first run, before the capture, reads real data

            def submit(stream: int) -> None:
                context.set_addresses(memory.addresses)
                context.submit(stream)

            return _Captured(self._stream.capture(submit), context)
        except BaseException:
            self._stream.wait()  # the context may still change its profile
            context.close()
            raise

    def _allocate(self) -> _Memory:
        engine, stream = self._engine, self._stream
        activations = stream.empty("uint8", (engine.library.context_bytes(engine.handle),))
        context = self._new_context(activations)
        try:
            largest = [each.max for each in self._like.shapes]
            context.set_input_shapes(largest)
            inputs = zip(engine.inputs, largest, strict=True)
            outputs = zip(engine.outputs, context.output_shapes, strict=True)
            return _Memory(
                activations,
                [stream.empty(port.dtype, shape) for port, shape in inputs],
                [stream.empty(port.dtype, shape) for port, shape in outputs],
            )
        finally:
            stream.wait()  # the context may still change its profile
            context.close()

    def _new_context(self, memory: Block) -> ExecutionContext:
        like = self._like
        return ExecutionContext(
            self._engine, self._stream, like.profile, like.instance, like.owner, memory=memory.address
        )

    def _check_outputs(self, context: ExecutionContext, memory: _Memory) -> None:
        """Reject an output that is larger than that of the largest inputs, for which there is memory."""
        for port, shape, block in zip(self._engine.outputs, context.output_shapes, memory.outputs, strict=True):
            largest = block.tensor.shape
            if math.prod(shape) > math.prod(largest):
                raise hami.RequestError(
                    f'output "{port.name}" is {list(shape)}, larger than {list(largest)} for the largest inputs'
                )

    def _fill(self, memory: _Memory, inputs: Sequence[Reading]) -> None:
        for given, block in zip(inputs, memory.inputs, strict=True):
            given.copy_to(block.address)
