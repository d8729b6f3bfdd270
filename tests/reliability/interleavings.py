"""The parts that hand work from thread to thread keep their promises in every order of their steps.

    python tests/reliability/interleavings.py --seconds 60

Compiles tests/interleavings, which runs the orders, and then again with a bug in one of the sources: each must be
found. Needs a compiler of C++.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from promise import Figures, keep, main

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "interleavings"
CORE = ROOT / "hami-core"
PROCESS = ROOT / "hami-plugins" / "hami-process" / "src"
COMPILERS = ("g++", "clang++", "c++")
DELEGATES = "entries[i].parker->delegate_wakeups(children); "  # also to a thread that is not parked any more
# The file, by its name in an include, a part of its text, and the bug that replaces it.
PLANTED = (
    (CORE / "src", "sync/waiting.cpp", "if (entries[i].parker->delegate_wakeups(children)) ", DELEGATES),
    (CORE / "src", "sync/waiting.hpp", "if (!parked_) wake_delegated(delegated);", ""),
    (CORE / "src", "sync/waiting.hpp", "BlockingScope blocking;  // before", "// without"),  # waits with the GIL
    (CORE / "src", "sync/queue.cpp", "has_capacity_.notify_one();", ""),
    (PROCESS, "mailbox.cpp", "fetch_and(~kFull, ", "store(kEmpty, "),  # opens a closed one again
    (PROCESS, "mailbox.cpp", "if (seen == kEmpty) break;", "break;"),
)


def compiler() -> str | None:
    """Return the compiler of C++ that is installed; None: there is none."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def compiled(program: Path, first: Path) -> Path:
    """Compile the program; sources in the folder `first` are taken instead of those of the same name."""
    found = compiler()
    keep(found is not None, f"none of {', '.join(COMPILERS)} is installed (Debian, Ubuntu: apt install g++)")
    folders = [first, TESTS / "model", TESTS, CORE / "src", CORE / "include", PROCESS]
    sources = [TESTS / "main.cpp", TESTS / "model" / "explore.cpp"]
    command = [str(found), "-std=c++17", "-O0", *(f"-I{folder}" for folder in folders), *map(str, sources)]
    done = subprocess.run([*command, "-pthread", "-o", program], capture_output=True, text=True, check=False)
    keep(done.returncode == 0, f"it does not compile: {done.stderr[-2000:]}")
    return program


def planted(folder: Path) -> Iterator[str]:
    """Write one source with a bug into `folder`, for each bug; yield its description."""
    for root, name, right, wrong in PLANTED:
        text = (root / name).read_text("utf-8")
        keep(text.count(right) >= 1, f"{name} has no {right!r}: plant another bug")
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace(right, wrong, 1), "utf-8")
        yield f"{name}: {wrong!r} for {right!r}"
        file.unlink()


def try_orders(seconds: float, strict: bool) -> Figures:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        done = subprocess.run([compiled(folder / "right", folder)], capture_output=True, text=True, check=False)
        keep(done.returncode == 0, f"{done.stdout}{done.stderr}")
        runs = sum(int(count) for count in re.findall(r": (\d+)$", done.stdout, re.MULTILINE))
        found = 0
        for bug in planted(folder):
            wrong = subprocess.run([compiled(folder / "wrong", folder)], capture_output=True, text=True, check=False)
            keep(wrong.returncode == 1 and "in the order" in wrong.stdout, f"a planted bug is not found: {bug}")
            found += 1
            if seconds == 0:  # each takes seconds to compile
                break
    return {"parts": done.stdout.count("\n"), "runs": runs, "planted bugs found": found}


if __name__ == "__main__":
    main(try_orders, __doc__ or "")
