"""Runs jobs in parallel, one per core, and shows which are left."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from hami_build.steps import step

Result = TypeVar("Result")


def in_parallel(title: str, jobs: Mapping[str, Callable[[], Result]]) -> list[Result]:
    """Run every job; return their results. The first failure cancels the jobs that have not started, and is raised."""
    left = dict.fromkeys(jobs)
    pool = ThreadPoolExecutor(os.cpu_count())
    with step(title, lambda: f" (left: {', '.join(left)})"):
        try:
            futures = {pool.submit(job): name for name, job in jobs.items()}
            for future in as_completed(futures):
                future.result()
                del left[futures[future]]
            return [future.result() for future in futures]
        finally:
            pool.shutdown(cancel_futures=True)
