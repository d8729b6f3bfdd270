"""Blocks of shared memory for arrays and long texts: the sender fills a block, the receiver reads it in place.

A block is busy from the moment that it is sent until the receiver holds no view of it, and is not used again before.
The parent creates the memory of both directions, so that it enforces their limit.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hami_process.errors import SharedMemoryFull
from hami_process.native import Memory, Word

HEAD = 64  # bytes before the content: the word that says whether the block is busy
SMALLEST = 1 << 20
MOST_IDLE = 8  # blocks that are too small for what is sent now, before they are given back


class Block:
    """One block, as both sides know it."""

    def __init__(self, number: int, memory: Memory) -> None:
        self.number, self.memory = number, memory
        self.capacity = memory.size - HEAD
        self.busy = Word(memory, 0)
        self.content = memory.address + HEAD

    def view(self, offset: int, size: int, owner: Any = None) -> View:
        return View(self, self.content + offset, size, owner)


class View:
    """A part of a block that numpy can use as an array of bytes."""

    __slots__ = ("__array_interface__", "_block", "_owner")

    def __init__(self, block: Block, address: int, size: int, owner: Any) -> None:
        self._block, self._owner = block, owner
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, False)}


class Hold:
    """What keeps a received block busy: all views of it have this object. Copies in forked processes do not count."""

    __slots__ = ("_block", "_held", "_pid")

    def __init__(self, block: Block, held: Held) -> None:
        self._block, self._held, self._pid = block, held, os.getpid()
        held.blocks[block.number] = block.capacity

    def __del__(self) -> None:
        self._held.blocks.pop(self._block.number, None)
        # The collector of a cycle may have ended the memory first.
        if self._pid == os.getpid() and self._block.memory.address:
            self._block.busy.store(0)


class Held:
    """How much a receiver keeps busy; above the limit it copies."""

    def __init__(self, limit: int) -> None:
        self.blocks: dict[int, int] = {}  # their sizes, by number
        self._limit = limit

    @property
    def is_low(self) -> bool:
        return sum(self.blocks.values()) <= self._limit


class Sender:
    """The blocks of one direction, for the process that fills them."""

    def __init__(self, create: Callable[[int, list[int]], Block]) -> None:
        self._create = create
        self._blocks: dict[int, Block] = {}
        self.sent: list[Block] = []  # of the message that is being written

    def block(self, size: int) -> Block:
        """Return a block that is not busy, and make it busy."""
        fitting = [block for block in map(self._blocks.__getitem__, self.idle()) if block.capacity >= size]
        block = min(fitting, key=lambda each: each.capacity) if fitting else self._new(size)
        block.busy.store(1)
        self.sent.append(block)
        return block

    def take_back(self) -> None:
        """Make the blocks of a message that was not sent idle again."""
        for block in self.sent:
            block.busy.store(0)
        self.sent.clear()

    def idle(self) -> list[int]:
        """Return the numbers of blocks that are not busy. A list of the blocks would keep their memory."""
        return [number for number, block in self._blocks.items() if not block.busy.load()]

    def forget(self, numbers: list[int]) -> None:
        for number in numbers:
            self._blocks.pop(number, None)

    def _new(self, size: int) -> Block:
        wanted = SMALLEST
        while wanted < size:
            wanted += max(wanted // 4, SMALLEST)
        idle = self.idle()
        dropped = idle if len(idle) >= MOST_IDLE else []
        try:
            block = self._make(wanted, dropped)
        except SharedMemoryFull:
            dropped = self.idle()
            if not dropped:
                raise
            block = self._make(wanted, dropped)
        self._blocks[block.number] = block
        return block

    def _make(self, size: int, dropped: list[int]) -> Block:
        self.forget(dropped)
        return self._create(HEAD + size, dropped)


class Budget:
    """How many bytes of shared memory one child may have in both directions."""

    def __init__(self, limit: int) -> None:
        self._limit, self._sizes = limit, dict[int, int]()
        self._last = 0

    def add(self, size: int) -> int:
        """Count a new block, and return its number."""
        used = sum(self._sizes.values())
        if used + size > self._limit:
            raise SharedMemoryFull(
                f"the arrays need {size:,} more bytes of shared memory; {used:,} are in use, and shared_memory allows "
                f"{self._limit:,}: raise it, send smaller batches, or keep fewer results"
            )
        self._last += 1
        self._sizes[self._last] = size
        return self._last

    def remove(self, numbers: list[int]) -> None:
        for number in numbers:
            self._sizes.pop(number, None)
