"""Every exception that hami raises.

Error
├─ ConfigError              the configuration, an expression or a parameter is wrong; nothing was started
├─ BackendNotFound          no such backend here; says which package has it, or which names are near
├─ PluginError              a plugin has it, but cannot be used: broken, blocked, refused, or two own the name
├─ DataTypeError            `data` is of a type that the backend does not take        (also a TypeError)
├─ RequestError             one request failed; the pipe goes on
│  ├─ NoResult              its backend left no `result`
│  ├─ QueueFull             the node's queue is full and `on_full = "reject"`
│  ├─ DeadlineExceeded      its timeout or deadline passed                            (also a TimeoutError)
│  ├─ PipeClosed            the pipe was closed before it was done
│  └─ ReentrantCall         a nested call would have completed a deadlock cycle of nodes
├─ BatchError               some requests of pipe([…]) failed: `errors` has (index, exception)
├─ NotFound                 no such request or name                                   (also a KeyError)
└─ AlreadyExists            such a request or key is there already                    (also a KeyError)
"""

from __future__ import annotations

__all__ = [
    "AlreadyExists",
    "BackendNotFound",
    "BatchError",
    "ConfigError",
    "DataTypeError",
    "DeadlineExceeded",
    "Error",
    "NoResult",
    "NotFound",
    "PipeClosed",
    "PluginError",
    "QueueFull",
    "ReentrantCall",
    "RequestError",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Error(Exception):
    """Base of all exceptions of hami. The first line of its text is complete by itself."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)

    def __str__(self) -> str:  # a KeyError beside us would show repr(message)
        return str(self.args[0]) if self.args else ""


class ConfigError(Error):
    """The configuration is wrong; `problems` has one exception for each thing that is."""

    def __init__(self, message: str = "", problems: Iterable[Exception] = ()) -> None:
        super().__init__(message)
        self.problems: list[Exception] = list(problems) or [self]

    @classmethod
    def of(cls, problems: Sequence[Exception]) -> Exception:
        """Return the one problem itself, or one ConfigError that tells all of them."""
        if len(problems) == 1:
            return problems[0]
        return cls("\n\n".join([f"{len(problems)} problems in the configuration", *map(str, problems)]), problems)

    def __reduce__(self) -> tuple[object, ...]:
        problems = [problem for problem in self.problems if problem is not self]
        return type(self), (*self.args, problems), _state(self, "problems")


class _WithHint(Error):
    """An error about a name: `headline` is complete by itself, `hint` (may be empty) says what to do.

    The core shows both around the expression that holds the name; the full text is then `message`. Of several names
    with the same `cause` (empty: none that others share) it tells the first alone.
    """

    cause = ""

    def __init__(self, headline: str = "", hint: str = "", message: str = "") -> None:
        super().__init__(message or (f"{headline}\n  {hint}" if hint else headline))
        self.headline = headline
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.headline, self.hint, *self.args), _state(self)


class BackendNotFound(_WithHint):
    """No backend of that name is registered, built in or installed."""


class PluginError(_WithHint):
    """A plugin has what was asked for but cannot be used."""


class DataTypeError(Error, TypeError):
    """`data` is of a type that the backend does not take."""


class RequestError(Error):
    """One request failed."""


class NoResult(RequestError):
    """The backend left no `result` in the request."""


class QueueFull(RequestError):
    """The node's queue is full and its `on_full` is `reject`."""


class DeadlineExceeded(RequestError, TimeoutError):
    """The request's timeout or deadline passed before it was done."""


class PipeClosed(RequestError):
    """The pipe was closed before the request was done."""


class ReentrantCall(RequestError):
    """A call inside a backend would never end: the nodes that it needs wait for it, with all their instances."""


class BatchError(Error):
    """Some requests of one call failed; `errors` has (index, exception) pairs, the others have their `result`."""

    def __init__(self, errors: Iterable[tuple[int, BaseException]] = (), message: str = "") -> None:
        self.errors: list[tuple[int, BaseException]] = list(errors)
        super().__init__(message or _tell(self.errors))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.errors, *self.args), _state(self, "errors")


class NotFound(Error, KeyError):
    """There is no such request or name."""


class AlreadyExists(Error, KeyError):
    """There is such a request or key already."""


def _tell(errors: Sequence[tuple[int, BaseException]]) -> str:
    if not errors:
        return ""
    index, first = errors[0]
    count = "1 request failed" if len(errors) == 1 else f"{len(errors)} requests failed"
    return f"{count}; number {index}: {type(first).__name__}: {first}"


def _state(error: Error, *constructed: str) -> dict[str, object]:
    """Return what unpickling has to set beside the constructor's arguments: notes, and what a user attached."""
    return {key: value for key, value in vars(error).items() if key not in (*constructed, "headline", "hint")}
