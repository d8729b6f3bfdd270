"""The functions of the native library: shared memory, and waits that hold no GIL."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from typing import Any

import hami

from hami_process.errors import SharedMemoryFull

DONE, TIMEOUT, CLOSED, INTERRUPTED = 0, -1, -2, -3  # as Outcome in src/mailbox.hpp
SECOND = 1_000_000_000  # nanoseconds
FOLDER = "/dev/shm"  # of memory where the system has no memfd
_P, _I32, _U32, _I64, _U64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64


_FUNCTIONS = {  # those of src/plugin.cpp, in the same order
    "create_memory": ctypes.CFUNCTYPE(_I32, _U64, _I32, ctypes.c_char_p),
    "map_memory": ctypes.CFUNCTYPE(_P, _I32, _U64),
    "unmap_memory": ctypes.CFUNCTYPE(None, _P, _U64),
    "put": ctypes.CFUNCTYPE(_I32, _P, _P, ctypes.c_char_p, _U32, _I64),
    "take": ctypes.CFUNCTYPE(_I32, _P, _P, _P, _U32, _I64),
    "close": ctypes.CFUNCTYPE(None, _P),
    "load": ctypes.CFUNCTYPE(_U32, _P),
    "store": ctypes.CFUNCTYPE(None, _P, _U32),
    "wait": ctypes.CFUNCTYPE(_I32, _P, _U32, _I64),
    "end_with_parent": ctypes.CFUNCTYPE(_I32, _I32, _I32),
}


@functools.cache
def functions() -> Any:
    return hami.native.functions("hami-process::ProcessFunctions", **_FUNCTIONS)


def create_memory(size: int) -> int:
    """Return the descriptor of new shared memory.

    Raises:
        SharedMemoryFull: The system has not that much.
    """
    without_memfd = os.environ.get("HAMI_PROCESS_MEMFD") == "0"
    descriptor = int(functions().create_memory(size, without_memfd, FOLDER.encode()))
    if descriptor >= 0:
        return descriptor
    reason = os.strerror(-descriptor)
    advice = ""
    if -descriptor == errno.ENOSPC:
        advice = f"; the system forbids memfd and {FOLDER} is full: give the container a larger one (--shm-size)"
    raise SharedMemoryFull(f"cannot create {size:,} bytes of shared memory: {reason}{advice}")


class Memory:
    """Memory that two processes have mapped. It stays mapped as long as this object exists."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._unmap = functions().unmap_memory
        self.address = int(functions().map_memory(descriptor, size) or 0)
        if not self.address:
            raise SharedMemoryFull(f"cannot map {size:,} bytes of shared memory")

    def __del__(self) -> None:
        if address := getattr(self, "address", 0):
            self.address = 0
            self._unmap(address, self.size)


class Mailbox:
    """Passes one message at a time to another process. `src/mailbox.hpp` has the rules."""

    def __init__(self, memory: Memory, head: int, room: int, capacity: int) -> None:
        self._memory = memory
        self._box, self._room, self.capacity = memory.address + head, memory.address + room, capacity
        self._put, self._take, self._close = functions().put, functions().take, functions().close

    def put(self, message: bytes, timeout: int) -> int:
        if len(message) > self.capacity:
            raise ValueError(f"a message of {len(message)} bytes in a mailbox of {self.capacity}")
        return int(self._put(self._box, self._room, message, len(message), timeout))

    def reader(self) -> tuple[memoryview, Any]:
        """Return a buffer, and `take(timeout)`, which fills it and returns the size of a message, or an outcome."""
        buffer = ctypes.create_string_buffer(self.capacity)
        address, take = ctypes.addressof(buffer), self._take
        box, room, capacity = self._box, self._room, self.capacity
        return memoryview(buffer), lambda timeout: take(box, room, address, capacity, timeout)

    @property
    def is_full(self) -> bool:
        return bool(functions().load(self._box) & 1)

    def close(self) -> None:
        self._close(self._box)


class Word:
    """A number of 32 bits in shared memory, for whose change a thread can wait."""

    def __init__(self, memory: Memory, offset: int) -> None:
        self._memory, self._address = memory, memory.address + offset
        self._load, self._store, self._wait = functions().load, functions().store, functions().wait

    def load(self) -> int:
        return int(self._load(self._address))

    def store(self, value: int) -> None:
        self._store(self._address, value)

    def wait(self, seen: int, timeout: int) -> int:
        return int(self._wait(self._address, seen, timeout))


class Control:
    """The memory with the mailboxes of one child.

    | offset | content |
    |---|---|
    | 0, 64 | the mailboxes to the child and to the parent |
    | 128 | the number of the batch that is cancelled |
    | 4096 | the bytes of the messages |
    | SIZE | what the child begins with, in any length: a message on the socket has a limit |
    """

    CAPACITY = 256 << 10
    SIZE = 4096 + 2 * CAPACITY

    def __init__(self, descriptor: int) -> None:
        memory = Memory(descriptor, self.SIZE)
        self.to_child = Mailbox(memory, 0, 4096, self.CAPACITY)
        self.to_parent = Mailbox(memory, 64, 4096 + self.CAPACITY, self.CAPACITY)
        self.cancelled = Word(memory, 128)

    def close(self) -> None:
        self.to_child.close()
        self.to_parent.close()
