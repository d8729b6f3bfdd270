"""Submitted requests as standard futures."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from typing import Any

from hami import _core


class RequestFuture(Future[dict[str, Any]]):
    """A standard future whose cancel also reaches a request that is queued or running."""

    _call: Any = None  # the core's handle; None once there is an outcome, which it holds where no gc can see it

    def cancel(self) -> bool:
        """Cancel unless there is an outcome already; the backend's work for the request is discarded."""
        # The core decides: it gives the outcome at once, through `done` below, or there is one on its way already.
        call = self._call
        return self.cancelled() or (call is not None and _core.cancel(call))

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the outcome, at most `timeout` seconds, and return the request or raise its error."""
        self._wait_inside(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome, at most `timeout` seconds, and return its error, if any."""
        self._wait_inside(timeout)
        return super().exception(timeout)

    def _wait_inside(self, timeout: float | None) -> None:
        """Wait without a limit in the core, if this is inside a backend: it sees when that would never end."""
        call = self._call
        if call is not None and timeout is None:
            _core.wait_if_nested(call)


def submit(core: Any, request: dict[str, Any], timeout: float | None) -> RequestFuture:
    future = RequestFuture()

    def done(error: BaseException | None) -> None:
        if future.done():  # told once more, since a signal's handler ended the first time
            pass
        elif isinstance(error, CancelledError):
            Future.cancel(future)
            future.set_running_or_notify_cancel()  # wait() and as_completed() look for a cancellation that was noticed
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(request)
        future._call = None

    future._call = core.submit(request, timeout, done)
    if future.done():
        future._call = None
    return future
