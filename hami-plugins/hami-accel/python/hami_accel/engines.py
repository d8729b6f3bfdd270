"""engine_of: the engine of each device, of the kind that its clock needs."""

from __future__ import annotations

import os
import threading

from hami_accel.device import Device
from hami_accel.engine import DEFAULT_AGEING, DEFAULT_CALL_TIMEOUT, Engine, ThreadEngine
from hami_accel.virtual_engine import VirtualEngine

_engines_lock = threading.Lock()


def _reset_after_fork() -> None:
    global _engines_lock
    _engines_lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)


def engine_of(
    device: Device,
    *,
    ageing: float | None = DEFAULT_AGEING,
    call_timeout: float | None = DEFAULT_CALL_TIMEOUT,
    preempt: bool = True,
) -> Engine:
    """Return the engine of a device, which all its models share; the first call creates it with these settings.

    A forked child has another one.

    Args:
        device: the device.
        ageing: seconds that a task of a lower level waits at most; None: as long as it takes.
        call_timeout: seconds after which a function-call without an answer is lost; None: never.
        preempt: False makes the engine a priority queue: a task that runs is finished first.
    """
    with _engines_lock:
        engine: Engine | None = device._engine
        if engine is None or engine.process != os.getpid():
            kind = ThreadEngine if device.clock is None else VirtualEngine
            engine = kind(device, ageing=ageing, call_timeout=call_timeout, preempt=preempt)
            device._engine = engine
        return engine
