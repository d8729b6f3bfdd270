"""Backends in processes of their own."""

from hami_process.errors import ChildDied, ChildTraceback, SharedMemoryFull

__all__ = ["ChildDied", "ChildTraceback", "SharedMemoryFull"]
