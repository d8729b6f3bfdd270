"""An execution context of an engine: runs one batch at a time, with one profile, for one instance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hami
from hami_cuda.memory import Block, InstanceStream, Reading, out_of_memory

from hami_trt._engine import Engine
from hami_trt._shapes import Shape
from hami_trt._tensorrt import first_error


class ExecutionContext:
    """Runs an engine. Its memory has the size that the largest shapes of all profiles need, for every batch.

    Attributes:
        output_shapes: the shapes of the outputs, for the input shapes that were last set.
    """

    def __init__(
        self,
        engine: Engine,
        stream: InstanceStream,
        profile: int,
        instance: int,
        owner: str,
        memory: int | None = None,
    ) -> None:
        """Create the context; `memory` is the address of its memory, or None if the context has memory of its own."""
        # Set before `engine`, so that it is freed before the engine. It must not be in a local variable either: an
        # exception keeps the local variables of its frames alive.
        self._handle: Any = None
        self.engine = engine
        self.stream = stream
        self.owner = owner
        self.instance = instance
        self._input_shapes: list[Shape] = []  # as last set
        self.output_shapes: list[Shape] = []  # derived from _input_shapes
        self.profile = profile
        self.shapes = engine.profiles[profile]
        self.rows = engine.batch_rows(profile)  # minimum and maximum of a batch
        self._check_rows()
        try:
            with engine.on_device():
                self._handle = self._create_handle(memory)
                self._select_profile()
                self.set_input_shapes([each.opt for each in self.shapes])
            self._check_outputs()
        except BaseException as error:
            self.close()
            if isinstance(error, hami.RequestError):
                raise hami.ConfigError(str(error)) from error
            raise

    @classmethod
    def of_instance(cls, engine: Engine, stream: InstanceStream, instance: int, owner: str) -> ExecutionContext:
        """Create the context of an instance, with the profile of its number, or with the first one."""
        profile = instance if instance < len(engine.profiles) else 0
        return cls(engine, stream, profile, instance, owner)

    def _check_rows(self) -> None:
        minimum, maximum = self.rows
        if minimum > maximum:
            shown = ", ".join(
                f'"{port.name}" takes {each.min[0]}..{each.max[0]}'
                for port, each in zip(self.engine.inputs, self.shapes, strict=True)
            )
            raise hami.ConfigError(
                f"{self.owner}: the inputs have no number of rows in common in profile {self.profile} of the engine: "
                f"{shown}; build the engine with equal rows for all inputs"
            )

    def _check_outputs(self) -> None:
        for port, shape in zip(self.engine.outputs, self.output_shapes, strict=True):
            if min(shape, default=0) < 0:
                raise hami.ConfigError(
                    f'{self.owner}: the size of output "{port.name}" depends on the values of the input, which is not '
                    "supported; export the model with a fixed number of output rows"
                )

    def _create_handle(self, memory: int | None) -> Any:
        """Create the context; if memory is short, free the memory that hami-cuda keeps and try again."""
        engine = self.engine
        with engine.library.collect_errors() as errors:
            handle = engine.library.create_context(engine.handle, memory)
            if handle is None:
                self.stream.trim()
                handle = engine.library.create_context(engine.handle, memory)
        if handle is None:
            raise hami.ConfigError(
                f"{self.owner}: {engine.library} cannot create an execution context on {engine.device}: "
                f"{first_error(errors)}; if memory is short, lower `instance_num` or `max`"
            )
        return handle

    def _select_profile(self) -> None:
        engine = self.engine
        with engine.library.collect_errors() as errors:
            try:
                selected = self._handle.set_optimization_profile_async(self.profile, self.stream.handle)
            except RuntimeError:  # the bindings raise it when the library refuses
                selected = False
        if not selected:
            count = len(engine.profiles)
            raise hami.ConfigError(
                f"{self.owner}: instance {self.instance} cannot use profile {self.profile} of the engine, which was "
                f"built for instance_num = {count}: {first_error(errors)}; build it for more instances, or set "
                f"instance_num = {count}"
            )

    def run(self, inputs: Sequence[Reading]) -> list[hami.Tensor]:
        """Run the engine and return new output tensors. The stream of the instance must be entered.

        Args:
            inputs: the inputs in the order of the engine; their shapes must be within the profile.
        """
        shapes = [each.shape for each in inputs]
        if shapes != self._input_shapes:
            self.set_input_shapes(shapes)
        outputs: list[Block] = [
            self.stream.empty(port.dtype, shape)
            for port, shape in zip(self.engine.outputs, self.output_shapes, strict=True)
        ]
        self.set_addresses([*(each.address for each in inputs), *(each.address for each in outputs)])
        self.submit(self.stream.handle)
        return [each.tensor for each in outputs]

    def set_addresses(self, addresses: Sequence[int]) -> None:
        """Set the addresses of the inputs and outputs of the next run, in the order of the engine."""
        engine = self.engine
        ports = zip((*engine.inputs, *engine.outputs), addresses, strict=True)
        with engine.library.collect_errors() as errors:
            accepted = all(self._handle.set_tensor_address(port.name, address) for port, address in ports)
        if not accepted:
            raise self._run_error(first_error(errors))

    def submit(self, stream: int) -> None:
        """Submit a run to a stream."""
        with self.engine.library.collect_errors() as errors:
            accepted = self._handle.execute_async_v3(stream)
        if not accepted:
            raise self._run_error(first_error(errors))

    def close(self) -> None:
        """Free the context, whose work must be done."""
        with self.engine.on_device():
            self._handle = None

    def set_input_shapes(self, shapes: list[Shape]) -> None:
        """Set the shapes of the inputs, and read those of the outputs."""
        engine = self.engine
        self._input_shapes = []
        with engine.library.collect_errors() as errors:
            accepted = all(
                self._handle.set_input_shape(port.name, shape)
                for port, shape in zip(engine.inputs, shapes, strict=True)
            )
            try:
                accepted = accepted and not self._handle.infer_shapes()
            except RuntimeError:
                accepted = False
        if not accepted:
            raise hami.RequestError(
                f"{self.owner}: {engine.library} rejects the input shapes {shapes}: {first_error(errors)}"
            )
        self.output_shapes = [tuple(map(int, self._handle.get_tensor_shape(port.name))) for port in engine.outputs]
        self._input_shapes = shapes

    def _run_error(self, reason: str) -> Exception:
        if "out of memory" in reason.lower() or "outofmemory" in reason.lower():
            return out_of_memory(f"{self.owner}: out of memory on {self.engine.device}: {reason}")
        shown = ", ".join(
            f"{port.dtype} {list(shape)}" for port, shape in zip(self.engine.inputs, self._input_shapes, strict=True)
        )
        return hami.RequestError(f"{self.owner}: {self.engine.library} failed to run the engine on {shown}: {reason}")
