"""Runs tiers side by side, each in a process of its own, and shows the output of each as a whole when it ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from hami_build import steps
from hami_build.steps import Failure

from .totals import Totals

Work = Callable[[Totals], None]


def run_one(name: str, work: Work, totals: Totals) -> None:
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


def run_all(tiers: Sequence[tuple[str, Work]], totals: Totals, jobs: int) -> None:
    """Run the tiers, at most `jobs` at a time and started in this order; add what they find to `totals`."""
    if jobs == 1 or len(tiers) == 1:
        for name, work in tiers:
            run_one(name, work, totals)
        return
    waiting, running = list(tiers), dict[int, str]()
    with tempfile.TemporaryDirectory() as folder:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    name, work = waiting.pop(0)
                    running[start(name, work, Path(folder))] = name
                    print(f"-- {name} started", flush=True)
                pid, status = os.wait()
                if pid in running:
                    collect(running.pop(pid), status, Path(folder), totals)
        finally:
            for pid in running:  # interrupted: the tiers and all that they started
                os.killpg(pid, signal.SIGTERM)
                os.waitpid(pid, 0)


def start(name: str, work: Work, folder: Path) -> int:
    """Run a tier in a child process that writes to files; returns the id of the process."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        with (folder / f"{name}.log").open("wb") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - until the process ends
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        steps.shows_progress = False
        totals = Totals()
        try:
            run_one(name, work, totals)
        except Exception:
            traceback.print_exc()
            totals.check(False, f"{name}: ended with an error, see above")
        sys.stdout.flush()
        (folder / f"{name}.json").write_text(json.dumps(totals.as_dict()), "utf-8")
    finally:
        sys.stderr.flush()
        os._exit(0)  # the parent cleans up


def collect(name: str, status: int, folder: Path, totals: Totals) -> None:
    """Show the output of a tier that ended, and count what it found."""
    sys.stdout.write((folder / f"{name}.log").read_text("utf-8", errors="replace"))
    sys.stdout.flush()
    report = folder / f"{name}.json"
    if report.is_file():
        totals.add(Totals.from_dict(json.loads(report.read_text("utf-8"))))
    else:
        totals.check(False, f"{name}: ended without a result, status {os.waitstatus_to_exitcode(status)}")
