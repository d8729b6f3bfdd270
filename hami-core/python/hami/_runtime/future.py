"""Submitted requests as standard futures."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from concurrent.futures._base import LOGGER
from sys import modules
from threading import Condition
from typing import Any

from hami import _core
from hami._errors import ReentrantCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class _Condition(Condition):
    """A condition that releases its lock at the end of a `with` block also without memory.

    That of the base class needs memory for its arguments, and without any it keeps the lock, so that others would wait
    for the future without end.
    """

    __exit__ = _core.release_condition


class RequestFuture(Future[dict[str, Any]]):
    """A standard future whose cancel also reaches a request that is queued or running."""

    # The core's handle of the request. None once there is an outcome: the handle refers to the outcome, and the garbage
    # collector cannot see that reference.
    _call: Any = None
    _result: Any  # of the base class, as is the next one
    _done_callbacks: list[Callable[[Future[dict[str, Any]]], object]]

    def __init__(self) -> None:
        """Make a future without an outcome."""
        super().__init__()
        self._condition = _Condition()

    def cancel(self) -> bool:
        """Cancel the request unless it has an outcome; what a backend still does for it is discarded."""
        # The core decides: it completes the request at once, through `complete` below, or the request has an outcome.
        call = self._call
        return self.cancelled() or (call is not None and _core.cancel(call))

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait at most `timeout` seconds, and return the completed request or raise its error."""
        self._wait_if_nested(timeout)
        error = super().exception(timeout)
        if error is None:
            request: dict[str, Any] = self._result
            return request
        try:
            raise error  # the base class of some Pythons, such as 3.12, returns None if the exception is false
        finally:
            del error, self  # the frames of its traceback refer to it

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait at most `timeout` seconds, and return the error of the request, if any."""
        self._wait_if_nested(timeout)
        return super().exception(timeout)

    def notify_again(self) -> None:
        """Repeat the notifications of a completion that an exception ended after it had set the outcome."""
        with self._condition:
            self._condition.notify_all()
        self._invoke_callbacks()

    def _invoke_callbacks(self) -> None:
        """Call each callback once, even if the completion is repeated."""
        while self._done_callbacks:
            callback = self._done_callbacks.pop(0)
            try:
                callback(self)
            except Exception:
                LOGGER.exception("exception calling callback for %r", self)

    def _wait_if_nested(self, timeout: float | None) -> None:
        """Inside a backend, let the core wait if there is no limit: it detects deadlock cycles."""
        call = self._call
        if call is None:
            return
        _core.deliver_postponed()  # this request may be one of them
        if timeout is None:
            _core.wait_if_nested(call)


def submit(
    core: _core.Pipe,
    request: dict[str, Any],
    timeout: float | None,
    priority: int | None,
    *,
    may_wait: bool = True,
) -> RequestFuture:
    """Start a request and return its future. Without `may_wait`, a full queue accepts the request too."""
    if "gevent" in modules:
        _check_locks()
    try:
        future = RequestFuture()
    except (RuntimeError, SystemError) as error:  # so CPython reports no memory for a lock, and before 3.12 for a frame
        raise MemoryError(str(error)) from None

    completed = False

    def complete(error: BaseException | None) -> None:
        nonlocal completed
        if future.done():  # the core repeats the call if an exception ended it: of a signal handler, or MemoryError
            future.notify_again()
        elif error is None:
            future.set_result(request)
        elif issubclass(type(error), CancelledError):
            Future.cancel(future)
            future.set_running_or_notify_cancel()  # concurrent.futures.wait() and as_completed() rely on this state
        else:
            future.set_exception(error)
        completed = True
        future._call = None

    future._call = None  # once the request has started, this needs no memory
    future._call = core.submit(request, timeout, complete, may_wait, priority)
    if completed:  # before the line above had the handle
        future._call = None
    return future


def _check_locks() -> None:
    """Reject a future whose locks gevent has patched: a completion on a thread of the core does not wake them."""
    from gevent.monkey import is_module_patched

    if is_module_patched("threading"):
        raise ReentrantCall(
            "gevent has patched the locks of futures, so a wait for a future would never end; "
            "run the call in another thread, with gevent.get_hub().threadpool.apply(pipe, (request,))"
        )
