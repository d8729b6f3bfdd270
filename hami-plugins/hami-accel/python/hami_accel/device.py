"""The device interface: what a plugin for an accelerator implements.

A device loads models. A model runs a task as `segments` function-calls, which the engine submits one after the other.
Between two function-calls the engine may run those of another task; the buffers of the first task keep its state.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import hami
import numpy as np
from numpy.typing import NDArray

from hami_accel.specs import TensorSpec

__all__ = ["Buffers", "Call", "Capabilities", "Device", "DeviceModel", "LoadOptions", "model_number"]

Array = NDArray[Any]


class Capabilities(NamedTuple):
    """What a device can do. The engine reads it once."""

    cores: int = 1  # function-calls that run at the same time
    segments: bool = False  # a task can be several function-calls, with preemption between them
    abort: bool = False  # a running function-call can be aborted and run again from its start
    native_preempt: bool = False  # a core itself preempts by priority; it gets one task per level at the same time
    priority_levels: int = 1  # levels of the device's own queue
    zero_copy: bool = False  # bound buffers are used without a copy
    quantised: bool = False  # inputs or outputs can be quantised


@dataclass(frozen=True)
class LoadOptions:
    """How a model is loaded."""

    select: int | str = 0  # which of the packed models
    max_time_per_fc: float = 0.0  # microseconds; 0: one function-call
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)  # for inputs with dynamic axes


class Buffers:
    """The inputs, outputs and device state of one task slot."""

    def __init__(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        self.inputs: dict[str, Array] = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in inputs}
        self.outputs: dict[str, Array] = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in outputs}
        self.bound: dict[str, Array] = {}  # buffers of the caller, inputs and outputs
        self.state: Any = None  # what the device keeps between the function-calls of a task

    def take_outputs(self) -> dict[str, Array]:
        """Return the outputs of a finished task. The next task of the slot does not change them, unless bound."""
        return {name: array if name in self.bound else array.copy() for name, array in self.outputs.items()}


class Call(abc.ABC):
    """One function-call that was submitted."""

    @abc.abstractmethod
    def query(self) -> bool:
        """Return whether the function-call has ended."""

    @abc.abstractmethod
    def wait(self, timeout: float | None) -> bool:
        """Wait for the end; return False after `timeout` seconds. A device may also run the call in here.

        Raises DeviceError if the device reports an error, and CallAborted after `abort`.
        """

    def abort(self) -> bool:
        """Ask the device to end the call now; return whether it can. Any thread may call this, also after the end."""
        return False


class DeviceModel(abc.ABC):
    """A model that is loaded on a device."""

    name: str
    names: Sequence[str]  # all models of the file
    selected: int
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    segments: int = 1  # function-calls of one task
    expected_s: float | None = None  # run time of one task alone, if the device knows it
    segment_s: Sequence[float] = ()  # run time of each function-call, if the device knows it
    border_wait_s: float = 0.0  # a function-call that ends within this time is not aborted; AccelModel sets it
    always_ends: bool = False  # the device runs a function-call in `Call.wait`, and it can never hang

    def allocate(self) -> Buffers:
        """Return the buffers of one slot."""
        return Buffers(self.inputs, self.outputs)

    def import_buffer(self, buffer: Any, spec: TensorSpec) -> Any:
        """Return a view of memory of the device that a caller binds, which the slot then keeps for `submit`.

        The default returns None, for a buffer in the memory of the host: the slot keeps it as an array of NumPy. Raises
        InputError if the buffer is on the device and does not fit.
        """
        del buffer, spec

    def flush(self, buffers: Buffers, to_device: bool) -> None:
        """Make inputs visible to the device (before the first function-call), or outputs to the host (after the last).

        The default does nothing, for devices that share the memory of the host.
        """
        del buffers, to_device

    @abc.abstractmethod
    def submit(self, buffers: Buffers, segment: int, core: int, priority: int) -> Call:
        """Submit function-call `segment` (from 0) of a task on a core and return without waiting."""

    def report(self) -> dict[str, Any]:
        """Return more about the loaded model, for `AccelModel.summary`."""
        return {}

    def close(self) -> None:
        """Free the model. No call of it is running."""
        return None


class Device(abc.ABC):
    """One accelerator. The constructor takes no required arguments: it is called for `device="name"`."""

    name: str
    capabilities: Capabilities
    _engine: Any = None  # that engine_of created, freed with the device
    clock: Any = None  # a hami_accel.clock.VirtualClock for a device in virtual time

    @abc.abstractmethod
    def load(self, source: str | os.PathLike[str] | Any, options: LoadOptions) -> DeviceModel:
        """Load a model. Raises hami.ConfigError if the file or the options are wrong."""

    def describe(self) -> dict[str, Any]:
        """Return facts about the accelerator for `Platform().summary()`."""
        return {}


def model_number(select: int | str, names: Sequence[str], device: str) -> int:
    """Return the number of the selected model of a file, for `Device.load`.

    >>> model_number("small", ["exact", "small"], "acme")
    1

    Raises:
        hami.ConfigError: The file has no such model.
    """
    number: Any = names.index(select) if select in names else select
    if not isinstance(number, int) or not 0 <= number < len(names):
        expected = f"0 to {len(names) - 1} or one of {list(names)}"
        raise hami.ConfigError(f"{device}: select must be {expected}, got {select!r}")
    return number
