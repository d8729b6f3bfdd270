"""The device `sim`: a simulated NPU with seeded function-call times and faults, in virtual or real time."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import hami
import numpy as np

from hami_accel.clock import VirtualClock
from hami_accel.device import Buffers, Call, Capabilities, Device, DeviceModel, LoadOptions
from hami_accel.errors import CallAborted, DeviceError
from hami_accel.sim_model import SimModel
from hami_accel.task import level_of

__all__ = ["SimDevice", "SimModel"]

FAULT_CODE = -5  # of an injected fault


class SimDevice(Device):
    """A simulated NPU.

    >>> from hami_accel import AccelModel
    >>> device = SimDevice(seed=1, clock="virtual")
    >>> with AccelModel(SimModel("net", calls_us=[100, 200]), device=device) as model:
    ...     _ = model([[1, 2, 3, 4]])
    >>> round(device.clock.now() * 1e6)
    300

    Args:
        seed: of jitter and faults. Equal seeds and equal calls give equal times.
        cores: how many function-calls run at the same time.
        clock: "virtual", where time passes only while a caller waits for a task, or "real".
        abort: whether a running function-call can be aborted.
        native_preempt: whether a core itself preempts by the level of a task. It then has up to one function-call per
            level at the same time, and runs that of the highest level.
        jitter: relative standard deviation of the duration of a function-call.
        dma_us: microseconds for the transfer of the inputs before the first call, and of the outputs after the last.
        fault_rate: part of the function-calls that end with a DeviceError.
        hang_rate: part of the function-calls that never end.
        on_call: called with (model name, function-call, core) on the thread that waits for a call, in real time.
    """

    name = "sim"

    def __init__(
        self,
        *,
        seed: int = 0,
        cores: int = 1,
        clock: str = "real",
        abort: bool = True,
        native_preempt: bool = False,
        jitter: float = 0.0,
        dma_us: float = 0.0,
        fault_rate: float = 0.0,
        hang_rate: float = 0.0,
        on_call: Callable[[str, int, int], None] | None = None,
    ) -> None:
        if clock not in ("virtual", "real"):
            raise hami.ConfigError(f'sim: clock must be "virtual" or "real", got {clock!r}')
        self.capabilities = Capabilities(
            cores=cores, segments=True, abort=abort, native_preempt=native_preempt, priority_levels=256,
            zero_copy=True, quantised=True,
        )  # fmt: skip
        self.clock = VirtualClock() if clock == "virtual" else None
        self.random = random.Random(seed)
        self.jitter, self.dma_us = jitter, dma_us
        self.fault_rate, self.hang_rate = fault_rate, hang_rate
        self.on_call = on_call
        self.history: list[tuple[str, int, int]] = []  # (model, function-call, core) in the order of submission
        self.keep_history = True
        self._lock = threading.Lock()
        self._begun: list[list[_SimCall]] = [[] for _ in range(cores)]  # used if the cores preempt by themselves

    def describe(self) -> dict[str, Any]:
        return {"clock": "real" if self.clock is None else "virtual", "jitter": self.jitter, "dma_us": self.dma_us}

    def place(self, call: _SimCall, seconds: float, core: int) -> None:
        """Set when a function-call ends that begins now. On a core that preempts, calls of lower levels end later."""
        with self._lock:
            now = call.now()
            if not self.capabilities.native_preempt:
                call.ends_at = now + seconds
                return
            begun = [other for other in self._begun[core] if now < other.ends_at < math.inf]
            call.ends_at = max([now, *(other.ends_at for other in begun if other.level >= call.level)]) + seconds
            for other in begun:
                if other.level < call.level and seconds < math.inf:
                    other.ends_at += seconds
            self._begun[core] = [*begun, call]

    def load(self, source: Any, options: LoadOptions) -> DeviceModel:
        if isinstance(source, SimModel):
            models = [source]
        elif isinstance(source, (list, tuple)) and source and all(isinstance(one, SimModel) for one in source):
            models = list(source)
        elif not isinstance(source, (str, os.PathLike)):
            raise hami.ConfigError(f"sim: takes a SimModel, a list of them, or a path, got {type(source).__name__}")
        elif os.fspath(source).endswith(".onnx"):
            models = [_onnx_model(source, options)]
        else:
            models = SimModel.from_file(source)
        names = [model.name for model in models]
        selected = names.index(options.select) if options.select in names else options.select
        if not isinstance(selected, int) or not 0 <= selected < len(models):
            raise hami.ConfigError(
                f"sim: select must be a number below {len(models)} or one of {names}, got {selected!r}"
            )
        return _LoadedSimModel(self, models[selected], names, selected, options.max_time_per_fc)


def _onnx_model(source: Any, options: LoadOptions) -> SimModel:
    try:
        from hami_accel.onnx_device.simulated import OnnxSimModel
    except ModuleNotFoundError as error:
        raise hami.ConfigError(
            f'sim: a simulated run of "{source}" computes with ONNX Runtime, but {error.name} is not installed: '
            "pip install hami-accel[onnx]"
        ) from error
    return OnnxSimModel(source, options)


def _grouped(calls_us: Sequence[float], limit_us: float) -> list[list[int]]:
    """Return the indices of the calls in groups of at most `limit_us`, or of one call that takes longer."""
    groups: list[list[int]] = []
    total = math.inf
    for index, duration in enumerate(calls_us):
        if total + duration > limit_us or not groups:
            groups.append([])
            total = 0.0
        groups[-1].append(index)
        total += duration
    return groups


class _LoadedSimModel(DeviceModel):
    def __init__(
        self, device: SimDevice, model: SimModel, names: Sequence[str], selected: int, limit_us: float
    ) -> None:
        self.device, self.model = device, model
        self.name, self.names, self.selected = model.name, names, selected
        self.inputs, self.outputs = tuple(model.inputs), tuple(model.outputs)
        self.steps = _grouped(model.calls_us, limit_us or math.inf)
        self.segment_s = self.durations = [sum(model.calls_us[index] for index in steps) * 1e-6 for steps in self.steps]
        self.segments = len(self.steps)
        self.expected_s = sum(self.durations) + 2 * device.dma_us * 1e-6

    def submit(self, buffers: Buffers, segment: int, core: int, priority: int) -> Call:
        device = self.device
        if device.keep_history:
            device.history.append((self.name, segment, core))
        seconds = self.durations[segment]
        if device.jitter:
            seconds *= max(0.0, device.random.gauss(1.0, device.jitter))
        seconds += device.dma_us * 1e-6 * ((segment == 0) + (segment == self.segments - 1))
        fault = device.fault_rate > 0 and device.random.random() < device.fault_rate
        if device.hang_rate > 0 and device.random.random() < device.hang_rate:
            seconds = math.inf
        call = _SimCall(self, buffers, segment, core, level_of(priority), fault)
        device.place(call, seconds, core)
        return call

    def compute(self, buffers: Buffers, segment: int) -> None:
        state = self.model.begin(buffers.inputs) if segment == 0 else buffers.state
        for step in self.steps[segment]:
            state = self.model.advance(state, step)
        buffers.state = state
        if segment == self.segments - 1:
            for name, array in self.model.end(state).items():
                np.copyto(buffers.outputs[name], array)
            buffers.state = None

    def report(self) -> dict[str, Any]:
        return {"function_calls_us": [round(seconds * 1e6, 3) for seconds in self.durations]}


class _SimCall(Call):
    ends_at: float  # set by SimDevice.place

    def __init__(
        self, model: _LoadedSimModel, buffers: Buffers, segment: int, core: int, level: int, fault: bool
    ) -> None:
        clock = model.device.clock
        self.now: Callable[[], float] = time.monotonic if clock is None else clock.now
        self.level = level
        self._model, self._buffers, self._segment, self._core, self._fault = model, buffers, segment, core, fault
        self._aborted = threading.Event()

    def query(self) -> bool:
        return self._aborted.is_set() or self.now() >= self.ends_at

    def wait(self, timeout: float | None) -> bool:
        device = self._model.device
        if device.clock is None:
            if device.on_call is not None:
                device.on_call(self._model.name, self._segment, self._core)
            until = math.inf if timeout is None else self.now() + timeout
            while (left := min(self.ends_at, until) - self.now()) > 0:  # a call of a higher level delays the end
                if self._aborted.wait(min(left, threading.TIMEOUT_MAX)):
                    break
        ended = self.now() >= self.ends_at
        if self._aborted.is_set():
            raise CallAborted
        if not ended:
            return False
        if self._fault:
            message = f"sim: function-call {self._segment + 1} of {self._model.segments} of {self._model.name} failed"
            raise DeviceError(f"{message} with code {FAULT_CODE}, an injected fault", FAULT_CODE)
        self._model.compute(self._buffers, self._segment)
        return True

    def abort(self) -> bool:
        if not self._model.device.capabilities.abort:
            return False
        self._aborted.set()
        self.ends_at = min(self.ends_at, self.now())
        return True
