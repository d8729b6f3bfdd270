"""AccelTensor: runs the requests of a pipeline as tasks on an accelerator."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from concurrent.futures import CancelledError
from typing import Annotated, Any

import hami
import numpy as np
from hami.types import FilePath

from hami_accel.errors import SlotLost, WaitTimeout
from hami_accel.inputs import as_array
from hami_accel.model import AccelModel
from hami_accel.slots import Ticket

_POLL_S = 0.005  # between two looks whether a request was cancelled; the core does not notify backends

_lock = threading.Lock()
_models: weakref.WeakValueDictionary[tuple[object, ...], _Shared] = weakref.WeakValueDictionary()


def _reset_after_fork() -> None:
    """Forget the parent's models, which work only there, and its lock, which may be held."""
    global _lock, _models
    _lock, _models = threading.Lock(), weakref.WeakValueDictionary()


os.register_at_fork(after_in_child=_reset_after_fork)


class AccelTensor(hami.Backend):
    """Run a model on an accelerator: each request is a task with its priority, deadline and cancellation.

    data: one array, a dict of arrays by input name, or a list of arrays in the order of the inputs
    result: one array, or a dict of arrays by output name if the model has several outputs
    priority: 0 to 253; 254 and 255 preempt running tasks of lower levels between two function-calls
    deadline, timeout: a task that cannot meet it is not started, and a running one ends

    Data without the first axis of an input that has size 1 is one row, and its result has no such axis.
    """

    thread = "concurrent"

    model: Annotated[FilePath, "path of the model"]
    device: Annotated[str, "name of a device, as in Platform().names()"] = "onnx"
    max_time_per_fc: Annotated[float, "microseconds of a function-call at most; 0: do not split"] = 0.0
    select: Annotated[int, "number of the model in a packed file"] = 0
    n_task: Annotated[int, "number of task slots, which all instances share"] = 4

    _shared: _Shared | None = None

    def init(self, options: Any) -> None:
        self._shared = _open(str(self.model), self.n_task, self.select, self.device, self.max_time_per_fc)
        options["engine_inputs"] = [
            {
                "name": spec.name,
                "dtype": spec.dtype.name,
                "shape": list(spec.shape),
                "device": "cpu",
                "batch_axis": False,
            }
            for spec in self._shared.model.inputs
        ]

    def max(self) -> int:
        return self.n_task

    def forward(self, batch: list[Any]) -> None:
        assert self._shared is not None, "forward after close"
        pending: deque[tuple[Any, Ticket, bool]] = deque()
        for item in batch:
            while not self._start(item, pending):
                self._shared.finish(*pending.popleft())  # its slot becomes idle
        while pending:
            self._shared.finish(*pending.popleft())

    def close(self) -> None:
        self._shared = None  # the last instance closes the model

    def _start(self, item: Any, pending: deque[tuple[Any, Ticket, bool]]) -> bool:
        """Start the task of a request, or fail it. Return False if no slot is idle and this batch holds some."""
        assert self._shared is not None
        while not item.cancelled:
            try:
                started = self._shared.start(item, 0.0 if pending else _POLL_S)
            except Exception as error:
                item.fail(error)
                return True
            if started is not None:
                pending.append((item, *started))
                return True
            if pending:
                return False
        return True


class _Shared:
    """A model that the instances of all nodes with equal parameters share."""

    def __init__(self, model: AccelModel, n_task: int) -> None:
        self.model = model
        self._idle = threading.Semaphore(n_task)
        self._usable = n_task  # slots that are not lost
        weakref.finalize(self, model.close)

    def start(self, item: Any, timeout: float) -> tuple[Ticket, bool] | None:
        """Return the ticket of a task, and whether its result gets no first axis; None if no slot is idle."""
        if "data" not in item:
            raise hami.RequestError(f'AccelTensor: the request has no key "data"; its keys are {sorted(item.keys())}')
        if not self._usable:
            raise SlotLost(f"{self.model.name}: the device did not answer in any of the slots; all of them are lost")
        if not self._idle.acquire(timeout=timeout):
            return None
        try:
            data, row = self._with_first_axis(item["data"])
            return self.model.start(data, priority=item.priority, deadline=_seconds_left(item)), row
        except BaseException:
            self._idle.release()
            raise

    def finish(self, item: Any, ticket: Ticket, row: bool) -> None:
        """Wait for a task and set the result of its request. A cancelled request cancels its task."""
        try:
            while True:
                try:
                    result = ticket.wait(_POLL_S)
                    break
                except WaitTimeout:
                    if item.cancelled:
                        ticket.cancel()
            item["result"] = _without_first_axis(result) if row else result
        except CancelledError:  # the outcome of a cancelled request is fixed
            pass
        except Exception as error:
            item.fail(error)
        finally:
            if ticket.lost:
                self._usable -= 1
            else:
                self._idle.release()

    def _with_first_axis(self, data: Any) -> tuple[Any, bool]:
        if len(self.model.inputs) != 1 or isinstance(data, (dict, list, tuple)):
            return data, False
        spec = self.model.inputs[0]
        array = as_array(data, spec.name, self.model.name)
        row = spec.shape[:1] == (1,) and array.shape == spec.shape[1:]
        return (array[np.newaxis] if row else array), row


def _open(path: str, n_task: int, select: int, device: str, limit: float) -> _Shared:
    key = (path, n_task, select, device, limit)
    with _lock:
        shared = _models.get(key)
        if shared is None:
            shared = _models[key] = _Shared(AccelModel(path, n_task, select, device, limit), n_task)
        return shared


def _seconds_left(item: Any) -> float | None:
    deadline: float | None = item.deadline
    return None if deadline is None else deadline - time.monotonic()


def _without_first_axis(result: Any) -> Any:
    if isinstance(result, dict):
        return {name: array[0] for name, array in result.items()}
    return result[0]
