"""`hami.pipe` and `hami.Pipe`: builds a pipe from a source, and runs requests in it."""

from __future__ import annotations

import sys

from hami import _core
from hami._errors import BatchError, DataTypeError, PipeClosed
from hami._runtime.at_exit import close_at_exit, pause_if_exiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from typing import Any, Protocol, TypeVar, cast, overload

    from hami.observe.node_stats import NodeStats

    AnyDict = TypeVar("AnyDict", bound="dict[str, Any]")

    class BuildPipe(Protocol):
        """The type of `hami.pipe`."""

        register: Callable[..., Any]

        def __call__(self, source: Any) -> Pipe: ...
else:

    def cast(kind: str, value: object) -> object:
        return value


shared_queues: dict[str, _core.Queue] = {}
"""Queues of the program that pipes use instead of queues of their own with these names."""


class Pipe:
    """A running pipeline, built by `hami.pipe`.

    >>> with hami.pipe("Identity") as pipe:
    ...     pipe({"data": "page"})
    {'data': 'page', 'result': 'page'}

    A request is a dict with str keys: `data` is the input, `result` the output, and other keys pass through. Any number
    of threads may call a pipe. Leaving the `with` block closes it.
    """

    def __init__(self, source: Any) -> None:
        from hami._config import load

        if logging := sys.modules.get("logging"):
            _core.set_log_level(logging.getLogger("hami").getEffectiveLevel())
        try:
            self._core: _core.Pipe = _blocking(_core.Pipe, load(source), shared_queues)
        except BaseException:  # an interrupted construction may leave an init running, and the program waits for that
            close_at_exit()
            raise
        close_at_exit(self)

    if TYPE_CHECKING:

        @overload
        def __call__(self, requests: dict[str, Any], timeout: float | None = None) -> dict[str, Any]: ...
        @overload
        def __call__(self, requests: list[dict[str, Any]], timeout: float | None = None) -> list[dict[str, Any]]: ...
        @overload
        def __call__(self, requests: list[AnyDict], timeout: float | None = None) -> list[AnyDict]: ...

    def __call__(self, requests: Any, timeout: float | None = None) -> Any:
        """Run one request or a list of requests, and wait for the results.

        >>> with hami.pipe("Identity") as pipe:
        ...     pipe([{"data": 1}, {"data": 2}], timeout=2.5)
        [{'data': 1, 'result': 1}, {'data': 2, 'result': 2}]

        Args:
            requests: A dict, or a list of different dicts.
            timeout: Time limit of each request in seconds; None means no limit.

        Returns:
            The same dict or list. Each request has its `result`.

        Raises:
            DataTypeError: `requests` is not a dict or a list of different dicts.
            DeadlineExceeded: `timeout` passed, even if a backend still runs the request.
            RequestError: The request is wrong, or failed for another reason of the core.
            BatchError: Requests of a list failed; the other requests have their `result`.
            Exception: The exception of the backend that failed the request. The request has no `result`.
        """
        try:
            if isinstance(requests, dict):
                if "gevent" in sys.modules:
                    from hami._runtime.greenlets import call

                    return call(self._core, requests, timeout)
                return self._core.call(requests, timeout)
            return self._call_all(requests, timeout)
        except (PipeClosed, BatchError):
            pause_if_exiting()
            raise

    def _call_all(self, requests: Any, timeout: float | None) -> list[dict[str, Any]]:
        if not isinstance(requests, list) or not all(isinstance(request, dict) for request in requests):
            raise DataTypeError(f'a pipe takes a dict such as {{"data": …}}, or a list of dicts, got {_kind(requests)}')
        if len({id(request) for request in requests}) < len(requests):
            raise DataTypeError("the same dict appears twice in the list; pass a separate dict for each request")
        outcomes = _blocking(self._core.call_many, requests, timeout)
        errors = [(index, outcome) for index, outcome in enumerate(outcomes) if outcome is not None]
        for _, error in errors:
            if isinstance(error, KeyboardInterrupt):
                raise error
        if errors:
            raise BatchError(errors)
        return requests

    def submit(self, request: dict[str, Any], timeout: float | None = None) -> Future[dict[str, Any]]:
        """Start one request and return a future of the completed request.

        >>> with hami.pipe("Identity") as pipe:
        ...     future = pipe.submit({"data": 1})
        ...     future.result()
        {'data': 1, 'result': 1}

        Waits only if the queue of the node is full and its `on_full` is "block".

        Args:
            request: The request.
            timeout: Time limit of the request in seconds; None means no limit.

        Returns:
            A future of the same dict. Its exceptions are those of a call. It can be cancelled until the request has an
            outcome; what a backend still does for a cancelled request is discarded.

        Raises:
            DataTypeError: `request` is not a dict.
        """
        if not isinstance(request, dict):
            raise _not_one_dict("submit", request)
        from hami._runtime.future import submit

        return submit(self._core, request, timeout)

    async def acall(self, request: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Run one request from a task of an asyncio loop.

        >>> import asyncio
        >>> async def main():
        ...     with hami.pipe("Identity") as pipe:
        ...         return await pipe.acall({"data": 1})
        >>> asyncio.run(main())
        {'data': 1, 'result': 1}

        Never blocks the loop: the task waits, also for a place in a full queue. Cancelling the task cancels the
        request.

        Args:
            request: The request.
            timeout: Time limit of the request in seconds; None means no limit.

        Returns:
            The same dict, with its `result`.

        Raises:
            DataTypeError: `request` is not a dict.
            RuntimeError: No asyncio loop is running on this thread.
            Exception: As for a call.
        """
        if not isinstance(request, dict):
            raise _not_one_dict("acall", request)
        try:
            awaitable = _start(self._core, request, timeout)
            try:
                await awaitable
            except BaseException:
                awaitable.abandon()
                raise
        except PipeClosed:
            pause_if_exiting()
            raise
        return request

    def map(
        self, requests: Iterable[dict[str, Any]], concurrency: int = 16, timeout: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """Run many requests, several at a time, and yield them in order.

        >>> with hami.pipe("Identity") as pipe:
        ...     [request["result"] for request in pipe.map({"data": number} for number in range(3))]
        [0, 1, 2]

        Takes the next request only when fewer than `concurrency` requests are running, so `requests` may be infinite.
        The first request that fails ends the iteration. The requests after it are cancelled, as they are if the caller
        stops iterating.

        Args:
            requests: The requests; each needs a dict of its own.
            concurrency: Maximum number of requests that run at a time.
            timeout: Time limit of each request in seconds; None means no limit.

        Returns:
            An iterator over the same dicts, each with its `result`.

        Raises:
            ValueError: `concurrency` is not an int of at least 1.
            Exception: As for a call, for the first request that failed.
        """
        if not isinstance(concurrency, int) or concurrency < 1:
            raise ValueError(f"concurrency must be an int of at least 1, got {concurrency!r}")
        from hami._runtime.ordered_map import ordered_map

        return ordered_map(self, requests, concurrency, timeout)

    def close(self, timeout: float | None = 10.0) -> None:
        """Reject new requests, wait for outstanding requests, end all threads and close the backends.

        >>> pipe = hami.pipe("Identity")
        >>> pipe.close()
        >>> pipe.closed
        True

        After `timeout`, the outstanding requests fail with PipeClosed and the backends have a grace period of 1 s. A
        backend that does not return in time is abandoned: a RuntimeWarning names it. Ctrl-C raises KeyboardInterrupt at
        once, and the same happens in the background.

        Args:
            timeout: Time limit in seconds; None means no limit.
        """
        abandoned = _blocking(self._core.close, timeout)
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
        """Return the statistics of each node since the pipe was built, by the name of the node.

        >>> with hami.pipe("Identity") as pipe:
        ...     request = pipe({"data": 1})
        ...     pipe.stats()["default"].completed
        1
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
        """Reject pickling and copying: threads and models belong to this process."""
        raise TypeError("a pipe cannot be pickled or copied; call hami.pipe in the process that uses it")


def _with_register(function: Callable[[Any], Pipe]) -> BuildPipe:
    """Give `hami.pipe` the attribute `register`, which is `hami.register`."""
    from hami._runtime.backend import register

    function.__dict__["register"] = register
    return cast("BuildPipe", function)


@_with_register
def pipe(source: Any) -> Pipe:
    """Build a pipe from a configuration. `hami.pipe.register` is `hami.register`.

    >>> with hami.pipe({"double": {"backend": "S[Identity,Identity]", "max": 8}}) as pipe:
    ...     pipe({"data": 1})["result"]
    1

    Args:
        source: The path of a file such as "pipeline.toml", a dict of nodes or of the keys of one node, an expression
            such as "S[DecodeMat,ResizeMat(224,224)]", or the name of a packaged pipeline such as "ocr".

    Raises:
        ConfigError: The configuration is wrong. It contains every mistake, and no backend was started.
        BackendNotFound: No backend has a name that is used.
        PluginError: A plugin that is needed cannot be used.
        NotFound: An instance that is used is not registered.
        Exception: The exception of a backend's `init`.
    """
    return Pipe(source)


def _start(core: _core.Pipe, request: dict[str, Any], timeout: float | None) -> _core.Awaitable:
    """Start a request for the current task. The first call imports asyncio and replaces this function."""
    global _start
    from hami._runtime.tasks import start as _start

    return _start(core, request, timeout)


def _blocking(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that blocks; under gevent, other greenlets run meanwhile."""
    if "gevent" in sys.modules:
        from hami._runtime.greenlets import in_thread_pool

        return in_thread_pool(function, *arguments)
    return function(*arguments)


def _not_one_dict(method: str, request: object) -> DataTypeError:
    return DataTypeError(f'{method} takes one dict such as {{"data": …}}, got {_kind(request)}')


def _kind(value: object) -> str:
    others = {type(item).__name__ for item in value if not isinstance(item, dict)} if isinstance(value, list) else set()
    return "a list of " + ", ".join(sorted(others)) if others else type(value).__name__
