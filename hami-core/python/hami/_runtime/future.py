"""Submitted requests as standard futures."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from sys import modules
from typing import Any

from hami import _core


class RequestFuture(Future[dict[str, Any]]):
    """A standard future whose cancel also reaches a request that is queued or running."""

    # The core's handle of the request. None once there is an outcome: the handle refers to the outcome, and the garbage
    # collector cannot see that reference.
    _call: Any = None

    def cancel(self) -> bool:
        """Cancel the request unless it has an outcome; what a backend still does for it is discarded."""
        # The core decides: it completes the request at once, through `complete` below, or the request has an outcome.
        call = self._call
        return self.cancelled() or (call is not None and _core.cancel(call))

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait at most `timeout` seconds, and return the completed request or raise its error."""
        self._wait_if_nested(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait at most `timeout` seconds, and return the error of the request, if any."""
        self._wait_if_nested(timeout)
        return super().exception(timeout)

    def _wait_if_nested(self, timeout: float | None) -> None:
        """Inside a backend, let the core wait if there is no limit: it detects deadlock cycles."""
        call = self._call
        if call is not None and timeout is None:
            _core.wait_if_nested(call)


def submit(core: _core.Pipe, request: dict[str, Any], timeout: float | None, *, may_wait: bool = True) -> RequestFuture:
    """Start a request and return its future. Without `may_wait`, a full queue accepts the request too."""
    future = RequestFuture()

    def complete(error: BaseException | None) -> None:
        if future.done():  # the core repeats the call if the exception of a signal handler interrupted it
            pass
        elif isinstance(error, CancelledError):
            Future.cancel(future)
            future.set_running_or_notify_cancel()  # concurrent.futures.wait() and as_completed() rely on this state
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(request)
        future._call = None

    if "gevent" in modules:
        from hami._runtime.greenlets import start

        future._call = start(core, request, timeout, complete, may_wait)
    else:
        future._call = core.submit(request, timeout, complete, may_wait)
    if future.done():
        future._call = None
    return future
