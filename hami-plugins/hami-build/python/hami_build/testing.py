"""The conformance suite for authors of backends: `check_backend`, in tests of their own and in `hami-build check`."""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import hami

__all__ = ["check_backend"]

THREADS = 8  # callers at a time
CALLS_PER_THREAD = 4
BATCH = 33  # requests of one call: more than most backends take in one batch, and an odd number

Request = dict[str, Any]


def check_backend(name: str, params: Mapping[str, Any] | None = None, sample: Mapping[str, Any] | None = None) -> None:
    """Check that a backend follows the rules that every pipe relies on, and print a report.

    >>> import hami
    >>> @hami.register
    ... class Increment(hami.Backend):
    ...     "Adds `step` to a number."
    ...     step: int = 1
    ...     def forward(self, batch):
    ...         for item in batch:
    ...             item["result"] = item["data"] + self.step
    >>> check_backend("Increment", {"step": 2}, {"data": 1})
    Increment:
      ok      has a docstring
      ok      completes the sample
      ok      works again after it was closed and built again
      ok      does not modify the caller's data
      ok      completes every request of a batch
      ok      serves many threads
      ok      fails only the invalid request of a batch, with a message
      ok      continues after a failure

    Args:
        name: The expression of the backend; a container with its brackets, such as "MyContainer[Identity]".
        params: The keys of its node.
        sample: A request that the backend completes; by default one whose `data` is None.

    Raises:
        AssertionError: A check failed. The message is the report.
    """
    suite = _Suite(name, dict(params or {}), dict(sample or {"data": None}))
    report, failed = [f"{name}:"], False
    for title, check in suite.checks():
        try:
            check()
        except Exception as error:
            text = str(error).strip().splitlines() or [type(error).__name__]
            report.append(f"  FAILED  {title}: {text[0]}")
            failed = True
        else:
            report.append(f"  ok      {title}")
    print("\n".join(report))
    if failed:
        raise AssertionError("\n".join(report))


def _described(name: str, infos: Mapping[str, Any]) -> Any:
    """Return the description of a backend by its name or an alias; None if its plugin is not loaded or not there."""
    found = infos.get(name) or next((info for info in infos.values() if name in (info.aliases or ())), None)
    return found if found and found.doc is not None else None


class _Unsupported:
    """A type of `data` that no backend supports."""


class _Suite:
    def __init__(self, name: str, params: dict[str, Any], sample: Request) -> None:
        self.name = name
        self.params = params
        self.sample = sample

    def checks(self) -> list[tuple[str, Callable[[], None]]]:
        return [
            ("has a docstring", self.has_doc),
            ("completes the sample", self.completes_sample),
            ("works again after it was closed and built again", self.completes_sample),
            ("does not modify the caller's data", self.keeps_data),
            ("completes every request of a batch", self.completes_batch),
            ("serves many threads", self.serves_threads),
            ("fails only the invalid request of a batch, with a message", self.fails_only_invalid),
            ("continues after a failure", self.continues),
        ]

    @contextmanager
    def pipe(self) -> Iterator[hami.Pipe]:
        """Yield a pipe of the backend; an error that no caller receives, while it runs or closes, fails the check."""
        unreported: list[str] = []
        hook = sys.unraisablehook
        sys.unraisablehook = lambda raised: unreported.append(f"{type(raised.exc_value).__name__}: {raised.exc_value}")
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                node = {
                    "backend": self.name,
                    "batching": "greedy",
                    **self.params,
                }  # forms batches regardless of their cost
                with hami.pipe({"node": node}) as pipe:
                    yield pipe
            unreported += [str(warning.message) for warning in warned if issubclass(warning.category, RuntimeWarning)]
        finally:
            sys.unraisablehook = hook
        if unreported:
            raise AssertionError(f"no caller received this error: {unreported[0]}")

    def has_doc(self) -> None:
        name = self.name.partition("[")[0].partition("(")[0].rpartition("::")[2]
        info = _described(name, hami.backends()) or _described(name, hami.backends(load=True))
        if info is None:
            raise AssertionError(f'backend "{name}" not found; list all: hami backends')
        if not info.doc.strip():
            raise AssertionError("the class has no docstring")

    def completes_sample(self) -> None:
        with self.pipe() as pipe:
            pipe(dict(self.sample))

    def keeps_data(self) -> None:
        try:
            before = pickle.dumps(self.sample.get("data"))
        except Exception:  # data that cannot be pickled is not compared
            return
        with self.pipe() as pipe:
            request = dict(self.sample)
            pipe(request)
        if pickle.dumps(request.get("data")) != before:
            raise AssertionError("the caller's `data` was modified")

    def completes_batch(self) -> None:
        with self.pipe() as pipe:
            pipe([dict(self.sample) for _ in range(BATCH)])

    def serves_threads(self) -> None:
        with self.pipe() as pipe, ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(lambda _: pipe(dict(self.sample)), range(THREADS * CALLS_PER_THREAD)))

    def fails_only_invalid(self) -> None:
        requests = [dict(self.sample), {**self.sample, "data": _Unsupported()}, dict(self.sample)]
        with self.pipe() as pipe:
            try:
                pipe(requests)
            except hami.BatchError as error:
                for index, raised in error.errors:
                    if index != 1:
                        raise AssertionError(f"the valid request at index {index} failed too: {raised}") from raised
                    if not str(raised).strip():
                        raise AssertionError(f"its {type(raised).__name__} has no message") from raised

    def continues(self) -> None:
        with self.pipe() as pipe:
            for data in (_Unsupported(), None):
                try:
                    pipe({**self.sample, "data": data})
                except Exception:
                    continue
            pipe(dict(self.sample))
