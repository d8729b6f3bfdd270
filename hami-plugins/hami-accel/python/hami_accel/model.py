"""AccelModel: a model on a device, with task slots, start and wait, priorities and deadlines."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import hami

from hami_accel.device import Device, LoadOptions
from hami_accel.engines import engine_of
from hami_accel.errors import InputError, ModelClosed, WaitTimeout
from hami_accel.inputs import as_array, seconds, write_inputs
from hami_accel.packed import PackedModel, is_packed, open_packed
from hami_accel.platform import Platform
from hami_accel.report import durations_text, print_summary
from hami_accel.slots import IDLE, Slot, SlotTable, Ticket
from hami_accel.specs import TensorSpec
from hami_accel.task import URGENT_PRIORITY, Task

_log = logging.getLogger("hami_accel")

# What it costs to wake the worker of a core (tests/bench/accel.md). A shorter task runs on the thread that starts it.
_THREAD_CHANGE_S = 20e-6
_CLOSE_TIMEOUT = 60.0  # seconds that close waits for function-calls that run; a device may be hung
_leaked: list[object] = []  # models, with their buffers, that a device may still use: kept until the process ends


class AccelModel:
    """A model on an accelerator.

    >>> from hami_accel.sim import SimDevice, SimModel
    >>> with AccelModel(SimModel("net"), device=SimDevice(clock="virtual"), n_task=2) as model:
    ...     ticket = model.start([[1, 2, 3, 4]], priority=254)
    ...     model.wait(ticket)
    array([[1.5, 2. , 2.5, 3. ]], dtype=float32)

    Any number of threads may use a model. Models on the same device share its cores by priority.

    Args:
        source: path of the model, or what else the device loads.
        n_task: number of task slots, each with buffers of its own.
        select: number or name of the model in a packed file.
        device: name of a device, or a Device.
        max_time_per_fc: microseconds; the device splits a task into function-calls of at most this time. 0: no split.
        shapes: shapes of inputs with dynamic axes, by input name.
        unchecked: skip the checks of the inputs, except those of their sizes.

    Raises:
        hami.ConfigError: an argument is wrong, the device cannot be used, or it cannot load the model.
    """

    def __init__(
        self,
        source: Any,
        n_task: int = 1,
        select: int | str = 0,
        device: str | Device = "onnx",
        max_time_per_fc: float = 0.0,
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        unchecked: bool = False,
    ) -> None:
        self._slots = SlotTable("", ())  # until the constructor has succeeded
        self._slots.close()
        if not isinstance(n_task, int) or not 1 <= n_task <= 4096:
            raise hami.ConfigError(f"n_task must be a number of slots from 1 to 4096, got {n_task!r}")
        if not isinstance(max_time_per_fc, (int, float)) or not 0 <= max_time_per_fc < math.inf:
            raise hami.ConfigError(f"max_time_per_fc must be microseconds, or 0 to not split, got {max_time_per_fc!r}")
        self.device = device if isinstance(device, Device) else Platform().device(device)
        self.file = os.fspath(source) if isinstance(source, (str, os.PathLike)) else type(source).__name__
        packed = open_packed(source, select) if is_packed(source) else None
        if packed is None:
            options = LoadOptions(select, max_time_per_fc, shapes or {})
            self._model = self.device.load(source, options)
        else:
            options = LoadOptions(0, max_time_per_fc or packed.max_time_per_fc, shapes or packed.shapes)
            self._model = self.device.load(packed.path, options)
        try:
            self._set_up(n_task, options, packed)
        except BaseException:
            self._model.close()
            raise
        self._unchecked = unchecked

    def _set_up(self, n_task: int, options: LoadOptions, packed: PackedModel | None) -> None:
        if packed is not None:
            self._model.name, self._model.names = packed.names[packed.selected], packed.names
            self._model.selected = packed.selected
            self._model.inputs = [
                spec._replace(layout=packed.layouts.get(spec.name, spec.layout)) for spec in self._model.inputs
            ]
        self._model.border_wait_s = options.max_time_per_fc * 1e-6 / 2
        self._engine = engine_of(self.device)
        expected = self._model.expected_s
        self._inline_start = self._model.always_ends and expected is not None and expected <= _THREAD_CHANGE_S
        cores = frozenset(range(self.device.capabilities.cores))
        slots = [Slot(index, self._model.allocate(), cores) for index in range(n_task)]
        self._slots = SlotTable(self._model.name, slots)

    @property
    def name(self) -> str:
        """Name of the selected model."""
        return self._model.name

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """Inputs of the model."""
        return self._model.inputs

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """Outputs of the model."""
        return self._model.outputs

    def start(
        self, inputs: Any = None, slot: int | None = None, priority: int | None = None, deadline: float | None = None
    ) -> Ticket:
        """Start a task and return without waiting. A task of less than 20 us runs at once, if its device allows it.

        Args:
            inputs: one array, a dict by input name, or a list in the order of the inputs; they are copied. None: run
                on what is in the buffers.
            slot: number of an idle slot; None: any idle one, those with bound buffers last.
            priority: 0 to 253, where larger ones start first; 254 preempts those; 255 preempts all others. None: the
                priority of the slot.
            deadline: seconds from now after which the result is useless.

        Raises:
            InputError: the inputs do not fit.
            SlotError: the slot does not exist or is busy, or no slot is idle.
            hami.DeadlineExceeded: the run time of the task alone is longer than `deadline`.
        """
        ticket = self._prepare(inputs, slot, priority, deadline)
        try:
            self._engine.submit(ticket._task, inline=self._inline_start)
        except BaseException:
            ticket._abandon()
            raise
        return ticket

    def wait(self, ticket: Ticket | int, timeout: float | None = None) -> Any:
        """Wait for a task, free its slot, and return its outputs: one array, or a dict by output name.

        Args:
            ticket: what `start` returned, or the number of its slot.
            timeout: seconds. When they have passed, WaitTimeout is raised and the task goes on.

        Raises:
            WaitTimeout: the task is not done yet.
            SlotError: nothing was started in the slot, or another caller waits or has waited for the task.
            hami.DeadlineExceeded, concurrent.futures.CancelledError, DeviceError, SlotLost, ModelClosed: how it ended.
        """
        timeout = seconds(timeout, "timeout", self.name)
        if not isinstance(ticket, Ticket):
            ticket = self._slots.running(self._slot(ticket))
        self._slots.claim(ticket, self)
        try:
            ended = self._engine.wait(ticket._task, timeout)
        except BaseException:  # Ctrl-C
            self._slots.unclaim(ticket)
            raise
        if not ended:
            self._slots.unclaim(ticket)
            raise WaitTimeout(
                f"{self.name}: the task in slot {ticket.slot} is not done after {timeout} s; it goes on, wait again"
            )
        return self._slots.take(ticket)

    def infer(
        self, inputs: Any, priority: int | None = None, deadline: float | None = None, timeout: float | None = None
    ) -> Any:
        """Start a task in any idle slot, wait for it, and return its outputs.

        If a core is idle and `timeout` is None, the task runs on the calling thread, without a change of threads. If
        the call raises before the task has ended, as after `timeout`, the task is cancelled. Its slot is idle again
        when the task has ended.
        """
        timeout = seconds(timeout, "timeout", self.name)
        ticket = self._prepare(inputs, None, priority, deadline)
        try:
            self._engine.submit(ticket._task, inline=timeout is None)
            self._slots.claim(ticket, self)
            if not self._engine.wait(ticket._task, timeout):
                raise WaitTimeout(
                    f"{self.name}: the task in slot {ticket.slot} is not done after {timeout} s and is cancelled; "
                    "give it more time, or use start and wait"
                )
        except BaseException:
            ticket._abandon()
            raise
        return self._slots.take(ticket)

    __call__ = infer

    def is_busy(self, slot: int) -> bool:
        """Return whether a slot is not idle: it runs a task, or no caller has waited for its task, or it is lost."""
        return self._slot(slot).state is not IDLE

    def bind(self, slot: int, name: str, buffer: Any) -> None:
        """Use a buffer of the caller for an input or output of a slot, without copies.

        Args:
            slot: number of an idle slot.
            name: of an input or output.
            buffer: a contiguous array of NumPy, or an object with DLPack, in the memory of the host or of the device.
                An output needs a writable one.

        Raises:
            InputError: no such input or output, or the buffer does not fit.
            SlotError: the slot does not exist or is busy.
        """
        target = self._slot(slot)
        specs = {spec.name: spec for spec in (*self.inputs, *self.outputs)}
        if name not in specs:
            raise InputError(f"{self.name}: has no input or output {name!r}; the names are {sorted(specs)}")
        output = name in {spec.name for spec in self.outputs}
        array = self._model.import_buffer(buffer, specs[name])
        if array is None:
            array = as_array(buffer, name, self.name)
            specs[name].check_size(array, self.name)
            specs[name].check(array, self.name)
            if output and not array.flags.writeable:
                raise InputError(f'{self.name}: the buffer for the output "{name}" is read-only; bind a writable one')
        self._slots.occupy(target.index)
        try:
            (target.buffers.outputs if output else target.buffers.inputs)[name] = array
            target.buffers.bound[name] = array
        finally:
            self._slots.free(target)

    def set_scheduling(
        self, cores: Iterable[int] | None = None, priority: int | None = None, slot: int | None = None
    ) -> None:
        """Set the cores and the default priority of the tasks of a slot, or of all slots.

        Raises:
            InputError: a core or the priority does not exist.
            SlotError: the slot does not exist.
        """
        count = self.device.capabilities.cores
        try:
            allowed = None if cores is None else frozenset(cores)
        except TypeError:  # not iterable, or of lists
            allowed = frozenset()
        if allowed is not None and not (allowed and allowed <= frozenset(range(count))):
            raise InputError(f"{self.name}: cores must be some of 0 to {count - 1} of {self.device.name}, got {cores}")
        if priority is not None:
            self._check_priority(priority)
        for target in self._slots if slot is None else [self._slot(slot)]:
            target.cores = target.cores if allowed is None else allowed
            target.priority = target.priority if priority is None else priority

    def summary(self) -> dict[str, Any]:
        """Return facts about the file, the model, its buffers, inputs and outputs."""
        size = sum(spec.nbytes for spec in (*self.inputs, *self.outputs)) * len(self._slots)
        return {
            "file": self.file,
            "device": self.device.name,
            "models": list(self._model.names),
            "select": self._model.selected,
            "n_task": len(self._slots),
            "slots": [slot.state.value for slot in self._slots],
            "function_calls": self._model.segments,
            "buffers_mb": size / 1e6,
            "inputs": [_facts(spec) for spec in self.inputs],
            "outputs": [_facts(spec) for spec in self.outputs],
            **self._model.report(),
        }

    def s(self) -> None:
        """Print the summary as a table."""
        print_summary(self.summary())

    def benchmark(self, runs: int = 10, priority: int | None = None) -> dict[str, float]:
        """Run on what is in the buffers, and return the times of start and wait in microseconds."""
        if not isinstance(runs, int) or runs < 1:
            raise InputError(f"{self.name}: runs must be a number of at least 1, got {runs!r}")
        times = []
        for _ in range(runs):
            began = self._engine.now()
            self.infer(None, priority)
            times.append((self._engine.now() - began) * 1e6)
        times.sort()
        return {
            "runs": runs,
            "mean_us": sum(times) / runs,
            "min_us": times[0],
            "p50_us": times[runs // 2],
            "p99_us": times[min(runs - 1, math.ceil(runs * 0.99) - 1)],
            "max_us": times[-1],
        }

    def dirty_run(self, runs: int = 10) -> None:
        """Run on what is in the buffers, and print the mean time in several units."""
        print(durations_text(self.name, self.benchmark(runs)))

    t = dirty_run

    def run_until(self, moment: float) -> None:
        """Let the virtual time of a simulated device pass until `moment`, in seconds of its clock."""
        advance = getattr(self._engine, "run_until", None)
        if advance is None:
            raise hami.ConfigError(f'{self.device.name}: has no virtual time; use SimDevice(clock="virtual")')
        advance(moment)

    def close(self) -> None:
        """Cancel what runs and free the model. Waiting calls raise ModelClosed.

        Waits at most 60 s for the device. If a function-call has no answer by then, or was lost before, a warning names
        the model, and its memory is not freed: the device may still use it.
        """
        tasks = self._slots.close()
        if tasks is None:
            return
        unused = False
        try:
            for task in tasks:
                self._engine.cancel(task, ModelClosed(f"{self.name}: the model was closed while a task was running"))
            until = time.monotonic() + _CLOSE_TIMEOUT
            ended = all(self._engine.wait(task, max(until - time.monotonic(), 0.0)) for task in tasks)
            unused = ended and self._slots.wait_unused(until - time.monotonic())
        finally:
            if not unused:
                _leaked.append((self._model, list(self._slots)))
                _log.warning("%s: its memory is not freed, because a function-call has not ended", self.name)
        if unused:
            self._model.close()
            _log.info("released %s", self.name)

    def __enter__(self) -> AccelModel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self._slots.closed else f"{len(self._slots)} slots"
        return f"<AccelModel {getattr(self, 'file', '?')} on {getattr(self, 'device', None)}, {state}>"

    def _prepare(self, inputs: Any, slot: int | None, priority: int | None, deadline: float | None) -> Ticket:
        """Check a call, occupy a slot and fill its buffers. If it raises, the slot is idle."""
        if priority is not None:
            self._check_priority(priority)
        if (deadline := seconds(deadline, "deadline", self.name)) is not None:
            self._check_deadline(deadline)
        target = self._slots.occupy(slot)
        try:
            if inputs is not None:
                write_inputs(inputs, self._model.inputs, target.buffers, self.name, self._unchecked)
            task = Task(
                self._model,
                target.buffers,
                priority=target.priority if priority is None else priority,
                deadline=None if deadline is None else self._engine.now() + deadline,
                cores=target.cores,
            )
            ticket = Ticket(self, target, task)
            self._slots.run(target, ticket)
            return ticket
        except BaseException:
            self._slots.free(target)
            raise

    def _slot(self, number: int) -> Slot:
        self._slots.require_process()
        if self._slots.closed:
            raise ModelClosed(f"{self.name}: the model is closed; create another AccelModel")
        return self._slots.get(number)

    def _check_priority(self, priority: int) -> None:
        if not isinstance(priority, int) or not 0 <= priority <= URGENT_PRIORITY:
            raise InputError(f"{self.name}: priority must be 0 to {URGENT_PRIORITY}, got {priority!r}")

    def _check_deadline(self, deadline: float) -> None:
        needed = self._model.expected_s
        if not deadline > 0 or (needed is not None and deadline < needed):
            alone = "" if needed is None else f"; a run alone takes {needed:.6f} s"
            raise hami.DeadlineExceeded(f"{self.name}: a deadline of {deadline} s cannot be met{alone}")


def _facts(spec: TensorSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "dtype": spec.dtype.name,
        "shape": list(spec.shape),
        "layout": spec.layout,
        "quantization": None if spec.quantization is None else tuple(spec.quantization),
    }
