"""The execution context of one instance: runs one batch at a time, on the current stream, with one profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import hami
from hami_torch.backend import empty_cache, show, torch

from hami_trt._tensorrt import first_of

if TYPE_CHECKING:
    from hami_trt._engine import Engine

_ALIGNMENT = 256  # bytes, of every address that the library is given


class Context:
    """Runs an engine. Its memory is for the largest shapes of all profiles, whatever the shapes of a batch."""

    def __init__(self, engine: Engine, profile: int, instance: int, owner: str) -> None:
        # Before the engine: so it is also freed before it. In no local name, which the frames of an exception keep.
        self._handle: Any = None
        self.engine = engine
        self._owner = owner
        self._shapes: list[tuple[int, ...]] = []  # of the inputs, as told to the library
        self._outputs: list[tuple[int, ...]] = []  # what follows from them
        self._last: torch.cuda.Stream | None = None  # where it ran last
        self.profile = profile
        self.ranges = engine.profiles[profile]
        self.rows = engine.rows(profile)  # of a batch, at least and at most
        self._check_rows()
        try:
            with engine.on_device():
                self._handle = self._made()
                self._take_profile(instance)
                self._tell_shapes([each.best for each in self.ranges])
            self._check_outputs()
        except BaseException as error:
            self.close()
            if isinstance(error, hami.RequestError):
                raise hami.ConfigError(str(error)) from error
            raise

    def _check_rows(self) -> None:
        least, most = self.rows
        if least > most:
            shown = ", ".join(
                f'"{port.name}" takes {each.least[0]}..{each.most[0]}'
                for port, each in zip(self.engine.inputs, self.ranges, strict=True)
            )
            raise hami.ConfigError(
                f"{self._owner}: in profile {self.profile} of the engine the inputs have no number of rows in common: "
                f"{shown}; build it with the same rows for all"
            )

    def _check_outputs(self) -> None:
        for port, shape in zip(self.engine.outputs, self._outputs, strict=True):
            if min(shape, default=0) < 0:
                raise hami.ConfigError(
                    f'{self._owner}: how large output "{port.name}" is depends on the values of the input; such '
                    "outputs are not served: let the model give a fixed number of rows"
                )

    def _made(self) -> Any:
        """Create the context, with the memory that torch keeps for later if there is no other."""
        engine = self.engine
        with engine.library.errors() as told:
            handle = engine.handle.create_execution_context()
            if handle is None and engine.device.type == "cuda":
                empty_cache()
                handle = engine.handle.create_execution_context()
        if handle is None:
            raise hami.ConfigError(
                f"{self._owner}: {engine.library} cannot make an execution context on {engine.device}: "
                f"{first_of(told)}; lower `instance_num` or `max` if memory is short"
            )
        return handle

    def _take_profile(self, instance: int) -> None:
        engine = self.engine
        with engine.library.errors() as told:
            try:
                taken = self._handle.set_optimization_profile_async(self.profile, self._stream())
            except RuntimeError:  # how the bindings say that it is refused
                taken = False
        if not taken:
            count = len(engine.profiles)
            raise hami.ConfigError(
                f"{self._owner}: instance {instance} cannot have profile {self.profile} of the engine, which was built "
                f"for instance_num = {count}: {first_of(told)}; build it for more, or set instance_num = {count}"
            )
        if self._last is not None:
            self._last.synchronize()  # the first batch may come on another stream

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run on tensors that fit the profile, in the order of the engine's inputs; the outputs are the caller's."""
        engine = self.engine
        given = [_addressable(tensor) for tensor in tensors]
        with engine.on_device():
            stream = self._stream()
            shapes = [tuple(tensor.shape) for tensor in given]
            if shapes != self._shapes:
                self._tell_shapes(shapes)
            outputs = [
                torch.empty(shape, dtype=port.dtype, device=engine.device)
                for port, shape in zip(engine.outputs, self._outputs, strict=True)
            ]
            with engine.library.errors() as told:
                good = all(
                    self._handle.set_tensor_address(port.name, tensor.data_ptr() or engine.nothing.data_ptr())
                    for port, tensor in zip((*engine.inputs, *engine.outputs), (*given, *outputs), strict=True)
                )
                if good and self._handle.execute_async_v3(stream):
                    return outputs
        raise self._failure(given, first_of(told))

    def close(self) -> None:
        """Free the context when its work is done."""
        if self._last is not None:
            self._last.synchronize()
        self._handle = self._last = None

    def _tell_shapes(self, shapes: list[tuple[int, ...]]) -> None:
        """Tell the shapes of the inputs, and keep those of the outputs."""
        engine = self.engine
        self._shapes = []
        with engine.library.errors() as told:
            good = all(
                self._handle.set_input_shape(port.name, shape)
                for port, shape in zip(engine.inputs, shapes, strict=True)
            )
            try:
                good = good and not self._handle.infer_shapes()
            except RuntimeError:
                good = False
        if not good:
            raise hami.RequestError(
                f"{self._owner}: {engine.library} cannot work with inputs of {shapes}: {first_of(told)}"
            )
        self._outputs = [tuple(map(int, self._handle.get_tensor_shape(port.name))) for port in engine.outputs]
        self._shapes = shapes

    def _stream(self) -> int:
        """Return the handle of the current stream, which waits for what still runs in this context on another."""
        device = self.engine.device
        if device.type != "cuda":
            return 0
        stream = torch.cuda.current_stream(device)
        if self._last is not None and self._last != stream:
            stream.wait_stream(self._last)
        self._last = stream
        return int(stream.cuda_stream)

    def _failure(self, given: Sequence[torch.Tensor], why: str) -> Exception:
        if "out of memory" in why.lower() or "outofmemory" in why.lower():
            return torch.cuda.OutOfMemoryError(why)
        shown = ", ".join(map(show, given))
        return hami.RequestError(f"{self._owner}: {self.engine.library} could not run the engine on {shown}: {why}")


def _addressable(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor if it lies where the library can read it, else a copy that does."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()
