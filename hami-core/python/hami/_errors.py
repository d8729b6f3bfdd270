"""Every exception that hami raises.

Error
├─ ConfigError              the configuration, an expression or a parameter is wrong; no backend was started
├─ BackendNotFound          no backend has the name; the message suggests a package or similar names
├─ PluginError              a plugin cannot be used: it failed to load, is disabled or is incompatible, or two plugins
│                           provide the name
├─ DataTypeError            a value has a type that is not accepted                   (also a TypeError)
├─ RequestError             one request failed; the pipe continues
│  ├─ NoResult              the backend set no `result`
│  ├─ BackendExit           the backend raised SystemExit, StopIteration or another exception that is not an error
│  ├─ QueueFull             a queue is full
│  ├─ DeadlineExceeded      the timeout or deadline passed, or an init_timeout        (also a TimeoutError)
│  ├─ PipeClosed            the pipe was closed first
│  └─ ReentrantCall         a nested call, or a wait for capacity, would have completed a deadlock cycle
├─ BatchError               some requests of pipe([…]) failed: `errors` has (index, exception) pairs
├─ NotFound                 the request, key or instance does not exist               (also a KeyError)
├─ OutOfRange               an index is outside of a tensor                           (also an IndexError)
└─ AlreadyExists            the request, key or name exists already                   (also a KeyError)
"""

from __future__ import annotations

__all__ = [
    "AlreadyExists",
    "BackendExit",
    "BackendNotFound",
    "BatchError",
    "ConfigError",
    "DataTypeError",
    "DeadlineExceeded",
    "Error",
    "NoResult",
    "NotFound",
    "OutOfRange",
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
    """Base class of all exceptions of hami. The first line of the message is complete in itself.

    >>> try:
    ...     hami.pipe("S[Identity")
    ... except hami.Error as error:
    ...     print(str(error).splitlines()[0])
    "[" is never closed
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message)

    def __str__(self) -> str:  # KeyError, a base of some subclasses, would show repr(message)
        return str(self.args[0]) if self.args else ""


class ConfigError(Error):
    """The configuration, an expression or a parameter is wrong.

    >>> try:
    ...     hami.pipe({"backend": "Identity", "instance_num": "two"})
    ... except hami.ConfigError as error:
    ...     print(len(error.problems), str(error).splitlines()[0])
    1 parameter "instance_num" of InstancesRegister takes int from 0 to 65536 or "auto", got "two"

    Attributes:
        problems: One exception for each mistake in the configuration; the exception itself if it is the only one.
    """

    def __init__(self, message: str = "", problems: Iterable[Exception] = ()) -> None:
        super().__init__(message)
        self.problems: list[Exception] = list(problems) or [self]

    @classmethod
    def of(cls, problems: Sequence[Exception]) -> Exception:
        """Return the only problem itself, or one ConfigError that contains all problems."""
        if len(problems) == 1:
            return problems[0]
        return cls("\n\n".join([f"{len(problems)} problems in the configuration", *map(str, problems)]), problems)

    def __reduce__(self) -> tuple[object, ...]:
        problems = [problem for problem in self.problems if problem is not self]
        return type(self), (*self.args, problems), _extra_state(self, "problems")


class _WithHint(Error):
    """An error about a name: `headline` is complete in itself, `hint` (may be empty) says what to do.

    For a name in an expression, the core raises a new error of the same class, with the expression between headline and
    hint. Of several errors with the same `cause`, the core reports only the first; an empty cause is never shared.
    Unpickling restores the complete text from `message`.
    """

    cause = ""

    def __init__(self, headline: str = "", hint: str = "", message: str = "") -> None:
        super().__init__(message or (f"{headline}\n  {hint}" if hint else headline))
        self.headline = headline
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.headline, self.hint, *self.args), _extra_state(self)


class BackendNotFound(_WithHint):
    """No backend has this name, neither in this process nor in an installed plugin.

    >>> try:
    ...     hami.pipe("S[identity]")
    ... except hami.BackendNotFound as error:
    ...     print(str(error).splitlines()[0])
    backend "identity" not found; names are case-sensitive: Identity (hami-core)
    """

    unsearched = ""  # the part of the hint about plugins that may have the name
    advice = ""  # the hint of a plugin about the name


class PluginError(_WithHint):
    """A plugin or a backend class cannot be used.

    >>> @hami.register
    ... class WithoutForward(hami.Backend):
    ...     pass
    Traceback (most recent call last):
    hami.PluginError: WithoutForward has no method forward(self, batch)
    """


class DataTypeError(Error, TypeError):
    """A value of a request has a type that the backend or the core does not accept.

    >>> with hami.pipe("FanOut[Identity]") as pipe:
    ...     try:
    ...         pipe({"data": 7})
    ...     except hami.DataTypeError as error:
    ...         print(str(error).splitlines()[0])
    FanOut takes a list in `data`, got int
    """


class RequestError(Error):
    """One request is wrong or failed; the pipe continues.

    >>> with hami.pipe("Identity") as pipe:
    ...     try:
    ...         pipe({})
    ...     except hami.RequestError as error:
    ...         print(error)
    the request has no `data`
    """


class NoResult(RequestError):
    """The backend returned without setting the `result` of the request.

    >>> @hami.register
    ... class Idle(hami.Backend):
    ...     def forward(self, batch):
    ...         pass
    >>> with hami.pipe("Idle") as pipe:
    ...     try:
    ...         pipe({"data": 1})
    ...     except hami.NoResult as error:
    ...         print(type(error).__name__)
    NoResult
    """


class BackendExit(RequestError):
    """The backend raised an exception that is not an error of the request but steers the code that it passes.

    >>> @hami.register
    ... class Exits(hami.Backend):
    ...     def forward(self, batch):
    ...         raise SystemExit(3)
    >>> with hami.pipe("Exits") as pipe:
    ...     try:
    ...         pipe({"data": 1})
    ...     except hami.BackendExit as error:
    ...         print(str(error).splitlines()[0], type(error.__cause__).__name__)
    the backend raised SystemExit(3) SystemExit

    It stands for StopIteration, StopAsyncIteration, CancelledError, and for every class that does not derive from
    Exception, such as SystemExit, KeyboardInterrupt and GeneratorExit. In the caller, these would end a thread, a loop
    or a task. The original exception is `__cause__`.
    """


class QueueFull(RequestError):
    """A queue is full: that of a node whose `on_full` is not "block", or a `hami.Queue` that may not wait.

    >>> queue = hami.Queue(max=1)
    >>> queue.put("first")
    >>> try:
    ...     queue.put("second", timeout=0)
    ... except hami.QueueFull as error:
    ...     print(type(error).__name__)
    QueueFull
    """


class DeadlineExceeded(RequestError, TimeoutError):
    """The timeout or deadline of a request passed before the request was complete, or the init_timeout of a node.

    >>> queue = hami.Queue()
    >>> try:
    ...     queue.get(timeout=0.001)
    ... except TimeoutError as error:
    ...     print(type(error).__name__)
    DeadlineExceeded
    """


class PipeClosed(RequestError):
    """The pipe was closed before the request was complete.

    >>> pipe = hami.pipe("Identity")
    >>> pipe.close()
    >>> try:
    ...     pipe({"data": 1})
    ... except hami.PipeClosed as error:
    ...     print(type(error).__name__)
    PipeClosed
    """


class ReentrantCall(RequestError):
    """A call inside a backend would have completed a deadlock cycle: every instance it needs waits for this call.

    In a backend or callback, it is also the error of a request that finds the queue of its node full, if no other
    instance can make capacity. It is also the error of a call in a greenlet of gevent, which would block the others of
    its thread, and of a call while another greenlet of the thread is switched out inside a backend or callback.

    >>> @hami.register
    ... class CallsItself(hami.Backend):
    ...     def forward(self, batch):
    ...         for item in batch:
    ...             item["result"] = pipe({"data": item["data"] - 1})["result"]
    >>> with hami.pipe("CallsItself") as pipe:
    ...     try:
    ...         pipe({"data": 3})
    ...     except hami.ReentrantCall as error:
    ...         print(type(error).__name__)
    ReentrantCall
    """


class BatchError(Error):
    """Some requests of one call failed; the other requests have their `result`.

    >>> with hami.pipe("FanOut[Identity]") as pipe:
    ...     try:
    ...         pipe([{"data": [1]}, {"data": 7}])
    ...     except hami.BatchError as error:
    ...         print([index for index, _ in error.errors])
    [1]

    Attributes:
        errors: A list of (index, exception) pairs, one for each request that failed.
    """

    def __init__(self, errors: Iterable[tuple[int, BaseException]] = (), message: str = "") -> None:
        self.errors: list[tuple[int, BaseException]] = list(errors)
        super().__init__(message or _summary(self.errors))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.errors, *self.args), _extra_state(self, "errors")


class NotFound(Error, KeyError):
    """The request, key or registered instance does not exist.

    >>> store = hami.types.RequestStore()
    >>> try:
    ...     store.get("r1", "boxes")
    ... except hami.NotFound as error:
    ...     print(type(error).__name__)
    NotFound
    """


class OutOfRange(Error, IndexError):
    """An index is outside of a tensor, or has more axes than the tensor.

    >>> import numpy
    >>> with hami.pipe("SoftmaxTensor") as pipe:
    ...     scores = pipe({"data": numpy.zeros((1, 2))})["result"]
    >>> try:
    ...     scores[0, 2]
    ... except IndexError as error:
    ...     print(type(error).__name__, "-", error)
    OutOfRange - index 2 is out of range for axis 1 of float64 [1, 2]
    """


class AlreadyExists(Error, KeyError):
    """The request, key or name exists already.

    >>> store = hami.types.RequestStore()
    >>> store.create("r1")
    >>> try:
    ...     store.create("r1")
    ... except hami.AlreadyExists as error:
    ...     print(type(error).__name__)
    AlreadyExists
    """


def _summary(errors: Sequence[tuple[int, BaseException]]) -> str:
    if not errors:
        return ""
    index, first = errors[0]
    count = "1 request failed" if len(errors) == 1 else f"{len(errors)} requests failed, the first"
    text = text_of(first)
    return f"{count} at index {index}: {name_of(first)}{'' if text is None else f': {text}'}"


def name_of(error: BaseException) -> str:
    """Return the name of the class of any exception; its metaclass is not asked."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return name


def module_of(error: BaseException) -> str:
    """Return the name of the module of any exception's class; empty if it has none that is text."""
    try:
        module = type.__dict__["__module__"].__get__(type(error))
    except AttributeError:  # a class that exec made without a module
        return ""
    return module if isinstance(module, str) else ""


def text_of(error: BaseException) -> str | None:
    """Return the message of any exception; None if its class has none, as its `__str__` raises."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # the error itself matters more
        return None


def _extra_state(error: Error, *constructed: str) -> dict[str, object]:
    """Return the attributes that unpickling sets after the constructor, such as notes and attributes of users."""
    return {key: value for key, value in vars(error).items() if key not in (*constructed, "headline", "hint")}
