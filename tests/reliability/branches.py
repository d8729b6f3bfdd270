"""Branches: the C++ tests take each branch of the parser, and most of those of the queue and of the batch policy.

    python tests/reliability/branches.py

clang++ compiles these rooms, because its coverage counts the conditions of the source, each true and false. gcov also
counts edges that exceptions take through code of the compiler. Assertions are off, and the edge of a `switch` for
values outside its enum does not count: neither happens.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import relinked
from promise import Figures, keep, main

COUNTED = ("-fprofile-instr-generate", "-fcoverage-mapping")
COMPLETE = ("lang",)  # rooms without a branch that no test takes
Place = tuple[Path, int, int]  # file, line, column


def measured(folder: Path) -> Any:
    """Run the C++ tests and return what llvm-cov exports."""
    tests, files = relinked.Tests(), [file for room in relinked.ROOMS for file in relinked.sources(room)]
    objects = [folder / f"{file.parent.name}-{file.stem}.o" for file in files]

    def compile_one(file: Path, made: Path) -> None:
        keep(tests.compile(file, file, made, "clang++", *COUNTED, "-UHAMI_ASSERTIONS"), f"{file} does not compile")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, files, objects))
    program = tests.link(objects, "hami_branches", "clang++", *COUNTED)
    env = {**os.environ, "LLVM_PROFILE_FILE": f"{folder}/%p.profraw"}
    done = subprocess.run([program], env=env, capture_output=True, text=True, errors="replace", check=False)
    keep(done.returncode == 0, f"the C++ tests fail: {done.stdout[-3000:]}")
    profile = folder / "profile"
    subprocess.run(["llvm-profdata", "merge", "-o", profile, *folder.glob("*.profraw")], check=True)
    rooms = {str(file.parent) for file in files}
    command = ["llvm-cov", "export", str(program), f"-instr-profile={profile}", *rooms]
    exported = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    program.unlink()
    return json.loads(exported)


def branches(exported: Any) -> Iterator[tuple[Place, str, int]]:
    """Yield each place of a condition, "true" and "false", and how often that was so in all instances of a template."""
    counts = Counter[tuple[Place, str]]()
    for each in exported["data"][0]["files"]:
        for line, column, _, _, true, false, *_ in each["branches"]:
            place = (Path(each["filename"]), line, column)
            counts[place, "true"] += true
            counts[place, "false"] += false
    for place, value in sorted(counts):
        yield place, value, counts[place, value]


def run(seconds: float, strict: bool) -> Figures:
    """Count once; it takes as long as the C++ tests."""
    with tempfile.TemporaryDirectory() as folder:
        found = list(branches(measured(Path(folder))))
    figures: Figures = {}
    for room in relinked.ROOMS:
        missing, total = [], 0
        for (file, line, column), value, count in found:
            text = file.read_text("utf-8").splitlines()[line - 1]
            if file.parent.name != room or (value == "true" and text[: column - 1].endswith("switch (")):
                continue
            total += 1
            if not count:
                missing.append(f"{file.relative_to(relinked.ROOT)}:{line}:{column}: never {value}: {text.strip()}")
        print("\n".join(missing), file=sys.stderr)
        keep(not missing or room not in COMPLETE, f"{len(missing)} branches are not tested:\n" + "\n".join(missing))
        figures |= {f"branches of {room}": total, f"not tested in {room}": len(missing)}
    return figures


if __name__ == "__main__":
    main(run, "tests take each branch of the parser")
