"""Jobs side by side, one for each core, with what is left shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed

from .steps import step


def in_parallel(title: str, jobs: Mapping[str, Callable[[], object]]) -> None:
    """Run every job; the first that fails stops those that were not begun, and its error is raised."""
    left = dict.fromkeys(jobs)
    pool = ThreadPoolExecutor(os.cpu_count())
    with step(title, lambda: f" (left: {', '.join(left)})"):
        try:
            futures = {pool.submit(job): name for name, job in jobs.items()}
            for future in as_completed(futures):
                future.result()
                del left[futures[future]]
        finally:
            pool.shutdown(cancel_futures=True)
