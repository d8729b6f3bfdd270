"""`hami.pipe` and `hami.Pipe`: builds a pipe from a source, and runs requests in it."""

from __future__ import annotations

import os
import sys
from time import monotonic

from hami import _core
from hami._errors import BatchError, PipeClosed
from hami._runtime.at_exit import close_at_exit, pause_if_exiting, warn_of_abandoned
from hami._runtime.calls import call_all, require_dict
from hami._runtime.observed import Observed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Future
    from typing import Any, Protocol, TypeVar, cast, overload

    AnyDict = TypeVar("AnyDict", bound="dict[str, Any]")

    class BuildPipe(Protocol):
        """The type of `hami.pipe`."""

        register: Callable[..., Any]

        def __call__(self, source: Any, queues: Mapping[str, _core.Queue] | None = None) -> Pipe: ...
else:

    def cast(kind: str, value: object) -> object:
        return value


class Pipe(Observed):
    """A running pipeline, built by `hami.pipe`.

    >>> with hami.pipe("Identity") as pipe:
    ...     pipe({"data": "page"})
    {'data': 'page', 'result': 'page'}

    A request is a dict with str keys: `data` is the input, `result` the output, and other keys pass through. Any number
    of threads may call a pipe. Leaving the `with` block closes it.
    """

    def __init__(self, source: Any, queues: Mapping[str, _core.Queue] | None = None) -> None:
        from hami._config import load

        if os.environ.get("HAMI_TRACE"):
            from hami.observe.trace import start_from_environment

            start_from_environment()
        # Another thread may be importing logging; nothing has set a level then.
        if logger := getattr(sys.modules.get("logging"), "getLogger", None):
            _core.set_log_level(logger("hami").getEffectiveLevel())
        self._queues = queues or {}
        try:
            config = load(source)
            self._core: _core.Pipe = _core.Pipe(config, self._queues)
        except BaseException:  # an interrupted construction may leave an init running, and the program waits for that
            close_at_exit()
            raise
        close_at_exit(self)
        try:
            if os.environ.get("HAMI_WATCHDOG"):
                from hami._runtime.logs import start_watchdog

                start_watchdog()
            if config.accept:
                config.accept(self)
        except BaseException:
            self.close()
            raise

    if TYPE_CHECKING:

        @overload
        def __call__(
            self, requests: dict[str, Any], timeout: float | None = None, *, priority: int | None = None
        ) -> dict[str, Any]: ...
        @overload
        def __call__(
            self, requests: list[dict[str, Any]], timeout: float | None = None, *, priority: int | None = None
        ) -> list[dict[str, Any]]: ...
        @overload
        def __call__(
            self, requests: list[AnyDict], timeout: float | None = None, *, priority: int | None = None
        ) -> list[AnyDict]: ...

    def __call__(self, requests: Any, timeout: float | None = None, *, priority: int | None = None) -> Any:
        """Run one request or a list of requests, and wait for the results.

        >>> with hami.pipe("Identity") as pipe:
        ...     pipe([{"data": 1}, {"data": 2}], timeout=2.5)
        [{'data': 1, 'result': 1}, {'data': 2, 'result': 2}]

        Args:
            requests: A dict, or a list of different dicts.
            timeout: Time limit of each request in seconds; None means no limit.
            priority: For requests that have no key `priority`: 255 is urgent, 254 high, 0 to 253 normal. None means 0,
                or that of the batch if a backend makes the call.

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
                return self._core.call(requests, timeout, priority)
            return call_all(
                lambda each, limit: self._core.call_many(each, limit, priority), requests, timeout, "a pipe"
            )
        except (PipeClosed, BatchError):
            pause_if_exiting()
            raise

    def submit(
        self, request: dict[str, Any], timeout: float | None = None, *, priority: int | None = None
    ) -> Future[dict[str, Any]]:
        """Start one request and return a future of the completed request.

        >>> with hami.pipe("Identity") as pipe:
        ...     future = pipe.submit({"data": 1})
        ...     future.result()
        {'data': 1, 'result': 1}

        Waits only if the queue of the node is full and its `on_full` is "block".

        Args:
            request: The request: a dict.
            timeout: Time limit of the request in seconds; None means no limit.
            priority: For a request that has no key `priority`: 255 is urgent, 254 high, 0 to 253 normal. None means 0,
                or that of the batch if a backend makes the call.

        Returns:
            A future of the same dict. Its exceptions are those of a call. It can be cancelled until the request has an
            outcome; what a backend still does for a cancelled request is discarded.

        Raises:
            DataTypeError: `request` is not a dict.
        """
        from hami._runtime.future import submit

        require_dict(request, "submit")
        return submit(self._core, request, timeout, priority)

    async def acall(
        self, request: dict[str, Any], timeout: float | None = None, *, priority: int | None = None
    ) -> dict[str, Any]:
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
            request: The request: a dict.
            timeout: Time limit of the request in seconds; None means no limit.
            priority: For a request that has no key `priority`: 255 is urgent, 254 high, 0 to 253 normal. None means 0,
                or that of the batch if a backend makes the call.

        Returns:
            The same dict, with its `result`.

        Raises:
            DataTypeError: `request` is not a dict.
            RuntimeError: No asyncio loop is running on this thread.
            Exception: As for a call.
        """
        require_dict(request, "acall")
        try:
            awaitable = _start(self._core, request, timeout, priority)
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
        self,
        requests: Iterable[dict[str, Any]],
        concurrency: int = 16,
        timeout: float | None = None,
        *,
        priority: int | None = None,
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
            priority: For requests that have no key `priority`: 255 is urgent, 254 high, 0 to 253 normal. None means 0,
                or that of the batch if a backend makes the call.

        Returns:
            An iterator over the same dicts, each with its `result`.

        Raises:
            ValueError: `concurrency` is not an int of at least 1.
            Exception: As for a call, for the first request that failed.
        """
        if not isinstance(concurrency, int) or concurrency < 1:
            raise ValueError(f"concurrency must be an int of at least 1, got {concurrency!r}")
        from hami._runtime.iterators import ordered_map

        return ordered_map(lambda each: self.submit(each, timeout, priority=priority), requests, concurrency)

    def stream(
        self, request: dict[str, Any], timeout: float | None = None, *, priority: int | None = None, buffer: int = 16
    ) -> Iterator[Any]:
        """Run one request, and yield the parts of its result while it runs.

        >>> @hami.register
        ... class Count(hami.Backend):
        ...     def forward(self, batch):
        ...         yield from range(batch[0]["data"])
        >>> with hami.pipe("Count") as pipe:
        ...     list(pipe.stream({"data": 3}))
        [0, 1, 2]

        A backend delivers parts with `item.emit(part)`, or with a `forward` that is a generator. It waits while
        `buffer` parts have not been taken. Leaving the loop early cancels the request.

        Args:
            request: The request. After the last part it has its `result`, as after a call.
            timeout: Time limit of the request, with all its parts, in seconds; None means no limit.
            priority: For a request that has no key `priority`, as for a call.
            buffer: Maximum number of parts that wait for the caller.

        Returns:
            An iterator over the parts. The request starts with the first `next`.

        Raises:
            DataTypeError: `request` is not a dict.
            Exception: As for a call, after the parts that arrived before the request failed.
        """
        from hami._runtime.iterators import stream

        return stream(self._core, request, timeout, priority, buffer)

    def astream(
        self, request: dict[str, Any], timeout: float | None = None, *, priority: int | None = None, buffer: int = 16
    ) -> AsyncGenerator[Any, None]:
        """Run one request from a task of an asyncio loop, and yield the parts of its result while it runs.

        >>> import asyncio
        >>> @hami.register
        ... class Letters(hami.Backend):
        ...     def forward(self, batch):
        ...         yield from batch[0]["data"]
        >>> async def main():
        ...     with hami.pipe("Letters") as pipe:
        ...         return [part async for part in pipe.astream({"data": "abc"})]
        >>> asyncio.run(main())
        ['a', 'b', 'c']

        Arguments and errors are those of `stream`. Cancelling the task, or leaving the loop and closing the iterator,
        cancels the request.
        """
        from hami._runtime.iterators import astream

        return astream(self._core, request, timeout, priority, buffer)

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
        begun = monotonic()
        warn_of_abandoned(self._core.close(timeout), begun)

    def warmup(self, request: dict[str, Any], n: int = 3, sizes: Iterable[int] | None = None) -> dict[int, float]:
        """Run batches of copies of a request, so that the first real request does not wait for what runs only once.

        >>> with hami.pipe({"backend": "Identity", "max": 8}) as pipe:
        ...     list(pipe.warmup({"data": 1}))
        [1, 8]

        Engines choose kernels, allocate memory and compile for each batch size when they first see it. The batches
        count in the statistics.

        Args:
            request: A typical request; it is not changed.
            n: How many batches of each size.
            sizes: The numbers of requests in a batch; by default 1, and the largest `max` of the nodes.

        Returns:
            The seconds that the last batch of each size took, by size.

        Raises:
            ConfigError: `n` or a size is below 1.
            Exception: As for a call, of the first request that failed.
        """
        from hami._runtime.iterators import warm_up

        return warm_up(self, self.describe(), request, n, sizes)

    def replace(self, source: Any, timeout: float | None = 10.0) -> None:
        """Build another pipeline, and let it serve all further requests of this pipe; then close the old one.

        >>> with hami.pipe("Identity") as pipe:
        ...     pipe.replace("S[Identity,Identity]")
        ...     pipe({"data": 1})["result"]
        1

        Callers go on as before: no request is lost, and none waits for the new pipeline to be built. Requests that have
        started end in the old one. If the new one cannot be built, nothing changes. The statistics, the store and the
        queues are those of the new pipeline from then on; it has the queues of the program that the old one had.

        Args:
            source: As for `hami.pipe`.
            timeout: Time limit in seconds for the requests of the old pipeline, as for `close`; None means no limit.

        Raises:
            PipeClosed: The pipe is closed.
            Exception: As for `hami.pipe`.
        """
        if self.closed:
            raise PipeClosed("the pipe is closed")
        other = Pipe(source, self._queues)._core
        begun = monotonic()
        warn_of_abandoned(self._core.replace(other, timeout), begun)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._core.closed

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


def _with_register(function: Callable[..., Pipe]) -> BuildPipe:
    """Give `hami.pipe` the attribute `register`, which is `hami.register`."""
    from hami._backends.registration import register

    function.__dict__["register"] = register
    return cast("BuildPipe", function)


@_with_register
def pipe(source: Any, queues: Mapping[str, _core.Queue] | None = None) -> Pipe:
    """Build a pipe from a configuration. `hami.pipe.register` is `hami.register`.

    >>> with hami.pipe({"double": {"backend": "S[Identity,Identity]", "max": 8}}) as pipe:
    ...     pipe({"data": 1})["result"]
    1

    Args:
        source: The path of a file such as "pipeline.toml", a dict of nodes or of the keys of one node, an expression
            such as "S[DecodeMat,ResizeMat(224,224)]", or the name of a packaged pipeline such as "ocr".
        queues: Queues of the program, by the names with which `Send`, `Queue` and `Recv` use them. The pipe creates
            queues of its own for other names.

    Raises:
        ConfigError: The configuration is wrong. It contains every mistake, and no backend was started.
        BackendNotFound: No backend has a name that is used.
        PluginError: A plugin that is needed cannot be used.
        NotFound: An instance that is used is not registered.
        Exception: The exception of a backend's `init`.
    """
    return Pipe(source, queues)


def _start(core: _core.Pipe, request: dict[str, Any], timeout: float | None, priority: int | None) -> _core.Awaitable:
    """Start a request for the current task. The first call imports asyncio and replaces this function."""
    global _start
    try:
        from hami._runtime.tasks import start as _start
    except SystemError as error:  # CPython 3.13 may raise it without memory to compile a module
        raise MemoryError("no memory to import hami._runtime.tasks, which awaited calls need") from error

    return _start(core, request, timeout, priority)
