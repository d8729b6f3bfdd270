"""`hami_tools.timer` and `hami_tools.inspector`: measure code of the program."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

from hami import ConfigError, DataTypeError
from hami.observe import trace_slice
from hami.observe.histogram import Histogram

from hami_tools.python_load import bucket_of

Function = TypeVar("Function", bound=Callable[..., Any])

KIB = 1 << 10
MIB = 1 << 20


class _Measured:
    """The values of one name."""

    def __init__(self) -> None:
        self.total_ns = 0
        self.buckets: Counter[tuple[float, float]] = Counter()


_lock = threading.Lock()
_measured: dict[str, _Measured] = {}


def _reset_after_fork() -> None:
    """Forget what the parent has measured, and its lock, which may be held."""
    global _lock, _measured
    _lock, _measured = threading.Lock(), {}


os.register_at_fork(after_in_child=_reset_after_fork)


def _record(name: str, began_ns: int, took_ns: int) -> None:
    """Add a measurement to the statistics and to the timeline; `began_ns` is a moment of `time.monotonic_ns`."""
    trace_slice(name, began_ns, began_ns + took_ns)
    with _lock:
        measured = _measured.setdefault(name, _Measured())
        measured.total_ns += took_ns
        measured.buckets[bucket_of(took_ns)] += 1


def timers() -> dict[str, Histogram]:
    """Return what `hami_tools.timer` and `hami_tools.inspector` have measured in this process, in ms, by name.

    >>> with hami_tools.timer("read"):
    ...     text = "page"
    >>> hami_tools.timers()["read"].count
    1
    """
    with _lock:
        return {
            name: Histogram(each.total_ns / 1e6, [(*bounds, count) for bounds, count in sorted(each.buckets.items())])
            for name, each in _measured.items()
        }


class timer:
    """Measure a block or the calls of a function, for the statistics of the process and for its timeline.

    >>> with hami_tools.timer("load"):
    ...     page = "page".upper()
    >>> @hami_tools.timer("resize")
    ... def resize(page):
    ...     return page[:2]
    >>> resize(page)
    'PA'
    >>> hami_tools.timers()["resize"].count
    1

    The time is elapsed time. For an `async` function it ends when the function returns, and includes the time in which
    other tasks run. For a generator, it is the time inside the generator: the consumer does not count. A call or a
    block that raises is measured too.

    Args:
        name: The name in `hami_tools.timers()`. The same name may be used in many places.

    Raises:
        DataTypeError: `name` is not a str.
        RuntimeError: One timer object is used for two blocks at the same time.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise DataTypeError(f'the name of a timer is a str, got {type(name).__name__}: hami_tools.timer("resize")')
        self.name = name
        self._began: int | None = None

    def __enter__(self) -> timer:
        if self._began is not None:
            raise RuntimeError(f'this timer is running; make another one: with hami_tools.timer("{self.name}")')
        self._began = time.monotonic_ns()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._began is not None
        _record(self.name, self._began, time.monotonic_ns() - self._began)
        self._began = None

    def __call__(self, function: Function) -> Function:
        for is_kind, wrap in _KINDS:
            if is_kind(function):
                return functools.wraps(function)(wrap(self.name, function))  # type: ignore[return-value]
        return functools.wraps(function)(_timed_call(self.name, function))  # type: ignore[return-value]


def _timed_call(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        with timer(name):
            return function(*arguments, **named)

    return call


def _timed_coroutine(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*arguments: Any, **named: Any) -> Any:
        with timer(name):
            return await function(*arguments, **named)

    return call


class _Inside:
    """Adds up the time inside a generator."""

    def __init__(self) -> None:
        self.began = self.resumed = time.monotonic_ns()
        self.took = 0

    def __enter__(self) -> None:
        self.resumed = time.monotonic_ns()

    def __exit__(self, *_: object) -> None:
        self.took += time.monotonic_ns() - self.resumed


def _timed_generator(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Generator[Any, Any, Any]:
        generator = function(*arguments, **named)
        inside = _Inside()
        resume: Callable[[], Any] = functools.partial(next, generator)
        try:
            while True:
                try:
                    with inside:
                        item = resume()
                except StopIteration as end:
                    return end.value
                try:
                    sent = yield item
                    resume = functools.partial(generator.send, sent)
                except GeneratorExit:
                    with inside:
                        generator.close()
                    raise
                except BaseException as error:
                    resume = functools.partial(generator.throw, error)
        finally:
            _record(name, inside.began, inside.took)

    return call


def _timed_async_generator(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*arguments: Any, **named: Any) -> AsyncGenerator[Any, Any]:
        generator = function(*arguments, **named)
        inside = _Inside()
        resume: Callable[[], Any] = generator.__anext__
        try:
            while True:
                try:
                    with inside:
                        item = await resume()
                except StopAsyncIteration:
                    return
                try:
                    sent = yield item
                    resume = functools.partial(generator.asend, sent)
                except GeneratorExit:
                    with inside:
                        await generator.aclose()
                    raise
                except BaseException as error:
                    resume = functools.partial(generator.athrow, error)
        finally:
            _record(name, inside.began, inside.took)

    return call


_KINDS = (
    (inspect.iscoroutinefunction, _timed_coroutine),
    (inspect.isasyncgenfunction, _timed_async_generator),
    (inspect.isgeneratorfunction, _timed_generator),
)


class inspector:
    """Run a function several times, and print a table of its times, its memory and the memory of the GPUs.

    >>> double = hami_tools.inspector("double", repeat=3)(lambda number: 2 * number)
    >>> double(4)
    8
    >>> hami_tools.timers()["double"].count
    3

    As a decorator, each call runs the function `repeat` times and returns the last result. In a `with` statement, the
    block runs once, and the table has one run. The table is printed to standard error; `str` of the inspector is the
    same table. The runs are in `hami_tools.timers()` too. GPUs need nvidia-ml-py (`hami-tools[gpu]`). If the program
    uses torch with CUDA, each run ends when the GPU has finished.

    Args:
        name: The name in the table and the statistics.
        repeat: How many times a call runs the function.
        cpu: Measure the processor time of all threads of the process, in ms.
        memory: Measure by how much the memory of the process grows, in KiB.
        gpu: Measure by how much the used memory of all GPUs grows, in MiB, if there is a GPU.

    Raises:
        ConfigError: `repeat` is not an int of at least 1.
        DataTypeError: The function is `async` or a generator: use `hami_tools.timer`.
    """

    def __init__(self, name: str, repeat: int = 10, cpu: bool = True, memory: bool = True, gpu: bool = True) -> None:
        if not isinstance(repeat, int) or repeat < 1:
            raise ConfigError(f"repeat is an int of at least 1, got {repeat!r}")
        self.name = name
        self.repeat = repeat
        self._gauges: dict[str, Callable[[], float]] = {"time ms": lambda: time.monotonic_ns() / 1e6}
        if cpu:
            self._gauges["cpu ms"] = lambda: time.process_time_ns() / 1e6
        if memory:
            self._gauges["memory KiB"] = lambda: _resident() / KIB
        if gpu and gpu_memory_used() is not None:
            self._gauges["gpu MiB"] = lambda: (gpu_memory_used() or 0) / MIB
        self.runs: dict[str, list[float]] = {column: [] for column in self._gauges}
        """What each run measured, by the names of the columns."""
        self._before: dict[str, float] | None = None
        self._timer = timer(name)

    def __call__(self, function: Function) -> Function:
        if any(is_kind(function) for is_kind, _ in _KINDS):
            raise DataTypeError("inspector takes a plain function; measure async functions with hami_tools.timer")

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            result = None
            for values in self.runs.values():
                values.clear()
            for _ in range(self.repeat):
                self._begin()
                try:
                    result = function(*arguments, **named)
                finally:
                    self._end()
            print(self, file=sys.stderr)
            return result

        return call  # type: ignore[return-value]

    def __enter__(self) -> inspector:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        print(self, file=sys.stderr)

    def _begin(self) -> None:
        _synchronize()
        self._before = {column: gauge() for column, gauge in reversed(self._gauges.items())}
        self._timer.__enter__()

    def _end(self) -> None:
        _synchronize()
        self._timer.__exit__()
        assert self._before is not None
        for column, gauge in self._gauges.items():
            self.runs[column].append(gauge() - self._before[column])

    def __str__(self) -> str:
        from hami.cli import aligned

        rows: list[tuple[str, ...]] = [(f"{self.name}: {len(self.runs['time ms'])} runs", "mean", "min", "max")]
        for column, values in self.runs.items():
            shown = (sum(values) / len(values), min(values), max(values)) if values else ()
            rows.append((column, *(f"{value:.3f}" for value in shown), *("-",) * (3 - len(shown))))
        return "\n".join(aligned(rows))


def _resident() -> int:
    """Return the bytes of memory that the process uses."""
    import resource

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def _synchronize() -> None:
    """Wait until the GPU has finished, if the program uses torch with CUDA."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def gpu_memory_used() -> int | None:
    """Return the used bytes of all GPUs of NVIDIA, by all processes; None without a GPU or without nvidia-ml-py."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        devices = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return sum(int(pynvml.nvmlDeviceGetMemoryInfo(device).used) for device in devices)
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
