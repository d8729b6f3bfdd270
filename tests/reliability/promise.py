"""What the programs of this folder share: each tries one promise for some time, and prints what it measured."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

Figures = dict[str, float | int | str]
CHANCE = 0.05  # that a sample breaks a promise which holds
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "131072"}  # bytes: glibc's own first value


class Broken(SystemExit):
    """A promise does not hold; the text says why."""

    def __init__(self, seen: str) -> None:
        super().__init__(f"broken: {seen}")


def keep(holds: bool, seen: str) -> None:
    """Raise Broken unless the promise holds."""
    if not holds:
        raise Broken(seen)


def shows_more(count: int, tries: int, part: float) -> bool:
    """Whether `count` of some tries shows that it is more than a part of all, and hardly by chance."""

    def likely(n: int) -> float:  # by logarithms: the number of combinations may exceed any float
        combinations = math.lgamma(tries + 1) - math.lgamma(n + 1) - math.lgamma(tries - n + 1)
        return math.exp(combinations + n * math.log(part) + (tries - n) * math.log1p(-part))

    return sum(map(likely, range(count, tries + 1))) < CHANCE


class Clock:
    """The time that a promise is tried for."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def __bool__(self) -> bool:
        return time.monotonic() < self._end


def resident_mb() -> float:
    """Return the resident memory of this process in MB."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def give_freed_memory_back() -> None:
    """Begin this program again with a C library that returns large arrays to the system as soon as they are freed.

    glibc keeps the more, the larger the arrays that a program has freed: then resident memory says little about use.
    """
    if not MALLOC.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **MALLOC})


def left_over() -> tuple[int, int]:
    """Return the number of threads and of descriptors of this process."""
    return len(list(Path("/proc/self/task").iterdir())), len(list(Path("/proc/self/fd").iterdir()))


def main(run: Callable[[float, bool], Figures], promise: str) -> None:
    """Run a promise as a program: `--seconds` says for how long, `--strict` also holds it to its times."""
    parser = argparse.ArgumentParser(description=promise)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to try; default: 10")
    parser.add_argument("--strict", action="store_true", help="also fail if a time is missed, on a quiet machine")
    arguments = parser.parse_args()
    failed: list[threading.ExceptHookArgs] = []

    def note(thread: threading.ExceptHookArgs) -> None:  # Broken ends only its thread
        failed.append(thread)
        threading.__excepthook__(thread)

    threading.excepthook = note
    figures = run(arguments.seconds, arguments.strict)
    keep(not failed, f"a thread ended by {failed[0].exc_value!r}" if failed else "")
    print(json.dumps(figures))
