"""Greenlets of gevent: while one of them waits for the core, the others of its thread run."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gevent import get_hub
from gevent._hub_local import get_hub_if_exists
from gevent.monkey import get_original, is_module_patched

from hami import _core
from hami._runtime import at_exit
from hami._runtime.future import submit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gevent.hub import Hub

    Callback = Callable[[BaseException | None], None]


def call(core: _core.Pipe, request: dict[str, Any], timeout: float | None, priority: int | None) -> dict[str, Any]:
    """Run a request like `Pipe.__call__`. If this thread has greenlets, its backends run on other threads."""
    if _completions() is None:
        result: dict[str, Any] = in_thread_pool(core.call, request, timeout, priority)
        return result
    future = submit(core, request, timeout, priority, may_wait=False)
    try:
        return future.result()
    except BaseException:  # also GreenletExit and the exception of a timer: the caller does not wait any more
        future.cancel()
        raise


def start(
    core: _core.Pipe,
    request: dict[str, Any],
    timeout: float | None,
    complete: Callback,
    may_wait: bool,
    priority: int | None,
) -> _core.Call:
    """Start a request like `_core.Pipe.submit`. If this thread's futures wait in a hub, call `complete` there."""
    completions = _completions()
    if completions is None:
        return core.submit(request, timeout, complete, may_wait, priority)
    with completions.expect(complete) as deliver:
        return core.submit(request, timeout, deliver, may_wait, priority)


def in_thread_pool(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the core that blocks: in the thread pool of the hub, if this thread has a hub."""
    hub = _hub()
    return function(*arguments) if hub is None else hub.threadpool.apply(function, arguments)


def _hub() -> Hub | None:
    """Return the hub that may run other greenlets of this thread."""
    if _core.on_core_thread() or at_exit.is_exiting():
        return None
    return get_hub() if is_module_patched("threading") else get_hub_if_exists()


def _completions() -> _Completions | None:
    """Return where requests of this thread complete; None if its futures do not wait in a hub."""
    hub = _hub() if is_module_patched("threading") else None
    if hub is None:
        return None
    attributes = vars(hub)
    if "hami_completions" not in attributes:
        attributes["hami_completions"] = _Completions(hub)
        _of_thread.end = _EndOfHub(attributes["hami_completions"])
    found: _Completions = attributes["hami_completions"]
    return found


_of_thread = get_original("_thread", "_local")()  # of threads, not of greenlets


class _EndOfHub:
    """Dropped when the thread ends, or when it gets another hub: then the hub does not run again."""

    def __init__(self, completions: _Completions) -> None:
        self._completions = completions

    def __del__(self) -> None:
        self._completions.end()


class _Completions:
    """Completes the futures of one hub on its thread: patched locks do not wake greenlets of other threads reliably."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._ready: deque[tuple[Callback, BaseException | None, Callable[[], None]]] = deque()
        self._outstanding = 0
        self._ended = False
        self._watcher = hub.loop.async_()  # keeps the loop of the hub running while requests are outstanding

    @contextmanager
    def expect(self, complete: Callback) -> Iterator[Callback]:
        """Give the callback for one request, which calls `complete` in the hub. The `with` surrounds its start."""
        is_outstanding = True

        def release() -> None:
            nonlocal is_outstanding
            if is_outstanding:
                is_outstanding = False
                self._outstanding -= 1
                if self._outstanding == 0:
                    self._watcher.stop()

        def deliver(error: BaseException | None) -> None:
            if get_hub_if_exists() is self._hub:
                complete(error)
                release()
                return
            self._ready.append((complete, error, release))
            try:
                self._watcher.send()
            except ValueError:  # the loop of the hub was destroyed when its thread ended
                self._ended = True
            if self._ended:
                self._complete_all()

        if self._outstanding == 0:
            self._watcher.start(self._run)
        self._outstanding += 1
        try:
            yield deliver
        except BaseException:  # the request did not start
            release()
            raise

    def end(self) -> None:
        """Complete what the hub does not run any more; threads of the core complete the rest."""
        self._ended = True
        self._complete_all()

    def _complete_all(self) -> None:
        while self._ready:
            try:
                complete, error, _ = self._ready.popleft()
            except IndexError:  # another thread took the last one
                return
            complete(error)

    def _run(self) -> None:
        """Called by the hub."""
        try:
            while self._ready:
                complete, error, release = self._ready[0]
                complete(error)
                release()
                self._ready.popleft()
        except BaseException:  # raised by a signal handler; the next pass continues
            self._watcher.send()
            raise
