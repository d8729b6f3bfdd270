"""Runs tiers side by side, each as a process of ci/test, and shows the output of each as a whole when it ends."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from hami_build.steps import Failure

from .totals import Totals


def run_one(name: str, work: Callable[[Totals], None], totals: Totals) -> None:
    """Run a tier here, with its output shown as it is written."""
    print(f"== {name}", flush=True)
    started, cpu = time.monotonic(), cpu_s()
    try:
        work(totals)
    except Failure as failure:
        print(failure, flush=True)
        totals.check(False, f"{name}: could not be run, see above")
    totals.tiers[name] = (time.monotonic() - started, cpu_s() - cpu)


def cpu_s() -> float:
    """Return the CPU time of this process and of the processes that it started and waited for, in seconds."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def run_all(commands: Mapping[str, Sequence[str]], arguments: Sequence[str], totals: Totals, jobs: int) -> None:
    """Run the command of each tier, at most `jobs` at a time and started in this order; add what they find to `totals`.

    A command gets `--report FILE -- ARGUMENTS` and writes its totals to that file.
    """
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:

        def run(name: str) -> subprocess.CompletedProcess[str]:
            print(f"-- {name} started", flush=True)
            command = [*commands[name], "--report", f"{folder}/{name}", "--", *arguments]
            output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            return subprocess.run(command, text=True, errors="replace", check=False, **output)  # type: ignore[call-overload,no-any-return]

        running = {pool.submit(run, name): name for name in commands}
        try:
            for future in as_completed(running):
                name, done = running[future], future.result()
                print(done.stdout, end="", flush=True)
                if (report := Path(folder, name)).is_file():
                    totals.add(Totals.from_dict(json.loads(report.read_text("utf-8"))))
                else:
                    totals.check(False, f"{name}: ended without a result, status {done.returncode}")
        finally:  # interrupted: the tiers that run get the signal too
            pool.shutdown(cancel_futures=True)
