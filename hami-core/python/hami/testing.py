"""What authors of backends test them with."""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import hami
from hami._plugins.manager import installed

__all__ = ["check_backend"]

THREADS = 8
MOST_AT_ONCE = 33  # requests of one call, also where a backend takes more

Request = dict[str, Any]


def check_backend(name: str, params: Mapping[str, Any] | None = None, sample: Mapping[str, Any] | None = None) -> None:
    """Run a backend through what every pipe may ask of it; print a report, raise AssertionError if it fails anything.

        def test_my_backend_keeps_the_rules():
            hami.testing.check_backend("MyBackend", {"step": 2}, {"data": 1})

    `params` are those of its node, `sample` a request that it answers. A container is given with its brackets:
    "MyContainer[Identity]".
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


class _Wrong:
    """What no backend was made for."""


class _Suite:
    def __init__(self, name: str, params: dict[str, Any], sample: Request) -> None:
        self.name = name
        self.params = params
        self.sample = sample

    def checks(self) -> list[tuple[str, Callable[[], None]]]:
        return [
            ("says in one sentence what it does", self.has_doc),
            ("answers the sample", self.answers),
            ("works again after it was closed and created again", self.answers),
            ("leaves the caller's data as it was", self.leaves_data_alone),
            ("answers every request of a batch", self.answers_batch),
            ("answers many threads", self.answers_threads),
            ("fails a wrong request alone, with a text", self.fails_alone),
            ("goes on after a failure", self.goes_on),
        ]

    @contextmanager
    def pipe(self) -> Iterator[hami.Pipe]:
        """A pipe of the backend; an unreported error while it runs or closes fails the check."""
        unseen: list[str] = []
        hook = sys.unraisablehook
        sys.unraisablehook = lambda raised: unseen.append(f"{type(raised.exc_value).__name__}: {raised.exc_value}")
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                node = {"backend": self.name, "batching": "greedy", **self.params}  # batches, whether they pay or not
                with hami.pipe({"node": node}) as pipe:
                    yield pipe
            unseen += [str(warning.message) for warning in warned if issubclass(warning.category, RuntimeWarning)]
        finally:
            sys.unraisablehook = hook
        if unseen:
            raise AssertionError(f"this error was not reported: {unseen[0]}")

    def has_doc(self) -> None:
        name = self.name.partition("[")[0].partition("(")[0].rpartition("::")[2]
        info = hami.backends().get(name)
        doc = info.doc if info and info.doc is not None else installed.find(name).doc
        if not doc.strip():
            raise AssertionError("it has no docstring")

    def answers(self) -> None:
        with self.pipe() as pipe:
            pipe(dict(self.sample))

    def leaves_data_alone(self) -> None:
        try:
            before = pickle.dumps(self.sample.get("data"))
        except Exception:  # then it cannot be compared
            return
        with self.pipe() as pipe:
            request = dict(self.sample)
            pipe(request)
        if pickle.dumps(request.get("data")) != before:
            raise AssertionError("`data` is no longer what the caller gave")

    def answers_batch(self) -> None:
        with self.pipe() as pipe:
            pipe([dict(self.sample) for _ in range(MOST_AT_ONCE)])

    def answers_threads(self) -> None:
        with self.pipe() as pipe, ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(lambda _: pipe(dict(self.sample)), range(THREADS * 4)))

    def fails_alone(self) -> None:
        requests = [dict(self.sample), {**self.sample, "data": _Wrong()}, dict(self.sample)]
        with self.pipe() as pipe:
            try:
                pipe(requests)
            except hami.BatchError as error:
                for index, raised in error.errors:
                    if index != 1:
                        raise AssertionError(f"a good request beside it failed: {raised}") from raised
                    if not str(raised).strip():
                        raise AssertionError(f"its {type(raised).__name__} has no text") from raised

    def goes_on(self) -> None:
        with self.pipe() as pipe:
            for data in (_Wrong(), None):
                try:
                    pipe({**self.sample, "data": data})
                except Exception:
                    continue
            pipe(dict(self.sample))
