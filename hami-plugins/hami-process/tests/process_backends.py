"""Backends that child processes import: what `data` says is done in the child."""

from __future__ import annotations

import os
import resource
import threading
import time

import hami
import numpy as np


class ChildOnly:
    """Can be read in the process that made it alone."""

    def __reduce__(self):
        return made_in, (os.getpid(),)


def made_in(pid):
    if pid != os.getpid():
        raise ImportError("no module named only_there")
    return ChildOnly()


class OwnError(Exception):
    """Its constructor takes other arguments than it keeps."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")


class TextlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("there is none")


class Meta(type):
    def __getattribute__(cls, name: str) -> object:
        if name in ("__module__", "__qualname__", "__name__"):
            raise LookupError(name)
        return super().__getattribute__(name)


class NamelessError(Exception, metaclass=Meta):
    pass


class Homeless(type):
    @property
    def __module__(cls) -> str:
        raise LookupError


class HomelessError(Exception, metaclass=Homeless):
    pass


class UntestedError(Exception):
    def __bool__(self) -> bool:
        raise LookupError

    __str__ = __reduce__ = __bool__


class FrozenError(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


class EmptyError(Exception):
    def __len__(self) -> int:
        return 0


HOSTILE = {
    "nameless": NamelessError,
    "homeless": HomelessError,
    "untested": UntestedError,
    "frozen": FrozenError,
    "empty": EmptyError,
}


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    __hash__ = None  # type: ignore[assignment]


@hami.register
class Act(hami.Backend):
    """Does what `data` says."""

    step: int = 1
    note: str = ""
    words: list[str] = ()

    max = 8

    def init(self, options):
        self.instance = options["instance"]
        self.kept = None
        self.saw_cancel = False
        self.batches = []
        if self.note == "exit in init":
            os._exit(3)
        if self.note == "raise in init":
            raise ValueError("no model here")
        if self.note == "raise a long text in init":
            raise ValueError("no model here" * 20_000)
        if self.note == "hang in init":
            threading.Event().wait()
        self.remark("a remark of the child")

    def forward(self, batch):
        self.batches.append(len(batch))
        for item in batch:
            act, *given = item["data"]
            item["result"] = getattr(self, act)(item, *given)

    def close(self):
        if self.note.startswith("/"):
            with open(self.note, "a") as file:
                file.write("closed\n")

    def echo(self, item, value):
        return value

    def describe(self, item):
        return {
            "pid": os.getpid(),
            "step": self.step,
            "texts": [self.note, *self.words],
            "instance": self.instance,
            "keys": sorted(item.keys()),
            "deadline": item.deadline,
            "priority": item.priority,
            "batches": self.batches[-1:],
            "variable": os.environ.get("HAMI_TEST_VARIABLE"),
        }

    def fail(self, item, kind):
        if kind == "own":
            raise OwnError(7, "unknown here")
        if kind == "textless":
            raise TextlessError
        if kind == "item":
            item.fail(KeyError("only this one"))
            return None
        if kind in HOSTILE:
            raise HOSTILE[kind]("bad")
        if kind == "huge":
            raise ValueError("x" * (64 << 20))
        raise ValueError("bad value")

    def fail_with(self, item, array):
        raise ValueError("bad value")

    def unsendable(self, item, where):
        lock = threading.Lock()
        return lock if where == "alone" else {"boxes": ((0.5, 0.5), [], "third", {7: lock})}

    def array_facts(self, item, array):
        return (array.flags.owndata, array.flags.writeable, float(array.sum()))

    def keep(self, item, array):
        self.kept = array
        return True

    def kept_sum(self, item):
        return float(self.kept.sum())

    def full(self, item, size, value):
        return np.full(size, value)

    def signal(self, item, number):
        os.kill(os.getpid(), number)
        threading.Event().wait()

    def exit(self, item, status):
        os._exit(status)

    def leave_a_process(self, item):
        if os.fork() == 0:
            threading.Event().wait()
        os._exit(1)

    def mapped_blocks(self, item):
        with open("/proc/self/maps") as file:
            return file.read().count("memfd:hami-process")

    def open_no_more_files(self, item):
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    def numbers(self, item, count):
        return list(range(count))

    def until_cancelled(self, item):
        self.log.warning("it waits")
        while not item.cancelled:
            time.sleep(0.001)
        self.saw_cancel = True

    def was_cancelled(self, item):
        saw, self.saw_cancel = self.saw_cancel, False
        return saw

    def hang(self, item):
        self.log.warning("it hangs")
        threading.Event().wait()

    def log_and_count(self, item, text):
        self.log.warning("child says %s", text)
        self.count("said")
        return True

    def emit_all(self, item, values):
        return [item.emit(value) for value in values]

    def emit_child_only(self, item, count):
        return [item.emit(ChildOnly()) for _ in range(count)]

    def spin(self, item, rounds):
        total = 0
        for number in range(rounds):
            total += number
        return total

    def no_result(self, item):
        return None


@hami.register
class LeavesNothing(hami.Backend):
    """Sets no result."""

    def forward(self, batch): ...


@hami.register
class Letters(hami.Backend):
    """Yields letters, in a process of its own."""

    thread = "process"

    def forward(self, batch):
        yield from batch[0]["data"]
