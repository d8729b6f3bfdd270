"""The exceptions of hami_accel. All are subclasses of exceptions of hami.

hami.RequestError
├─ InputError       an input has a wrong count, name, type, shape, layout or size      (also a ValueError)
├─ SlotError        the slot does not exist or is in another state                     (also a ValueError)
├─ WaitTimeout      `wait` returned before the task ended; the task goes on            (also a TimeoutError)
├─ SlotLost         the device never answered; the slot cannot be used again
├─ ModelClosed      the model was closed
└─ DeviceError      the device reported an error; `code` is its number
hami.DeadlineExceeded   the deadline of a task passed, or cannot be met
"""

from __future__ import annotations

import hami

__all__ = ["CallAborted", "DeviceError", "InputError", "ModelClosed", "SlotError", "SlotLost", "WaitTimeout"]


class InputError(hami.RequestError, ValueError):
    """An input does not fit the model. No task was started."""


class SlotError(hami.RequestError, ValueError):
    """The slot does not exist, or the call does not fit its state: a busy start, an idle wait, a double wait."""


class WaitTimeout(hami.RequestError, TimeoutError):
    """The time of `wait` passed. The task goes on, and `wait` can be called again."""


class SlotLost(hami.RequestError):
    """The device did not answer within `call_timeout`. The slot of the task cannot be used again; other slots can."""


class ModelClosed(hami.RequestError):
    """The model was closed before, or while, the call ran."""


class DeviceError(hami.RequestError):
    """The device reported an error.

    >>> DeviceError("sim: function-call 2 of 4 failed", code=-5).code
    -5
    """

    def __init__(self, message: str = "", code: int = 0) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.code)


class CallAborted(Exception):
    """A device raises it from `Call.wait` after `Call.abort`. It never reaches the caller of a model."""
