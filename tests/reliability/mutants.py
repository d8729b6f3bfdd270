"""Mutants: the scheduler and the parser with one operator, constant or statement changed; their C++ tests notice it.

    python tests/reliability/mutants.py --seconds 600

Each mutant is a copy of one source file, compiled and linked before the core of the development build, whose
files stay as they are. A random sample, the same in each run, is tried until the time is over; those that survive are
listed. Headers are left out: a change of one would compile most of the tests again. So are assertions, and lines that
only reserve memory.
"""

from __future__ import annotations

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
from promise import Clock, Figures, keep, main, shows_more

PROMISED = 0.85  # of the mutants are noticed
SIMULATIONS = "policy: *"  # tests that take most of the time, so that they see only what the others do not notice
SLOWER = 5.0  # a mutant that takes so many times the time of the tests, and 20 s, hangs
NOT_MUTATED = re.compile(r"HAMI_ASSERT|static_assert|reserve\(|^\s*(#|template|using|operator)|= default|= delete")
HIDDEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|//.*')  # text, characters and comments

# The source is formatted, so binary operators have spaces around them.
PAIRS = ("< <=", "> >=", "== !=", "&& ||", "+ -", "* /", "+= -=")
SWAPPED = [pair for text in PAIRS for pair in (text.split(), text.split()[::-1])]
CHANGES: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    *((rf" {re.escape(old)} ", f" {new} ") for old, new in SWAPPED),
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
    line: int
    text: str  # of the whole line, changed

    def __str__(self) -> str:
        return f"{self.file.relative_to(relinked.ROOT)}:{self.line}: {self.text.strip()}"


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


def build(tests: relinked.Tests, mutant: Mutant, folder: Path, name: str) -> Path | None:
    """Return the test program with the mutant in it; None if it does not compile."""
    source, made = folder / f"{name}.cpp", folder / f"{name}.o"
    lines = mutant.file.read_text("utf-8").splitlines()
    lines[mutant.line - 1] = mutant.text
    source.write_text("\n".join(lines) + "\n", "utf-8")
    compiles = tests.compile(mutant.file, source, made, "g++")
    return tests.link([made], name, "g++") if compiles else None


def passes(program: Path, chosen: str, timeout_s: float) -> bool:
    """Run the tests until the first one fails, those that are quick first."""
    for option in (f"--test-case-exclude={SIMULATIONS}", f"--test-case={SIMULATIONS}"):
        command = [program, chosen, option, "--abort-after=1"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            return False
        if done.returncode:
            return False
    return True


def try_room(room: str, seconds: float) -> tuple[int, list[Mutant]]:
    """Return how many mutants of the room were run, and those that the tests did not notice."""
    mutants = [mutant for file in relinked.sources(room) for mutant in mutants_of(file)]
    random.Random(room).shuffle(mutants)
    clock, tried, survived = Clock(seconds), 0, []
    with tempfile.TemporaryDirectory() as folder:
        tests, chosen = relinked.Tests(), relinked.test_files(room)
        began = time.monotonic()
        keep(passes(relinked.BUILD / relinked.PROGRAM, chosen, 600), f"the tests of {room} fail without a mutant")
        timeout_s = 20 + SLOWER * (time.monotonic() - began)

        def attempt(numbered: tuple[int, Mutant]) -> None:
            nonlocal tried
            number, mutant = numbered
            if not clock or not (program := build(tests, mutant, Path(folder), f"hami_{room}_{number}")):
                return
            passed = passes(program, chosen, timeout_s)
            program.unlink()
            tried += 1
            if passed:
                survived.append(mutant)
                print(f"survived: {mutant}", file=sys.stderr, flush=True)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(attempt, enumerate(mutants)))
    return tried, survived


def run(seconds: float, strict: bool) -> Figures:
    """Give each room its share of the time."""
    figures: Figures = {}
    broken = []
    for room in relinked.ROOMS:
        tried, survived = try_room(room, seconds / len(relinked.ROOMS))
        keep(tried > 0, f"no mutant of {room} was tried in {seconds} s")
        figures |= {f"mutants of {room}": tried, f"not noticed in {room}": len(survived)}
        if shows_more(len(survived), tried, 1 - PROMISED):
            broken += [f"{len(survived)} of {tried} mutants of {room} were not noticed", *map(str, survived)]
    keep(not broken, "\n".join(broken))
    return figures


if __name__ == "__main__":
    main(run, "the tests notice what changes in the scheduler and in the parser")
