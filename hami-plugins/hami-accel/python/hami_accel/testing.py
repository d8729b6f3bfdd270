"""A check that a device keeps the contract of `hami_accel.device`, for the tests of a device plugin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import hami
import numpy as np

from hami_accel.device import Array, Buffers, Device, DeviceModel, LoadOptions
from hami_accel.errors import CallAborted

__all__ = ["check_device"]

TIMEOUT_S = 60.0  # of one function-call


def check_device(
    device: Device, source: Any, inputs: Mapping[str, Array], options: LoadOptions | None = None, *, rtol: float = 0.0
) -> None:
    """Load a model, run it as the engine does, and check what the engine relies on.

    >>> from hami_accel.sim import SimDevice, SimModel
    >>> check_device(SimDevice(), SimModel("net", calls_us=[200, 300]), {"x": np.ones((1, 4), np.float32)})

    Run it on the hardware. A stand-in that was written from the same manual as the device shows only that both agree.

    Args:
        device: The device.
        source: A model for `device.load`; best one of several function-calls.
        inputs: One array for each input of the model.
        options: Options for `device.load`.
        rtol: The relative difference that repeated runs of the model may have.

    Raises:
        AssertionError: The device breaks a rule; the message says which.
    """
    options = options or LoadOptions()
    for wrong, settings in ((object(), options), (source, LoadOptions(-1, shapes=options.shapes))):
        _check_refused(device, wrong, settings)
    model = device.load(source, options)
    try:
        _Contract(device, model, inputs, rtol).check()
    finally:
        model.close()


def _check_refused(device: Device, source: Any, options: LoadOptions) -> None:
    try:
        device.load(source, options).close()
    except hami.ConfigError:
        return
    except Exception as error:
        raise AssertionError(f"load raises {type(error).__name__} instead of hami.ConfigError") from error
    raise AssertionError("load accepts a model that does not exist")


class _Contract:
    """The rules for one loaded model."""

    def __init__(self, device: Device, model: DeviceModel, inputs: Mapping[str, Array], rtol: float) -> None:
        self._capabilities, self._model, self._rtol = device.capabilities, model, rtol
        self._inputs = dict(inputs)
        self._other = {name: np.zeros_like(array) for name, array in inputs.items()}

    def check(self) -> None:
        model, cores = self._model, range(self._capabilities.cores)
        assert set(self._inputs) == {spec.name for spec in model.inputs}, "the arrays are not the inputs of the model"
        assert 0 <= model.selected < len(model.names), "`selected` is not the number of a model of `names`"
        assert model.segments >= 1, "a task has no function-call"
        assert model.segments == 1 or self._capabilities.segments, "`segments` of the capabilities is not set"
        assert len(model.segment_s) in (0, model.segments), "`segment_s` has not one time for each function-call"
        alone = self._run()
        for core, priority in ((core, priority) for core in cores for priority in (0, 254, 255)):
            self._equal(self._run(core, priority), alone, f"core {core} and priority {priority} change the outputs")
        self._check_two_slots(alone)
        self._check_abort(alone)

    def _check_two_slots(self, alone: Mapping[str, Array]) -> None:
        """Suspend a task at each border for a function-call of another one, then run the other one in its slot."""
        first, second = self._slot(self._inputs), self._slot(self._other)
        for name, array in (*first.inputs.items(), *first.outputs.items()):
            others = second.inputs if name in second.inputs else second.outputs
            assert not np.shares_memory(array, others[name]), f"two slots share the buffer of {name}"
        for _ in zip(self._calls(first), self._calls(second), strict=True):
            pass
        taken = first.take_outputs()
        self._equal(taken, alone, "a task that was suspended for a task in another slot has other outputs")
        self._fill(first, self._other)
        list(self._calls(first))
        self._equal(taken, alone, "a later task of the slot changes outputs that were taken")
        self._equal(first.take_outputs(), second.take_outputs(), "the outputs depend on the slot")

    def _check_abort(self, alone: Mapping[str, Array]) -> None:
        """Abort each function-call once, and submit it again."""
        slot = self._slot(self._inputs)
        for segment in range(self._model.segments):
            call = self._model.submit(slot, segment, 0, 0)
            accepted = call.abort()
            assert accepted == self._capabilities.abort, "`abort` of the call and of the capabilities differ"
            try:
                assert call.wait(TIMEOUT_S), "an aborted function-call does not end"
            except CallAborted:
                assert self._capabilities.abort, "a call that cannot be aborted raises CallAborted"
                self._finish(slot, segment)
            call.abort()  # after the end: harmless
        self._model.flush(slot, False)
        self._equal(slot.take_outputs(), alone, "a function-call that was aborted and repeated has other outputs")

    def _run(self, core: int = 0, priority: int = 0) -> dict[str, Array]:
        slot = self._slot(self._inputs)
        list(self._calls(slot, core, priority))
        return slot.take_outputs()

    def _slot(self, inputs: Mapping[str, Array]) -> Buffers:
        slot = self._model.allocate()
        for spec in self._model.inputs:
            buffer = slot.inputs[spec.name]
            described = spec.dtype, tuple(spec.shape)
            assert (buffer.dtype, buffer.shape) == described, f"the buffer of {spec.name} is not that of its TensorSpec"
        self._fill(slot, inputs)
        return slot

    def _fill(self, slot: Buffers, inputs: Mapping[str, Array]) -> None:
        for name, array in inputs.items():
            np.copyto(slot.inputs[name], array)
        self._model.flush(slot, True)

    def _calls(self, slot: Buffers, core: int = 0, priority: int = 0) -> Iterator[int]:
        """Run one function-call for each step of the iteration."""
        for segment in range(self._model.segments):
            self._finish(slot, segment, core, priority)
            if segment == self._model.segments - 1:
                self._model.flush(slot, False)
            yield segment

    def _finish(self, slot: Buffers, segment: int, core: int = 0, priority: int = 0) -> None:
        call = self._model.submit(slot, segment, core, priority)
        assert call.wait(TIMEOUT_S), f"function-call {segment} does not end"
        assert call.query(), "`query` is false after the end"

    def _equal(self, found: Mapping[str, Array], expected: Mapping[str, Array], rule: str) -> None:
        assert set(found) == {spec.name for spec in self._model.outputs}, "the outputs are not those of the model"
        for name, array in expected.items():
            assert np.allclose(found[name], array, rtol=self._rtol, atol=self._rtol, equal_nan=True), rule
