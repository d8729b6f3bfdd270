"""CUDA streams: which are lent to whom, and how work on one is put in order with work outside it.

The rule. Outside a backend of this package a CUDA tensor is in order with the default stream of its device, as torch
has it. Inside an instance the current stream counts: the default one, or that of a guard. `arrive` is said for tensors
that come in, `hand_over` (_handing_over.py) by the guard when its work is given. Neither makes the CPU wait.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from hami_torch._torch import torch

# On a tensor that a backend made on a guard's stream, until it leaves the guard: the stream's handle.
_MADE_ON = "_hami_stream"

_lock = threading.Lock()  # guards _idle and _lent
_idle: dict[torch.device, list[torch.cuda.Stream]] = {}
_lent: dict[torch.device, set[int]] = {}
_seen: dict[tuple[torch.device, int], torch.cuda.Stream] = {}  # by handle: the default streams, and those once lent


def lease(device: torch.device) -> torch.cuda.Stream:
    """Return a stream that nobody else holds.

    Those given back come first: libraries below torch keep a workspace for every stream that they have seen.
    """
    with _lock:
        lent = _lent.setdefault(device, set())
        idle = _idle.setdefault(device, [])
        stream = idle.pop() if idle else _unused(device, lent)
        lent.add(stream.cuda_stream)
        return stream


def _unused(device: torch.device, lent: set[int]) -> torch.cuda.Stream:
    # torch hands out 32 streams in turn; with more than that in use, two holders share one and take turns.
    stream = torch.cuda.Stream(device)
    for _ in range(32):
        if stream.cuda_stream not in lent:
            break
        stream = torch.cuda.Stream(device)
    return stream


def give_back(stream: torch.cuda.Stream) -> None:
    with _lock:
        _lent[stream.device].discard(stream.cuda_stream)
        _idle[stream.device].append(stream)


def current_handle(device: torch.device) -> int:
    """Return the handle of the stream that this thread works on; 0 is the default one, and the CPU."""
    index = device.index
    return 0 if index is None else int(torch._C._cuda_getCurrentRawStream(index))


def current(device: torch.device) -> torch.cuda.Stream:
    """Return the stream that this thread works on, without making an object of it each time as torch does.

    It is asked for several times in every batch.
    """
    handle: int = torch._C._cuda_getCurrentRawStream(device.index)
    stream = _seen.get((device, handle))
    if stream is None:
        stream = torch.cuda.current_stream(device)
        if handle == 0 or handle in _lent.get(device, ()):
            _seen[device, handle] = stream
    return stream


def default(device: torch.device) -> torch.cuda.Stream:
    """Return the default stream, as `current` returns the current one."""
    stream = _seen.get((device, 0))
    if stream is None:
        stream = _seen[device, 0] = torch.cuda.default_stream(device)
    return stream


def on_callers_own(device: torch.device) -> bool:
    """Whether this thread works on a stream that no guard lent: nothing that comes or leaves is in order with it."""
    return _this.held is None and current_handle(device) != 0


class using:
    """with using(stream): work on that stream, as torch.cuda.stream does with more ado."""

    __slots__ = ("_device", "_outer", "_stream")

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        self._device = torch._C._cuda_getDevice()
        self._outer = current(self._stream.device)
        torch.cuda.set_stream(self._stream)  # also makes its device the current one

    def __exit__(self, *_: object) -> None:
        torch.cuda.set_stream(self._outer)
        if self._device != self._stream.device.index:
            torch.cuda.set_device(self._device)


@contextmanager
def on_default(device: torch.device) -> Iterator[None]:
    """Work on the default stream for a caller on a stream of its own: after what is on that now, before what comes."""
    callers, ours = current(device), default(device)
    ours.wait_stream(callers)
    with using(ours):
        yield
    callers.wait_stream(ours)


def spin(stream: torch.cuda.Stream) -> None:
    """Wait until the work on a stream is done; the core is kept busy, and sees it at once."""
    stream.synchronize()


def sleep(stream: torch.cuda.Stream) -> None:
    """Wait until the work on a stream is done; the core is free for others, and wakes up a tenth of a ms later."""
    done = torch.cuda.Event(blocking=True)
    done.record(stream)
    done.synchronize()


_OFTEN = 2  # a batch arrives so often at most, as a rule; what is held beyond that was left behind by one that failed


class _OfThread(threading.local):
    """What came into the guard that this thread works for, until that has handed over; None without a guard."""

    held: list[Any] | None = None


_this = _OfThread()


def hold(held: list[Any] | None) -> list[Any] | None:
    """Have what arrives on this thread held in that list from now on, and return the one before."""
    before, _this.held = _this.held, held
    return before


def let_go(read_on: torch.cuda.Stream | None = None) -> None:
    """Drop what was held. Who gets its memory next works after what read it, but where that is still to be done."""
    if _this.held:
        if read_on is not None:
            keep(_this.held, read_on)
        _this.held.clear()


def arrive(value: Any, device: torch.device) -> None:
    """Let the current stream wait for tensors made outside it, and keep their memory until it has read them.

    In a guard they are held until it hands over, which costs less than to record each on the stream.
    """
    handle = current_handle(device)
    if handle == 0 or not any(_made_elsewhere(tensor, handle) for tensor in tensors_in(value)):
        return
    stream = current(device)
    follow(stream, default(device))
    if _this.held is not None:  # else this is CpuTensor, which waits
        if len(_this.held) >= _OFTEN:
            let_go(stream)
        _this.held.append(value)


def _made_elsewhere(tensor: torch.Tensor, handle: int) -> bool:
    return getattr(tensor, _MADE_ON, None) != handle


def follow(stream: torch.cuda.Stream, other: torch.cuda.Stream) -> None:
    """Have what is put on `stream` from now on run after what is on `other` now.

    Most often nothing is: to ask costs less than an event and the wait for it, which lets Python's lock go.
    """
    if not other.query():
        stream.wait_stream(other)


def keep(value: Any, stream: torch.cuda.Stream) -> None:
    """Have the memory of tensors not given to others before `stream` is done with it."""
    seen = set()
    for tensor in tensors_in(value):
        base = tensor._base
        whole = id(tensor if base is None else base)  # the rows of a batch are views of one tensor
        if whole not in seen:
            seen.add(whole)
            tensor.record_stream(stream)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the CUDA tensors in a value: itself, or those in its lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        if value.is_cuda:
            yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)


def made(tensor: torch.Tensor, handle: int) -> None:
    """Note that a tensor was made on the stream of that handle, so that the next backend there need not wait."""
    setattr(tensor, _MADE_ON, handle)


def forget(tensor: torch.Tensor) -> None:
    """Take the note away: outside its guard a tensor may be worked on by anyone."""
    with suppress(AttributeError):  # of a tensor that two instances give, the other may have taken it away just now
        delattr(tensor, _MADE_ON)
