"""The base class of backends written in Python."""

from __future__ import annotations

from hami._errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from functools import cached_property
    from logging import Logger
    from typing import Any, ClassVar, Literal

    from hami._core import BackendHandle, BackendServices, DictView, Queue, Request, RequestStore

    Outline = tuple[str, dict[str, Any], dict[str, Any]]
else:

    class cached_property:
        """A short form of `functools.cached_property`, whose import takes long. A class may assign to the attribute."""

        def __init__(self, function):
            self.function, self.__doc__ = function, function.__doc__

        def __get__(self, instance, owner):
            if instance is None:
                return self
            value = instance.__dict__[self.function.__name__] = self.function(instance)
            return value


class Backend:
    """Base class of backends written in Python.

    A subclass has a method `forward`. Its annotated class attributes are its parameters: they hold the configured
    values before `init` runs. The class attributes below are its traits.

    >>> @hami.register
    ... class AddOne(hami.Backend):
    ...     step: int = 1
    ...     def forward(self, batch):
    ...         for item in batch:
    ...             item["result"] = item["data"] + self.step
    >>> with hami.pipe("AddOne(step=5)") as pipe:
    ...     pipe({"data": 2})["result"]
    7

    A parameter has one of these types, or one of them `| None`: bool, int, float, str, pathlib.Path, list[str],
    Literal["a", "b"], and of `hami.types`: Duration (seconds), ByteSize (bytes) and FilePath (a file that must exist).
    `Annotated[int, "text"]` adds a help text, `hami.types.Key` gives the parameter another name, and
    `hami.types.Alias` an additional one. A parameter without a default is required. Names that start with `_` are not
    parameters.
    """

    # Any: a subclass overrides them by an int, a property or a method, which have no common type that mypy and pyright
    # accept as an override.
    min: Any = None
    """Minimum batch size in items: an int from 1, or a property or method that is read after `init`."""
    max: Any = None
    """Maximum batch size in items: an int from 1, or a property or method that is read after `init`. "auto": `forward`
    takes any number, and the node learns the batch size. None: one item, unless the node's `max` says otherwise."""
    thread: Literal["dedicated", "serialized", "concurrent", "process"] = "dedicated"
    """Where an instance runs: on a thread of its own; on any thread, one call at a time; on any threads at once; or in
    a process of its own, by the backend `Process` of hami-process."""
    non_blocking: bool = False
    """Whether `forward` takes a few microseconds and never blocks, so that it may run on any caller's thread."""
    idempotent: bool = True
    """Whether a failed batch may run again, request by request."""
    lightweight: bool = False
    """Whether another instance costs nearly nothing, for example because all share one model. A node of such classes
    adds instances while throughput improves, unless `instance_num` says otherwise."""
    instances_on_device: int = 1
    """With `lightweight`: how many instances such a node has at most if the parameter `device` is not the CPU."""
    by_device: bool = False
    """Whether plugins may implement the name for devices: requests whose `data` lies in the memory of a device go to
    the implementation for that device, all others to this class."""
    request_cost: Any = None
    """What each item of a request costs in a batch, such as its length, for a node whose first backend this is: a key
    of the request, or a method `request_cost(self, item)` that returns a positive number. It is called before the
    request is queued, on any thread, also during `forward`. None: all items cost the same."""
    child_count: tuple[int, int | None] = (0, 0)
    """The minimum and maximum number of backends in the brackets; a maximum of None means any number."""
    children: tuple[BackendHandle, ...] = ()
    """The initialised backends in the brackets; set before `init`."""
    outlines_items: bool = False
    """Whether the backends in the brackets are checked only, and built elsewhere from `outlines`."""
    outlines: tuple[Outline, ...] = ()
    """With `outlines_items`, for each backend in the brackets, from which another process builds the same: the
    expression, with all parameters; keys of its node, for parameters that an expression cannot give; and the classes
    that the other process registers first, by name. A class is None if this process has it from a library."""
    _services: ClassVar[BackendServices | None] = None  # set on each instance before `init`

    def init(self, options: DictView) -> None:
        """Prepare one instance.

        Args:
            options: The mapping that all backends of this instance share. `options["instance"]` is the number of the
                instance, from 0.
        """

    def forward(self, batch: list[Request]) -> Generator[Any, None, Any] | None:
        """Set the `result` of each request of the batch, or fail the request with `item.fail(exception)`.

        A `forward` that is a generator runs one request at a time. Each value that it yields is a part, which
        `pipe.stream` delivers at once; after a plain call, the `result` is what it returns, else the list of the parts.

        Args:
            batch: The requests, `min` to `max` items. They are valid until `forward` returns.
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward(self, batch)")

    def close(self) -> None:
        """Release what `init` acquired. Runs once, after the last `forward`."""

    def find(self, name: str) -> BackendHandle:
        """Return an instance of the pipe: another node, or one of its instances.

        >>> @hami.register
        ... class Twice(hami.Backend):
        ...     def init(self, options):
        ...         self.inner = self.find("node.inner")
        ...     def forward(self, batch):
        ...         for item in batch:
        ...             item["result"] = 2 * self.inner({"data": item["data"]})["result"]
        >>> with hami.pipe({"outer": {"backend": "Twice"}, "inner": {"backend": "Identity"}}) as pipe:
        ...     pipe({"data": 3, "node_name": "outer"})["result"]
        6

        During `init` the instance may not be registered yet; building the pipe fails if it never is.

        Args:
            name: "node.detect", or "detect.0" for one instance of the node.

        Raises:
            ConfigError: The backend does not belong to a pipe.
            NotFound: The pipe is built and has no such instance.
            PipeClosed: The pipe is closed.
        """
        return self._of_pipe("find").find(name)

    def queue(self, name: str) -> Queue:
        """Return the queue of the pipe with that name, which `Send(name)` and `Recv(name)` use; create it if needed.

        Args:
            name: The name of the queue.

        Raises:
            ConfigError: The backend does not belong to a pipe.
            PipeClosed: The pipe is closed.
            ValueError: The queue belongs to a node, as "detect.queue".
        """
        return self._of_pipe("queue").queue(name)

    @cached_property
    def store(self) -> RequestStore:
        """The store that all backends of the pipe share; also `pipe.store`.

        Raises:
            ConfigError: The backend does not belong to a pipe.
        """
        return self._of_pipe("store").store

    @cached_property
    def log(self) -> Logger:
        """The logger of the node, "hami.node.<name>".

        Raises:
            ConfigError: The backend does not belong to a pipe.
        """
        from logging import getLogger

        return getLogger(f"hami.node.{self._of_pipe('log').node}")

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter of the node, which `pipe.stats()` shows under `counters`; it starts at 0.

        Args:
            name: The name of the counter.
            by: The number to add.

        Raises:
            ConfigError: The backend does not belong to a pipe.
        """
        self._of_pipe("count").count(name, by)

    def remark(self, text: str) -> None:
        """Add a sentence about the node, which `pipe.remarks()` shows and an error about its `max` repeats.

        >>> @hami.register
        ... class OneByOne(hami.Backend):
        ...     max = 1
        ...     def init(self, options):
        ...         self.remark("the model takes one image at a time")
        ...     def forward(self, batch):
        ...         batch[0]["result"] = 1
        >>> with hami.pipe("OneByOne") as pipe:
        ...     pipe.remarks()
        ['default: the model takes one image at a time']

        Args:
            text: The sentence. A node keeps each sentence once, and at most 32.

        Raises:
            ConfigError: The backend does not belong to a pipe.
        """
        self._of_pipe("remark").remark(text)

    def delegate(self, backend: str | None, *, convert: Callable[[Any], Any] | None = None, **params: Any) -> None:
        """Give each batch to another backend first, in place of `forward`; usually a native one, which needs no GIL.

        The backend sets the `result` of the requests that it can run, or fails them. `forward` gets the requests that
        it leaves as they are. It shares the options of the instance. Call this in `init`, or later from any thread.

            self.delegate("hami-cuda::CapturedModel", convert=torch.from_dlpack, model=number)

        Args:
            backend: "distribution::Name". None: `forward` gets all batches again.
            convert: Makes what Python code reads in place of a `result` that is a hami.Tensor, when it is first read,
                on the thread of its reader. None: the hami.Tensor. Other native backends read the tensor itself.
            params: Parameters of the backend; the others have their defaults.

        Raises:
            ConfigError: The backend has no such parameter, or this one does not belong to a pipe.
            BackendNotFound: It is not installed.
        """
        distribution, _, name = (backend or "").rpartition("::")
        self._of_pipe("delegate").delegate(name or None, distribution, params, convert)

    def _of_pipe(self, name: str) -> BackendServices:
        if self._services is None:
            raise ConfigError(
                f"{type(self).__name__}.{name} works from `init` on, in a backend that hami.pipe has created"
            )
        return self._services
