"""Measure `import hami` on top of the bare interpreter, in time and memory, and list the slowest modules.

    python tests/bench/import_time.py [ROUNDS]

Every figure comes from new processes; the contenders alternate. Wall time and CPU time are measured inside the process,
around the import; other programs affect CPU time less. Memory is the resident set after the import, minus that of a
bare interpreter.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time

from _measure import about_hami, about_this_machine, percentile

PROGRAM = """
import resource, time
start, busy = time.perf_counter_ns(), time.process_time_ns()
{work}
spent, busy = time.perf_counter_ns() - start, time.process_time_ns() - busy
pages = int(open("/proc/self/statm").read().split()[1])
print(spent / 1e6, busy / 1e6, pages * resource.getpagesize() / 1e6)
"""
CONTENDERS = {
    "bare interpreter": "pass",
    "import hami": "import hami",
    "import hami, build and call a pipe": "import hami; hami.pipe('Identity')({'data': 1})",
    "import asyncio, for comparison": "import asyncio",
}


def one(work: str) -> tuple[float, float, float, float]:
    """Return wall and CPU milliseconds around `work`, resident megabytes, and milliseconds of the whole process."""
    start = time.perf_counter_ns()
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(work=work)], capture_output=True, text=True, check=True
    )
    whole = (time.perf_counter_ns() - start) / 1e6
    inside, busy, resident = map(float, result.stdout.split())
    return inside, busy, resident, whole


def most_expensive(count: int) -> list[tuple[float, str]]:
    """Return the slowest modules by their own import time, without their imports: the minimum of five runs."""
    program = [sys.executable, "-X", "importtime", "-c"]
    names: dict[str, list[float]] = {}
    for _ in range(5):
        bare = subprocess.run([*program, "pass"], capture_output=True, text=True, check=True).stderr
        whole = subprocess.run([*program, "import hami"], capture_output=True, text=True, check=True).stderr
        known = set(re.findall(r"\|\s*([\w.]+)$", bare, re.MULTILINE))
        for own, name in re.findall(r"import time:\s+(\d+) \|\s+\d+ \|\s*([\w.]+)$", whole, re.MULTILINE):
            if name not in known:
                names.setdefault(name, []).append(int(own) / 1e3)
    return sorted(((min(times), name) for name, times in names.items()), reverse=True)[:count]


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    measured: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in CONTENDERS}
    for work in CONTENDERS.values():
        one(work)  # fills the bytecode and disk caches
    for _ in range(rounds):
        for name, work in CONTENDERS.items():
            measured[name].append(one(work))
    print(f"{about_this_machine()}; {about_hami()}; {rounds} new processes each, alternating")
    bare = statistics.median(resident for _, _, resident, _ in measured["bare interpreter"])
    print(f"{'':36}  {'median':>9} {'p99':>9} {'CPU':>10}  {'whole process':>13}  memory above {bare:.1f} MB")
    for name, values in measured.items():
        inside, busy, resident, whole = (list(column) for column in zip(*values, strict=True))
        print(
            f"{name:36}  {statistics.median(inside):6.1f} ms {percentile(inside, 0.99):6.1f} ms"
            f"  {statistics.median(busy):5.1f} ms"
            f"  {statistics.median(whole):10.1f} ms  {statistics.median(resident) - bare:.1f} MB"
        )
    print("\nthe modules of `import hami` that take longest themselves (-X importtime, minimum of 5):")
    for milliseconds, name in most_expensive(8):
        print(f"  {milliseconds:5.1f} ms  {name}")


if __name__ == "__main__":
    main()
