"""The execution context of one instance: runs one batch at a time, with one profile, on the current CUDA stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import hami
from hami_torch.backend import empty_cache, show, torch

from hami_trt._shapes import Shape
from hami_trt._tensorrt import first_error

if TYPE_CHECKING:
    from hami_trt._engine import Engine

_ALIGNMENT = 256  # bytes; TensorRT requires it of the address of each input and output


class ExecutionContext:
    """Runs an engine. Its memory has the size that the largest shapes of all profiles need, for every batch."""

    def __init__(self, engine: Engine, profile: int, instance: int, owner: str) -> None:
        # Set before `engine`, so that it is freed before the engine. It must not be in a local variable either: an
        # exception keeps the local variables of its frames alive.
        self._handle: Any = None
        self.engine = engine
        self._owner = owner
        self._input_shapes: list[Shape] = []  # as last set
        self._output_shapes: list[Shape] = []  # derived from _input_shapes
        self._last_stream: torch.cuda.Stream | None = None  # where the previous batch ran
        self.profile = profile
        self.shapes = engine.profiles[profile]
        self.rows = engine.batch_rows(profile)  # minimum and maximum of a batch
        self._check_rows()
        try:
            with engine.on_device():
                self._handle = self._create_handle()
                self._select_profile(instance)
                self._set_input_shapes([each.opt for each in self.shapes])
            self._check_outputs()
        except BaseException as error:
            self.close()
            if isinstance(error, hami.RequestError):
                raise hami.ConfigError(str(error)) from error
            raise

    def _check_rows(self) -> None:
        minimum, maximum = self.rows
        if minimum > maximum:
            shown = ", ".join(
                f'"{port.name}" takes {each.min[0]}..{each.max[0]}'
                for port, each in zip(self.engine.inputs, self.shapes, strict=True)
            )
            raise hami.ConfigError(
                f"{self._owner}: the inputs have no number of rows in common in profile {self.profile} of the engine: "
                f"{shown}; build the engine with equal rows for all inputs"
            )

    def _check_outputs(self) -> None:
        for port, shape in zip(self.engine.outputs, self._output_shapes, strict=True):
            if min(shape, default=0) < 0:
                raise hami.ConfigError(
                    f'{self._owner}: the size of output "{port.name}" depends on the values of the input, which is not '
                    "supported; export the model with a fixed number of output rows"
                )

    def _create_handle(self) -> Any:
        """Create the context; if memory is short, free the memory that torch caches and try again."""
        engine = self.engine
        with engine.library.collect_errors() as errors:
            handle = engine.handle.create_execution_context()
            if handle is None and engine.device.type == "cuda":
                empty_cache()
                handle = engine.handle.create_execution_context()
        if handle is None:
            raise hami.ConfigError(
                f"{self._owner}: {engine.library} cannot create an execution context on {engine.device}: "
                f"{first_error(errors)}; if memory is short, lower `instance_num` or `max`"
            )
        return handle

    def _select_profile(self, instance: int) -> None:
        engine = self.engine
        with engine.library.collect_errors() as errors:
            try:
                selected = self._handle.set_optimization_profile_async(self.profile, self._use_current_stream())
            except RuntimeError:  # the bindings raise it when the library refuses
                selected = False
        if not selected:
            count = len(engine.profiles)
            raise hami.ConfigError(
                f"{self._owner}: instance {instance} cannot use profile {self.profile} of the engine, which was built "
                f"for instance_num = {count}: {first_error(errors)}; build it for more instances, or set "
                f"instance_num = {count}"
            )
        if self._last_stream is not None:
            self._last_stream.synchronize()  # the first batch can run on another stream

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the engine and return new output tensors.

        Args:
            tensors: the inputs in the order of the engine; their shapes must be within the profile.
        """
        engine = self.engine
        inputs = [_addressable(tensor) for tensor in tensors]
        with engine.on_device():
            stream = self._use_current_stream()
            shapes = [tuple(tensor.shape) for tensor in inputs]
            if shapes != self._input_shapes:
                self._set_input_shapes(shapes)
            outputs = [
                torch.empty(shape, dtype=port.dtype, device=engine.device)
                for port, shape in zip(engine.outputs, self._output_shapes, strict=True)
            ]
            with engine.library.collect_errors() as errors:
                accepted = all(
                    self._handle.set_tensor_address(port.name, tensor.data_ptr() or engine.placeholder.data_ptr())
                    for port, tensor in zip((*engine.inputs, *engine.outputs), (*inputs, *outputs), strict=True)
                )
                if accepted and self._handle.execute_async_v3(stream):
                    return outputs
        raise self._run_error(inputs, first_error(errors))

    def close(self) -> None:
        """Wait for the running work and free the context."""
        if self._last_stream is not None:
            self._last_stream.synchronize()
        self._handle = self._last_stream = None

    def _set_input_shapes(self, shapes: list[Shape]) -> None:
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
                f"{self._owner}: {engine.library} rejects the input shapes {shapes}: {first_error(errors)}"
            )
        self._output_shapes = [tuple(map(int, self._handle.get_tensor_shape(port.name))) for port in engine.outputs]
        self._input_shapes = shapes

    def _use_current_stream(self) -> int:
        """Return the handle of the current stream, after making it wait for the previous batch on another stream."""
        device = self.engine.device
        if device.type != "cuda":
            return 0
        stream = torch.cuda.current_stream(device)
        if self._last_stream is not None and self._last_stream != stream:
            stream.wait_stream(self._last_stream)
        self._last_stream = stream
        return int(stream.cuda_stream)

    def _run_error(self, inputs: Sequence[torch.Tensor], reason: str) -> Exception:
        if "out of memory" in reason.lower() or "outofmemory" in reason.lower():
            out_of_memory: Exception = torch.cuda.OutOfMemoryError(reason)
            return out_of_memory
        shown = ", ".join(map(show, inputs))
        return hami.RequestError(f"{self._owner}: {self.engine.library} failed to run the engine on {shown}: {reason}")


def _addressable(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor if the library can read its memory, else a contiguous and aligned copy."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()
