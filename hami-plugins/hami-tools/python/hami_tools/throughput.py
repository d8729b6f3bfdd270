"""ThroughputBenchmark: calls a pipe from several threads and measures latency and throughput."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from hami import DataTypeError, Pipe
from hami.native import load_pipe
from hami.observe.histogram import Histogram

from hami_tools.python_load import load_callable


class ThroughputResult:
    """What a benchmark has measured. Latencies are of the requests that completed.

    >>> benchmark = hami_tools.ThroughputBenchmark(hami.pipe("Identity"))
    >>> benchmark.add_input({"data": 1})
    >>> result = benchmark.benchmark(num_calling_threads=2, num_iters=50)
    >>> result.num_iters, result.failed
    (50, {})
    """

    def __init__(self, measured: dict[str, Any], calling_threads: int) -> None:
        total, buckets = measured["latency_ms"]
        self.num_iters: int = measured["calls"]
        """Requests that were measured, failed ones included."""
        self.num_calling_threads = calling_threads
        self.total_time_seconds: float = measured["elapsed_s"]
        """Time from the end of the warm-up until the last request was complete."""
        self.latency_ms = Histogram(total, buckets)
        """Latencies in milliseconds, as a histogram with `p50`, `p90`, `p99`, `p999` and `quantile`."""
        self.failed: dict[str, int] = measured["failed"]
        """Requests that failed, by the class of the exception."""
        self.examples: dict[str, str] = measured["examples"]
        """The message of the first exception of each class."""

    @property
    def latency_avg_ms(self) -> float:
        """The mean latency in milliseconds; NaN if every request failed."""
        return self.latency_ms.mean

    @property
    def iters_per_second(self) -> float:
        """Completed requests per second."""
        return self.latency_ms.count / self.total_time_seconds if self.total_time_seconds else float("nan")

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as a dict, for JSON."""
        return {
            "latency_avg_ms": self.latency_avg_ms,
            "num_iters": self.num_iters,
            "num_calling_threads": self.num_calling_threads,
            "total_time_seconds": self.total_time_seconds,
            "iters_per_second": self.iters_per_second,
            "latency_ms": self.latency_ms.as_dict(),
            "failed": self.failed,
            "examples": self.examples,
        }

    def __repr__(self) -> str:
        latency = self.latency_ms
        lines = [
            f"Average latency per example: {self.latency_avg_ms:.4g} ms",
            f"Percentiles: p50 {latency.p50:.4g}, p90 {latency.p90:.4g}, p99 {latency.p99:.4g}, "
            f"p99.9 {latency.p999:.4g} ms",
            f"Total number of iterations: {self.num_iters}, from {self.num_calling_threads} threads",
            f"Total time: {self.total_time_seconds:.4g} s, {self.iters_per_second:.5g} iterations per second",
        ]
        lines += [f"{count} failed with {kind}: {self.examples[kind]}" for kind, count in self.failed.items()]
        return "\n".join(lines)


class ThroughputBenchmark:
    """Measure how many requests a pipe completes per second, with the calls of `torch.utils.ThroughputBenchmark`.

    >>> benchmark = hami_tools.ThroughputBenchmark(hami.pipe("Identity"))
    >>> benchmark.add_input({"data": "page"})
    >>> benchmark.run_once({"data": "page"})
    {'data': 'page', 'result': 'page'}
    >>> result = benchmark.benchmark(num_calling_threads=4, num_warmup_iters=10, num_iters=100)
    >>> result.iters_per_second > 0
    True

    The threads that call a pipe are threads of the core: they do not need the GIL. Anything else that takes a dict,
    such as a function, is called from threads of Python.

    Args:
        pipe: The pipe, or a function of a request.
    """

    def __init__(self, pipe: Pipe | Callable[[dict[str, Any]], object]) -> None:
        if not callable(pipe):
            raise DataTypeError(f"ThroughputBenchmark takes a pipe or a function, got {type(pipe).__name__}")
        self._pipe = pipe
        self._inputs: list[dict[str, Any]] = []

    def add_input(self, request: dict[str, Any]) -> None:
        """Add a request. Each iteration uses one of them, chosen at random, with the same values each time.

        >>> hami_tools.ThroughputBenchmark(hami.pipe("Identity")).add_input({"data": 1})

        Args:
            request: The request, as for a call of the pipe. It must not have the key `event`.

        Raises:
            DataTypeError: `request` is not a dict with str keys.
        """
        self._inputs.append(checked_input(request))

    def run_once(self, request: dict[str, Any]) -> Any:
        """Run one request that is not measured, and return what the call of the pipe returns.

        >>> hami_tools.ThroughputBenchmark(hami.pipe("Identity")).run_once({"data": 1})["result"]
        1

        Args:
            request: The request.
        """
        return self._pipe(request)

    def benchmark(
        self, num_calling_threads: int = 1, num_warmup_iters: int = 10, num_iters: int = 100, *, seed: int | None = None
    ) -> ThroughputResult:
        """Run the benchmark and return what was measured. A request that fails is counted and does not end it.

        >>> benchmark = hami_tools.ThroughputBenchmark(hami.pipe("Identity"))
        >>> benchmark.add_input({"data": 1})
        >>> benchmark.benchmark(num_iters=20).num_iters
        20

        Args:
            num_calling_threads: Threads that call the pipe, each with one request at a time.
            num_warmup_iters: Requests of each thread that are not measured.
            num_iters: Measured requests of all threads together.
            seed: Makes the choice of inputs repeatable; None chooses a seed.

        Raises:
            ValueError: There is no input, or a number is out of range.
            PipeClosed: The pipe is closed.
        """
        threads = at_least("num_calling_threads", num_calling_threads, 1)
        warmup = at_least("num_warmup_iters", num_warmup_iters, 0)
        iterations = at_least("num_iters", num_iters, 1)
        if not self._inputs:
            raise ValueError("there is no input; call add_input with at least one request first")
        chosen = random.getrandbits(64) if seed is None else at_least("seed", seed, 0) & (2**64 - 1)
        load = partial(load_pipe, self._pipe) if isinstance(self._pipe, Pipe) else load_callable(self._pipe)
        measured = load(self._inputs, clients=threads, warmup=warmup, calls=iterations, seed=chosen)
        return ThroughputResult(measured, threads)


def checked_input(request: Any) -> dict[str, Any]:
    """Return a copy of a request that can be used many times. Raises DataTypeError if it cannot."""
    if not isinstance(request, dict) or not all(isinstance(key, str) for key in request):
        raise DataTypeError(f'an input is a dict with str keys such as {{"data": …}}, got {request!r:.80}')
    if "event" in request:
        raise DataTypeError('an input must not have the key "event": a hami.Event completes once')
    return {key: value for key, value in request.items() if key != "result"}


def at_least(name: str, value: Any, least: int) -> int:
    """Return an argument that is an int of at least `least`. Raises ValueError if it is not."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an int of at least {least}, got {value!r}")
    return value
