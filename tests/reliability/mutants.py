"""Mutants: the scheduler and the parser with one operator, constant or statement changed; their C++ tests notice it.

    python tests/reliability/mutants.py --seconds 600
    python tests/reliability/mutants.py --mutants 60 --seed 2

Each mutant is a copy of one source file, compiled and linked before the core of the development build, whose
files stay as they are. A random sample, the same in each run with the same seed, is tried until the time is over; those
that survive are listed. A mutant whose optimized code is that of the original changes nothing, and does not count.
Headers are left out: a change of one would compile most of the tests again. So are assertions, and lines that only
reserve memory.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import relinked
from promise import Clock, Figures, keep, shows_more

PROMISED = 0.85  # of the mutants are noticed
SIMULATIONS = "policy: *"  # tests that take most of the time, so that they see only what the others do not notice
SLOWER = 5.0  # a mutant that takes so many times the time of the tests, and 20 s, hangs
NOT_MUTATED = re.compile(r"HAMI_ASSERT|static_assert|reserve\(|^\s*(#|template|using|operator)|= default|= delete")
HIDDEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|//.*')  # text, characters and comments

# The source is formatted, so binary operators have spaces around them. Texts have few of these.
PAIRS = ("< <=", "> >=", "== !=", "&& ||", "+ -", "* /", "+= -=")
SWAPPED = [pair for text in PAIRS for pair in (text.split(), text.split()[::-1])]
CHANGES: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    *((rf"(?<!\0) {re.escape(old)} (?!\0)", f" {new} ") for old, new in SWAPPED),
    (r"\+\+(?=\w)", "--"),
    (r"--(?=\w)", "++"),
    (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"),
    (r"(?<![\w.])\d+(?![\w.'])", lambda found: str(int(found[0]) + 1)),
    (r"\bif \((?!const|auto)([^;=]*)\) (?=\{|return|continue|break)", lambda found: f"if (!({found[1]})) "),
    (r"(?<=^  )\s*(?!return|throw|const|auto|using|case|default|break|continue)[\w.>-]+\(.*\);$", ";"),
]


@dataclass(frozen=True)
class Mutant:
    file: Path
    number: int  # of the line
    line: str  # changed

    def __str__(self) -> str:
        return f"{self.file.relative_to(relinked.ROOT)}:{self.number}: {self.line.strip()}"

    def text(self) -> str:
        """Return the whole file."""
        lines = self.file.read_text("utf-8").splitlines(keepends=True)
        lines[self.number - 1] = f"{self.line}\n"
        return "".join(lines)


def mutants_of(file: Path) -> Iterator[Mutant]:
    """Yield each change of one place of a source file."""
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if NOT_MUTATED.search(line):
            continue
        code = HIDDEN.sub(lambda found: "\0" * len(found[0]), line)
        for pattern, new in CHANGES:
            for hidden in re.finditer(pattern, code):
                found = re.compile(pattern).match(line, hidden.start())
                if found and found.end() == hidden.end():
                    by = new if isinstance(new, str) else new(found)
                    yield Mutant(file, number, line[: found.start()] + by + line[found.end() :])


class Room:
    """The mutants of a room, and the tests that try them."""

    def __init__(self, name: str) -> None:
        self._name, self._build, self._chosen = name, relinked.Tests(), relinked.test_files(name)
        began = time.monotonic()
        keep(self._passes(relinked.BUILD / relinked.PROGRAM, 600), f"the tests of {name} fail without a mutant")
        self._timeout_s = 20 + SLOWER * (time.monotonic() - began)

    def mutants(self, seed: int) -> list[Mutant]:
        """Return all of them in a random order."""
        mutants = [mutant for file in relinked.sources(self._name) for mutant in mutants_of(file)]
        random.Random(f"{self._name} {seed}").shuffle(mutants)
        return mutants

    def survives(self, mutant: Mutant) -> bool | None:
        """Return whether the tests pass with the mutant; None if it does not compile, or changes nothing."""
        with tempfile.TemporaryDirectory() as name:
            source, made = Path(name, "changed.cpp"), Path(name, "changed.o")

            def compiled(text: str, level: str) -> bool:
                source.write_text(text, "utf-8")
                return self._build.compile(mutant.file, source, made, "g++", level)

            if not compiled(mutant.text(), "-O0"):
                return None
            program = self._build.link([made], f"hami_{self._name}_{Path(name).name}", "g++")
            try:
                if self._notices(program):
                    return False
            finally:
                program.unlink()
            texts = (mutant.file.read_text("utf-8"), mutant.text())
            optimized = {made.read_bytes() for text in texts if compiled(text, "-O2")}
            return True if len(optimized) == len(texts) else None

    def _notices(self, program: Path) -> bool:
        """Return whether the tests fail or hang. They fail twice, because a loaded machine may fail one of times."""
        try:
            return not any(self._passes(program, self._timeout_s) for _ in range(2))
        except subprocess.TimeoutExpired:
            return True

    def _passes(self, program: Path, timeout_s: float) -> bool:
        """Run the tests until the first one fails, those that are quick first."""
        for option in (f"--test-case-exclude={SIMULATIONS}", f"--test-case={SIMULATIONS}"):
            command = [program, self._chosen, option, "--abort-after=1"]
            if subprocess.run(command, capture_output=True, timeout=timeout_s, check=False).returncode:
                return False
        return True


def try_room(name: str, clock: Clock, most: int | None, seed: int) -> tuple[int, list[Mutant]]:
    """Return how many mutants of the room were tried, and those that the tests did not notice."""
    room = Room(name)
    mutants = room.mutants(seed)[:most]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        ends = list(pool.map(lambda mutant: room.survives(mutant) if clock else None, mutants))
    survived = [mutant for mutant, survives in zip(mutants, ends, strict=True) if survives]
    return sum(survives is not None for survives in ends), survived


def run(seconds: float, most: int | None, seed: int) -> Figures:
    """Give each room its share of the time."""
    figures: Figures = {}
    broken = []
    for room in relinked.ROOMS:
        tried, survived = try_room(room, Clock(seconds / len(relinked.ROOMS)), most, seed)
        keep(tried > 0, f"no mutant of {room} was tried in {seconds} s")
        print(*(f"survived: {mutant}" for mutant in survived), sep="\n", file=sys.stderr)
        figures |= {f"mutants of {room}": tried, f"not noticed in {room}": len(survived)}
        if shows_more(len(survived), tried, 1 - PROMISED):
            broken += [f"{len(survived)} of {tried} mutants of {room} were not noticed", *map(str, survived)]
    keep(not broken, "\n".join(broken))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=math.inf, help="how long to try; default: until all are tried")
    parser.add_argument("--mutants", type=int, metavar="N", help="how many to try of each room at most")
    parser.add_argument("--seed", type=int, default=0, help="of the random sample; default: 0")
    parser.add_argument("--strict", action="store_true", help="no effect: this promise has no times")
    arguments = parser.parse_args()
    print(json.dumps(run(arguments.seconds, arguments.mutants, arguments.seed)))


if __name__ == "__main__":
    main()
