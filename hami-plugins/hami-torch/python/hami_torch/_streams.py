"""Lend CUDA streams and order the work of one stream with the work outside it.

The ordering rule: outside the backends of this package, a CUDA tensor is ordered with the default stream of its device,
as usual in torch. Inside an instance it is ordered with the current stream: the default stream, the stream of a guard
(SyncTensor, StreamGuard, StreamPool), or that of the instance, which hami-cuda sets. `wait_for_inputs` handles tensors
that enter an instance, `hand_off_results` (_stream_handoff.py) handles tensors that leave one of these streams. Neither
makes the CPU wait.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from hami_torch._torch import torch, torch_untyped

# Attribute of a tensor that was made on a guard's stream: the handle of that stream. Removed when it leaves the guard.
_STREAM_MARK = "_hami_stream"
_TORCH_STREAMS = 32  # torch creates this many streams per device and priority, and then hands them out again

_lock = threading.Lock()  # guards _idle and _leased
_idle: dict[torch.device, list[torch.cuda.Stream]] = {}
_leased: dict[torch.device, set[int]] = {}
# Stream objects by handle, so that `current_stream` need not make them: default streams and streams that were leased.
_known_streams: dict[tuple[torch.device, int], torch.cuda.Stream] = {}


def _reset_after_fork() -> None:
    """Replace the lock, which a thread of the parent may hold."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)


def lease(device: torch.device) -> torch.cuda.Stream:
    """Return a stream that has no other holder, as long as torch has one.

    Released streams are reused first: the libraries below torch keep a workspace for every stream that they have seen.
    """
    with _lock:
        leased = _leased.setdefault(device, set())
        idle = _idle.setdefault(device, [])
        stream = idle.pop() if idle else _new_stream(device, leased)
        leased.add(stream.cuda_stream)
        return stream


def _new_stream(device: torch.device, leased: set[int]) -> torch.cuda.Stream:
    """Return a stream outside `leased`; if all of torch's streams are leased, two holders share one."""
    stream: torch.cuda.Stream = torch_untyped.cuda.Stream(device)
    for _ in range(_TORCH_STREAMS):
        if stream.cuda_stream not in leased:
            break
        stream = torch_untyped.cuda.Stream(device)
    return stream


def release(stream: torch.cuda.Stream) -> None:
    """Take back a leased stream."""
    with _lock:
        _leased[stream.device].discard(stream.cuda_stream)
        _idle[stream.device].append(stream)


def stream_of_instance(options: Any, device: torch.device) -> torch.cuda.Stream | None:
    """Return the stream that the backends of an instance share, by its options; None if there is none yet."""
    handle: int = options.get(_option(device), 0)
    if not handle:
        return None
    stream = _known_streams.get((device, handle))
    if stream is None:
        stream = _known_streams[device, handle] = torch_untyped.cuda.ExternalStream(handle, device)
    return stream


def share_stream(options: Any, stream: torch.cuda.Stream) -> None:
    """Make a stream that of the instance, also for native backends."""
    options[_option(stream.device)] = int(stream.cuda_stream)


def _option(device: torch.device) -> str:
    return f"stream.{device}"


def current_handle(device: torch.device) -> int:
    """Return the handle of this thread's current stream; 0 is the default stream, and stands for the CPU."""
    index = device.index
    return 0 if index is None else int(torch._C._cuda_getCurrentRawStream(index))


def current_stream(device: torch.device) -> torch.cuda.Stream:
    """Return this thread's current stream.

    Unlike torch, this does not make an object on each call, because several calls are made in every batch.
    """
    handle: int = torch._C._cuda_getCurrentRawStream(device.index)
    stream = _known_streams.get((device, handle))
    if stream is None:
        stream = torch.cuda.current_stream(device)
        if handle == 0 or handle in _leased.get(device, ()):
            _known_streams[device, handle] = stream
    return stream


def default_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the default stream of the device; the object is made once."""
    stream = _known_streams.get((device, 0))
    if stream is None:
        stream = _known_streams[device, 0] = torch.cuda.default_stream(device)
    return stream


def is_in_guard() -> bool:
    """Whether this thread works for a guard, whose stream is then the current one."""
    return _thread.held_inputs is not None


def is_on_foreign_stream(device: torch.device) -> bool:
    """Whether the current stream is neither the default stream nor a guard's: the caller selected it."""
    return not is_in_guard() and current_handle(device) != 0


class use_stream:
    """Context manager: make `stream` the current one. Does less work than torch.cuda.stream."""

    __slots__ = ("_device", "_outer", "_stream")

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        self._device = torch._C._cuda_getDevice()
        self._outer = current_stream(self._stream.device)
        torch.cuda.set_stream(self._stream)  # also makes the stream's device the current one

    def __exit__(self, *_: object) -> None:
        torch.cuda.set_stream(self._outer)
        if self._device != self._stream.device.index:
            torch.cuda.set_device(self._device)


@contextmanager
def use_stream_of(device: torch.device, handle: int) -> Iterator[None]:
    """Work on the stream with this handle, which is the current one as a rule; nothing on the CPU."""
    if device.type != "cuda" or current_handle(device) == handle:
        yield
        return
    stream = _known_streams.get((device, handle)) if handle else default_stream(device)
    with use_stream(torch_untyped.cuda.ExternalStream(handle, device) if stream is None else stream):
        yield


@contextmanager
def use_default_stream(device: torch.device) -> Iterator[None]:
    """Work on the default stream, ordered after earlier and before later work on the caller's stream."""
    callers, default = current_stream(device), default_stream(device)
    default.wait_stream(callers)
    with use_stream(default):
        yield
    callers.wait_stream(default)


def wait_spinning(stream: torch.cuda.Stream) -> None:
    """Block until the work on the stream is done. Keeps a CPU core busy and returns at once."""
    stream.synchronize()


def wait_sleeping(stream: torch.cuda.Stream) -> None:
    """Block until the work on the stream is done. Leaves the CPU core to others and returns about 0.1 ms later."""
    done = torch_untyped.cuda.Event(blocking=True)
    done.record(stream)
    done.synchronize()


# A batch calls `wait_for_inputs` at most this often, as a rule. More entries than that are left from a failed batch.
_MAX_HELD_INPUTS = 2


class _ThreadState(threading.local):
    held_inputs: list[Any] | None = None  # inputs of the guard that this thread works for; None outside a guard


_thread = _ThreadState()


def swap_held_inputs(held: list[Any] | None) -> list[Any] | None:
    """Set the list that holds the inputs of this thread's guard, and return the previous list."""
    previous, _thread.held_inputs = _thread.held_inputs, held
    return previous


def drop_held_inputs(last_reader: torch.cuda.Stream | None = None) -> None:
    """Drop the references to held inputs.

    The stream outside the guard must already be ordered after the work that reads them. If it is not, pass the stream
    of that work as `last_reader`: their memory is then not reused before this stream is done with it.
    """
    if _thread.held_inputs:
        if last_reader is not None:
            record_use(_thread.held_inputs, last_reader)
        _thread.held_inputs.clear()


def wait_for_inputs(value: Any, device: torch.device) -> None:
    """Make the current stream wait for tensors that were made outside it, and keep their memory until it has read them.

    Inside a guard, references to them are held until the guard hands off; this costs less than recording each on the
    stream.
    """
    handle = current_handle(device)
    if handle == 0 or not any(_is_from_other_stream(tensor, handle) for tensor in cuda_tensors_in(value)):
        return
    stream = current_stream(device)
    wait_for_stream(stream, default_stream(device))
    if _thread.held_inputs is not None:  # it is None for CpuTensor, which waits for its copies
        if len(_thread.held_inputs) >= _MAX_HELD_INPUTS:
            drop_held_inputs(stream)
        _thread.held_inputs.append(value)


def _is_from_other_stream(tensor: torch.Tensor, handle: int) -> bool:
    return getattr(tensor, _STREAM_MARK, None) != handle


def wait_for_stream(stream: torch.cuda.Stream, other: torch.cuda.Stream) -> None:
    """Order later work on `stream` after the work that is on `other` now.

    `other` is usually idle. The query costs less than an event and a wait, which release the GIL.
    """
    if not other.query():
        stream.wait_stream(other)


def record_use(value: Any, stream: torch.cuda.Stream) -> None:
    """Keep the memory of the tensors in `value` from being reused before `stream` is done with it."""
    seen = set()
    for tensor in cuda_tensors_in(value):
        base = tensor._base
        memory = id(tensor if base is None else base)  # the rows of a batch are views of one tensor
        if memory not in seen:
            seen.add(memory)
            tensor.record_stream(stream)


def cuda_tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the CUDA tensors in a value: itself, or those in its lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        if value.is_cuda:
            yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from cuda_tensors_in(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from cuda_tensors_in(part)


def mark_stream(tensor: torch.Tensor, handle: int) -> None:
    """Mark a tensor as made on the stream with this handle, so that the next backend there need not wait for it."""
    setattr(tensor, _STREAM_MARK, handle)


def clear_stream_mark(tensor: torch.Tensor) -> None:
    """Remove the mark: outside its guard, a tensor may be used on any stream."""
    with suppress(AttributeError):  # if two instances return the same tensor, the other one may have removed it
        delattr(tensor, _STREAM_MARK)
