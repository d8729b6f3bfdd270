"""A built pipe, and how one is made: the calls that users write."""

from __future__ import annotations

import os
import weakref
from _thread import RLock  # what threading has, which need not be imported for it

from hami import _core
from hami._errors import BatchError, DataTypeError, PipeClosed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future
    from typing import Any, TypeVar, overload

    from hami._plugins.manager import BackendInfo, PluginRecord
    from hami.observe.node_stats import NodeStats

    AnyDict = TypeVar("AnyDict", bound="dict[str, Any]")

_open_pipes: weakref.WeakSet[Pipe] = weakref.WeakSet()


class Pipe:
    """A pipeline that is ready to answer; made by `hami.pipe`.

        with hami.pipe("S[DecodeMat,ResizeMat(224,224)]") as pipe:
            image = pipe({"data": jpeg})["result"]

    Thread-safe. A request is a dict with str keys: `data` is the input, `result` the output, other keys pass through.
    """

    def __init__(self, source: Any) -> None:
        from hami._config import load

        try:
            self._core = _core.Pipe(load(source))
        except BaseException:  # an init may have been left, which the end of the program waits for
            _close_at_exit()
            raise
        _close_at_exit(self)

    if TYPE_CHECKING:

        @overload
        def __call__(self, requests: dict[str, Any], timeout: float | None = None) -> dict[str, Any]: ...
        @overload
        def __call__(self, requests: list[dict[str, Any]], timeout: float | None = None) -> list[dict[str, Any]]: ...
        @overload
        def __call__(self, requests: list[AnyDict], timeout: float | None = None) -> list[AnyDict]: ...

    def __call__(self, requests: Any, timeout: float | None = None) -> Any:
        """Run one request, or a list of them, and return what was given, now with `result`.

        timeout: seconds for each request; it then fails with DeadlineExceeded, even while its backend runs.
        Raises the backend's own exception, or one of hami's; the request then has no `result`. For a list:
        BatchError with (index, exception) pairs, while the requests that went well have their `result`.
        """
        try:
            return (
                self._core.call(requests, timeout) if isinstance(requests, dict) else self._call_all(requests, timeout)
            )
        except (PipeClosed, BatchError):
            _stay_if_the_program_ends()
            raise

    def _call_all(self, requests: Any, timeout: float | None) -> list[dict[str, Any]]:
        if not isinstance(requests, list) or not all(isinstance(request, dict) for request in requests):
            raise DataTypeError(f'a pipe takes a dict, as {{"data": …}}, or a list of dicts, got {_kind(requests)}')
        if len({id(request) for request in requests}) < len(requests):
            raise DataTypeError("one dict is listed twice; each request needs a dict of its own")
        outcomes = self._core.call_many(requests, timeout)
        errors = [(index, outcome) for index, outcome in enumerate(outcomes) if outcome is not None]
        for _, error in errors:
            if isinstance(error, KeyboardInterrupt):
                raise error
        if errors:
            raise BatchError(errors)
        return requests

    def submit(self, request: dict[str, Any], timeout: float | None = None) -> Future[dict[str, Any]]:
        """Start one request and return a future that gives the same dict, with `result`, or raises its error.

        Waits only where the node's queue is full and its `on_full` is "block". Cancelling the future works until it
        has an outcome; what a backend still does for the request is discarded.
        """
        if not isinstance(request, dict):
            raise DataTypeError(f'submit takes one dict, as {{"data": …}}, got {_kind(request)}')
        from hami._runtime.future import submit

        return submit(self._core, request, timeout)

    async def acall(self, request: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Run one request from any asyncio loop and return the same dict, with `result`, or raise its error.

        Never blocks the loop: where the node's queue is full and its `on_full` is "block", the task waits. Cancelling
        the task cancels the request.
        """
        if not isinstance(request, dict):
            raise DataTypeError(f'acall takes one dict, as {{"data": …}}, got {_kind(request)}')
        try:
            answer = _start(self._core, request, timeout)
            try:
                await answer
            except BaseException:
                answer.abandon()
                raise
        except PipeClosed:
            _stay_if_the_program_ends()
            raise
        return request

    def map(
        self, requests: Iterable[dict[str, Any]], concurrency: int = 16, timeout: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """Run requests, `concurrency` at a time, and give each back with its `result`, in their order.

        Takes the next request only when fewer than `concurrency` run, so `requests` may be an infinite generator.
        The first failure raises its error; requests that started after it are cancelled, also when the caller stops
        early.
        """
        if not isinstance(concurrency, int) or concurrency < 1:
            raise ValueError(f"concurrency must be an int of at least 1, got {concurrency!r}")
        return _map(self, requests, concurrency, timeout)

    def close(self, timeout: float | None = 10.0) -> None:
        """Take nothing more, finish what is open, end all threads and free the backends.

        Requests that are open after `timeout` seconds (None: no limit), or at Ctrl-C, fail with PipeClosed. A
        backend that does not come back is abandoned with a RuntimeWarning that names it.
        """
        abandoned = self._core.close(timeout)
        if abandoned:
            import warnings

            warnings.warn(
                f"these backends did not return within {timeout} s and were abandoned: {', '.join(abandoned)}",
                RuntimeWarning,
                stacklevel=2,
            )

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._core.closed

    def stats(self) -> dict[str, NodeStats]:
        """Return the statistics of each node since the pipe was built, by the node's name.

        for name, node in pipe.stats().items():
            print(name, node.completed, "requests in", node.batches, "batches")
        """
        from hami.observe.node_stats import NodeStats

        return {name: NodeStats(values) for name, values in self._core.stats().items()}

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        nodes = ", ".join(f'"{node}"' for node in self._core.stats())
        return f"<hami.Pipe {nodes}{', closed' if self.closed else ''}>"

    def __reduce__(self) -> str:
        """Refuse to be pickled and copied: threads and models are of this process."""
        raise TypeError("a pipe is neither pickled nor copied; build one with hami.pipe in the process that uses it")


def pipe(source: Any) -> Pipe:
    """Build a pipe.

        hami.pipe("pipeline.toml")                      # a file, or a Path
        hami.pipe({"detect": {...}, "read": {...}})     # nodes
        hami.pipe({"backend": "OnnxTensor", "model": "resnet.onnx", "max": 8})    # one node
        hami.pipe("S[DecodeMat,ResizeMat(224,224)]")    # an expression
        hami.pipe("ocr")                                # a pipeline that a plugin packages

    Raises ConfigError, BackendNotFound, PluginError, or NotFound for an instance that is not registered, with all
    errors, before anything is loaded; and any exception of a backend's init.
    """
    return Pipe(source)


def backends(*, load: bool = False) -> dict[str, BackendInfo]:
    """Return every backend that an expression can use here, by name; load=True imports plugins for doc and params.

    >>> hami.backends()["Identity"].owner
    'hami-core'
    """
    from hami._plugins.manager import installed

    return installed.backends(load=load)


def plugins(*, load: bool = False) -> list[PluginRecord]:
    """Return a record of every installed plugin; load=True imports them all first.

    >>> [plugin.distribution for plugin in hami.plugins() if plugin.state == "failed"]
    []
    """
    from hami._plugins.manager import installed

    return installed.records(load=load)


def _start(core: _core.Pipe, request: dict[str, Any], timeout: float | None) -> _core.Awaitable:
    """Start a request for a task; asyncio is imported by the first."""
    global _start
    from hami._runtime.tasks import start as _start

    return _start(core, request, timeout)


def _map(
    pipe: Pipe, requests: Iterable[dict[str, Any]], concurrency: int, timeout: float | None
) -> Iterator[dict[str, Any]]:
    from collections import deque

    running: deque[Future[dict[str, Any]]] = deque()
    inside: set[int] = set()  # a dict that ran twice at the same time would have the result of either

    def take() -> dict[str, Any]:
        request = running.popleft().result()
        inside.remove(id(request))
        return request

    try:
        for request in requests:
            if id(request) in inside:
                raise DataTypeError("one dict is given again while it runs; each request needs a dict of its own")
            running.append(pipe.submit(request, timeout))
            inside.add(id(request))
            if len(running) == concurrency:
                yield take()
        while running:
            yield take()
    finally:
        for future in running:
            future.cancel()


def _kind(value: object) -> str:
    others = {type(item).__name__ for item in value if not isinstance(item, dict)} if isinstance(value, list) else set()
    return "a list of " + ", ".join(sorted(others)) if others else type(value).__name__


def _find(name: str, distribution: str, providers: dict[str, str]) -> _core.BackendClass:
    """Find a name that the core does not know in installed plugins, which are only searched here."""
    from hami._plugins.manager import installed

    return installed.find(name, distribution, providers)


_core.set_finder(_find)


_registering = RLock()  # without the global lock two threads that register at once end CPython 3.13
os.register_at_fork(
    before=_registering.acquire, after_in_parent=_registering.release, after_in_child=_registering.release
)


def _close_at_exit(*pipes: Pipe) -> None:
    """Threads of the core must be gone before the interpreter is."""
    with _registering:
        if not _open_pipes:
            import atexit

            atexit.unregister(_close_all)
            atexit.register(_close_all)
        _open_pipes.update(pipes)


_program_ends = False


def _close_all() -> None:
    global _program_ends
    _program_ends = True
    patience = 10.0
    for pipe in list(_open_pipes):
        try:
            pipe.close(patience)
        except KeyboardInterrupt:  # Ctrl-C: do not wait for the others
            patience = 0.0
        except Exception:  # e.g. a warning that is an error here: close the others too
            import traceback

            traceback.print_exc()
    from contextlib import suppress

    with suppress(KeyboardInterrupt):
        _core.wait_for_detached_inits(patience)


def _stay_if_the_program_ends() -> None:
    """Keep a daemon thread whose pipe was closed because the program ends from raising that.

    It would print a traceback while the interpreter ends, and CPython aborts if that happens a moment too late. It is
    ended here instead, or raises later if some exit handler waits for it. The threads of the core, which look
    like daemons, print nothing, and the pipes that are closed wait for them.
    """
    import threading
    import time

    if _program_ends and not _core.on_core_thread() and threading.current_thread().daemon:
        time.sleep(5)
