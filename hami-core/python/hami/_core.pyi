"""The C++ core as the package uses it. `hami` exports the public classes and functions.

This is one file because it describes one extension module.
"""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextvars import Context
from threading import Condition
from types import TracebackType
from typing import Any, TypeAlias, final, overload

from hami._config.reader import LoadedConfig
from hami.observe.description import PipeDescription

__version__: str

# ---- public classes and functions, exported by `hami` ----

@final
class Event:
    """A one-shot event that completes once, with a value or an exception.

        event = hami.Event()
        pipe({"data": image, "event": event})    # returns at once
        if event.wait(timeout=1.0):
            result = event.value()

    `hami.Event(count)` completes after `count` requests or calls of `notify` and `fail`: its value is None, and its
    exception the first one. Thread-safe. The first completion wins. `await event` works in any asyncio loop: it returns
    the value or raises the exception.
    """

    def __init__(self, count: int = 1) -> None:
        """Create an event that completes after `count` completions.

        Raises:
            ConfigError: `count` is less than 1.
        """

    def notify(self, value: Any = None) -> bool:
        """Complete the event with a value and run the callbacks.

        Returns:
            False if the event was already done; the call then has no effect.
        """

    def fail(self, exception: BaseException | type[BaseException]) -> bool:
        """Complete the event with an exception and run the callbacks.

        Returns:
            False if the event was already done; the call then has no effect.

        Raises:
            DataTypeError: `exception` is not an exception.
        """

    def done(self) -> bool:
        """Return whether the event is complete."""

    def value(self) -> Any:
        """Return the value of the event; for a request, its `result`.

        Returns:
            None before completion and after a failure.
        """

    def exception(self) -> BaseException | None:
        """Return the exception of the event.

        Returns:
            None before completion and after a success.
        """

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is complete. Does not raise the event's exception.

        Args:
            timeout: Maximum time to wait in seconds; None waits without a limit.

        Returns:
            Whether the event is complete.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed while the main thread waited.
        """

    def add_done_callback(self, callback: Callable[[Event], object]) -> None:
        """Call `callback(event)` once, on the thread that completes the event, or at once if it is done.

        An exception of the callback goes to `sys.unraisablehook`.

        Raises:
            DataTypeError: `callback` is not callable.
        """

    def _watch(self, callback: Callable[[Event], object]) -> int:
        """Add a callback and return a number for `_unwatch`; 0 if the callback ran at once."""

    def _unwatch(self, number: int) -> bool:
        """Remove a callback. Returns False if it has run or is about to run."""

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for completion in an asyncio loop; return the value or raise the exception."""

@final
class Queue:
    """A bounded first-in, first-out queue between threads, or between a pipe and the program.

        queue = hami.Queue(max=4)
        queue.put(frame, timeout=1.0)
        for frame in queue: ...                  # until the queue is closed and empty

    Thread-safe. Blocking methods release the GIL and are interrupted by Ctrl-C. After `close`, puts fail and the
    remaining items can still be taken.
    """

    def __init__(self, max: int = 1024, *, name: str = "") -> None:
        """Create an empty queue.

        Args:
            max: Maximum number of items, at least 1.
            name: Name shown in error messages.

        Raises:
            ConfigError: `max` is less than 1.
        """

    def put(self, item: Any, timeout: float | None = None) -> None:
        """Add an item, waiting while the queue is full.

        Args:
            item: Any object.
            timeout: Maximum time to wait in seconds; None waits without a limit, 0 does not wait.

        Raises:
            DeadlineExceeded: The queue was still full after `timeout`.
            QueueFull: The queue is full and `timeout` is 0.
            PipeClosed: The queue is closed.
        """

    def try_put(self, item: Any) -> bool:
        """Add an item without waiting.

        Returns:
            False if the queue is full.

        Raises:
            PipeClosed: The queue is closed.
        """

    def get(self, timeout: float | None = None) -> Any:
        """Remove and return the oldest item, waiting while the queue is empty.

        Args:
            timeout: Maximum time to wait in seconds; None waits without a limit.

        Raises:
            DeadlineExceeded: The queue was still empty after `timeout`.
            PipeClosed: The queue is closed and empty.
        """

    def try_get(self, default: Any = None) -> Any:
        """Remove and return the oldest item, or return `default` if the queue is empty.

        Raises:
            PipeClosed: The queue is closed and empty.
        """

    def peek(self, default: Any = None) -> Any:
        """Return the oldest item without removing it, or `default` if the queue is empty."""

    def _take_all(self, timeout: float | None = None) -> list[Any]:
        """Wait for an item, and return all items; an empty list if the queue is closed and empty."""

    def _readable(self) -> Event:
        """Return an event that completes when the queue has an item or is closed."""

    def close(self) -> None:
        """Reject further puts and wake all waiting threads.

        Threads that wait in `put` raise PipeClosed; threads that wait in `get` do so once the queue is empty.
        """

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""

    @property
    def max(self) -> int:
        """The maximum number of items."""

    @property
    def name(self) -> str:
        """The name shown in error messages."""

    def __len__(self) -> int:
        """Return the number of items in the queue."""

    def __iter__(self) -> Queue:
        """Return the queue itself; iteration removes items until the queue is closed and empty."""

    def __next__(self) -> Any:
        """Remove and return the oldest item, waiting without a limit; stop once the queue is closed and empty."""

class RequestStore:
    """A thread-safe store of values by request and key.

        store = hami.types.RequestStore()
        store.create("r1")
        store.insert("r1", "boxes", [1, 2])
        store.get("r1", "boxes")                 # [1, 2]

    Request ids and keys are str or int; 7 and "7" differ. A key may be the index of a response. Any other id or key
    raises DataTypeError.
    """

    def __init__(self) -> None: ...
    def create(self, req_id: str | int) -> None:
        """Add a request.

        Raises:
            AlreadyExists: The request exists.
        """

    def insert(self, req_id: str | int, key: str | int, value: Any) -> None:
        """Add a value to a request.

        Raises:
            NotFound: The request does not exist.
            AlreadyExists: The request has the key; its value is unchanged.
        """

    def insert_or_assign(self, req_id: str | int, key: str | int, value: Any) -> bool:
        """Add or replace a value of a request.

        Returns:
            True if the key is new.

        Raises:
            NotFound: The request does not exist.
        """

    def get(self, req_id: str | int, key: str | int) -> Any:
        """Return a value, or None if the request does not have the key.

        Raises:
            NotFound: The request does not exist.
        """

    def at(self, req_id: str | int, key: str | int) -> Any:
        """Return a value.

        Raises:
            NotFound: The request or the key does not exist.
        """

    def take(self, req_id: str | int, key: str | int) -> Any:
        """Remove a value and return it.

        Raises:
            NotFound: The request or the key does not exist.
        """

    def contains(self, req_id: str | int, key: str | int | None = None) -> bool:
        """Return whether the request exists or, with a key, whether it exists and has the key."""

    def erase(self, req_id: str | int, key: str | int) -> bool:
        """Remove a value.

        Returns:
            False if the request does not have the key.

        Raises:
            NotFound: The request does not exist.
        """

    def remove(self, req_id: str | int) -> bool:
        """Remove a request with all its values.

        Returns:
            False if the request does not exist.
        """

    def size(self, req_id: str | int | None = None) -> int:
        """Return the number of requests or, with `req_id`, the number of values of that request.

        Raises:
            NotFound: The request does not exist.
        """

    def keys(self, req_id: str | int) -> list[str | int]:
        """Return the keys of a request, in no particular order.

        Raises:
            NotFound: The request does not exist.
        """

    def for_each(self, req_id: str | int, function: Callable[[str | int, Any], object]) -> None:
        """Call `function(key, value)` for each value of a snapshot of the request.

        The function may use the store.

        Raises:
            NotFound: The request does not exist.
        """

    def clear(self) -> None:
        """Remove all requests."""

class DictView:
    """A mutable mapping with str keys over a dict of the core; values are converted on access.

    Thread-safe. A key that is not a str of valid Unicode raises DataTypeError.
    """

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key; raise KeyError if the key is missing."""

    def __setitem__(self, key: str, value: Any) -> None:
        """Set the value of a key."""

    def __delitem__(self, key: str) -> None:
        """Remove a key; raise KeyError if the key is missing."""

    def __contains__(self, key: object) -> bool:
        """Return whether the key is present."""

    def __len__(self) -> int:
        """Return the number of keys."""

    def __iter__(self) -> Iterator[str]:
        """Iterate over a snapshot of the keys."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or `default` if the key is missing."""

    def keys(self) -> list[str]:
        """Return the keys as a list."""

    def items(self) -> list[tuple[str, Any]]:
        """Return (key, value) pairs as a list."""

    def values(self) -> list[Any]:
        """Return the values as a list."""

    def pop(self, key: str, *default: Any) -> Any:
        """Remove a key and return its value.

        Returns:
            The default, if given, when the key is missing.

        Raises:
            KeyError: The key is missing and there is no default.
        """

    def update(self, other: dict[str, Any]) -> None:
        """Set every key of `other`."""

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of a key; set it to `default` first if the key is missing."""

@final
class Request(DictView):
    """One request of a batch: a mutable mapping with str keys.

        def forward(self, batch):
            for item in batch:
                item["result"] = self.model(item["data"])

    A request is valid until `forward` returns; any later access raises RequestError.
    """

    def fail(self, exception: BaseException | type[BaseException]) -> None:
        """Fail this request with an exception; the other requests of the batch continue.

        Raises:
            DataTypeError: `exception` is not an exception.
        """

    def emit(self, part: Any) -> bool:
        """Deliver a part of the result to the caller, and wait while the caller is behind.

        The caller uses `pipe.stream`, `pipe.astream`, or a hami.Queue under the key `parts` of the request. The request
        does not run again after its first part.

        Args:
            part: Any value.

        Returns:
            False if the caller takes no parts, or if the request is cancelled and its batch has other requests, which
            an exception would fail too. The part is dropped.

        Raises:
            CancelledError: The caller has left; in a batch of one request.
            DeadlineExceeded: The deadline of the request has passed; in a batch of one request.
        """

    @property
    def takes_parts(self) -> bool:
        """Whether the caller takes parts of the result, which `emit` delivers."""

    @property
    def cancelled(self) -> bool:
        """Whether no caller waits for the result any more, so that the work can be skipped."""

    @property
    def deadline(self) -> float | None:
        """The moment of time.monotonic() after which no caller waits, from all limits of the request, or None."""

    @property
    def priority(self) -> int:
        """The priority, 0 to 255, also if it was given to the call."""

def scatter(batch: list[Request], parts: Any, key: str = "result") -> None:
    """Set `parts[i]` as the `result` (or another key) of request i, for every request of a batch.

        scores = self.net(np.stack([item["data"] for item in batch]))
        hami.batching.scatter(batch, scores)                       # item["result"] is now scores[0], scores[1], …

    `parts[i]` is evaluated only when the value of request i is first read, once, on any thread. If the next backend
    receives the same batch, it gets the whole of `parts` back from `scattered`, without splitting and stacking.
    In a batch of plain dicts, as in a unit test of a backend, the parts are set at once.

    Args:
        batch: The requests of a batch.
        parts: A sequence with one part per request. Each part is an array or a tensor; a list or a tuple may hold any
            values.
        key: The key to set.

    Raises:
        DataTypeError: `parts` is not a sequence or its length differs from the batch.
    """

def scattered(batch: list[Request], key: str = "data") -> Any:
    """Return the sequence that `scatter` split over exactly these requests, in this order; otherwise None.

        parts = hami.batching.scattered(batch)            # the values of item["data"]
        rows = parts if parts is not None else np.stack([item["data"] for item in batch])

    Also returns None if any part has been read, because the reader may have changed it.

    Args:
        batch: The requests of a batch.
        key: The key that holds the parts.
    """

@final
class BackendHandle:
    """A backend as a value: one in the brackets of a Python backend, its dependency, or an instance of the pipe.

        detect = self.find("node.detect")        # in `init` or later
        detect.forward(batch)                    # runs requests of the current batch
        detect({"data": crop})["result"]         # runs a request of its own

    Any thread may use it, and it may be a value of a request. A backend in brackets or a dependency can be used until
    the backend that received it is closed, the argument of `forward_with_dep` only during that call, and an instance
    until its pipe is closed. Closing, and the end of that call, wait for threads that still use it.
    """

    @overload
    def __call__(self, requests: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Run a request, or a list of requests, that do not belong to a batch, and wait for the results.

        Inside `forward`, a call that would complete a deadlock cycle fails with ReentrantCall, as that of a pipe.

        Args:
            requests: A dict, or a list of different dicts.
            timeout: Time limit of each request in seconds; None means no limit. A backend in brackets runs on this
                thread, so the call returns when the backend does.

        Returns:
            The same dict or list. Each request has its `result`.

        Raises:
            DataTypeError: `requests` is not a dict or a list of different dicts.
            PipeClosed: Its pipe is closed.
            RequestError: A request has the key `event`, which only pipes take; or as for `forward`.
            BatchError: Requests of a list failed; the other requests have their `result`.
            Exception: The exception of the backend that failed the request. The request has no `result`.
        """

    @overload
    def __call__(self, requests: list[dict[str, Any]], timeout: float | None = None) -> list[dict[str, Any]]: ...
    def forward(self, batch: list[Request]) -> None:
        """Run a batch of requests and set their `result`.

        Args:
            batch: Requests of the current batch, each once. More requests than `max` run in several batches.

        Raises:
            DataTypeError: `batch` holds another object, or a request twice.
            PipeClosed: Its pipe is closed.
            RequestError: It was the argument of a `forward_with_dep` that has returned or raised.
            Exception: Any error of the backend that concerns the whole batch.
        """

    def forward_with_dep(self, batch: list[Request], dependency: BackendHandle) -> None:
        """Run a batch of requests with a dependency, as `With[…]` does.

        Args:
            batch: As for `forward`.
            dependency: The backend that this one may call during the call.

        Raises:
            Error: The backend has no `forward_with_dep`.
            Exception: As for `forward`.
        """

    def _run(self, requests: list[dict[str, Any]], timeout: float | None) -> list[BaseException | None]:
        """Run requests that do not belong to a batch. Return None or an exception for each."""

    @property
    def min(self) -> int:
        """The minimum batch size in items."""

    @property
    def max(self) -> int | str | None:
        """The maximum batch size in items; "auto": the node learns it; None if the backend declares none."""

    @property
    def label(self) -> str:
        """The name as written in the expression, or that of the instance."""

@final
class Opaque:
    """A value that only native plugins can read.

        request["image"]      # <hami.types.Opaque cv.mat>

    Python code can pass it on but not read it.
    """

    @property
    def type_key(self) -> str:
        """The identifier of the type, such as "cv.mat". Plugins that use the same key can read the value."""

@final
class Tensor:
    """An array in CPU memory, such as the `result` of a built-in or native backend.

        best = request["result"][0, 1]                 # a number; request["result"][0] is a tensor over the same memory
        rows = request["result"].tolist()
        scores = hami.to_numpy(request["result"])      # or torch.from_dlpack(…), memoryview(…)

    The conversions to other packages do not copy; each of them keeps the memory alive. `==`, `<` and the other
    comparisons compare the elements and return a numpy array.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""

    @property
    def dtype(self) -> str:
        """The element type: "float32", "int64", "bfloat16", …"""

    @property
    def device(self) -> str:
        """Where the memory is: "cpu", "cuda:0", …"""

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""

    @staticmethod
    def adopt(managed: int, order: int = 0) -> Tensor:
        """Take ownership of a DLManagedTensorVersioned at an address, as `device_tensor_adopt` of the plugin ABI.

        Args:
            managed: Its address. The memory may be on any device.
            order: The address of the function `order` of the ABI; 0: the memory can be used at once on every stream.

        Raises:
            DataTypeError: The description is inconsistent; the memory has been released.
        """

    def tolist(self) -> Any:
        """Return the elements as nested lists of numbers; one number if the tensor has no axes.

        Raises:
            DataTypeError: Python has no numbers for the element type, such as float8_e4m3fn.
        """

    def item(self) -> Any:
        """Return the only element as a number.

        Raises:
            DataTypeError: The tensor has not exactly one element, or Python has no numbers for the element type.
        """

    def __len__(self) -> int:
        """Return the length of the first axis; raise TypeError if the tensor has no axes."""

    def __getitem__(self, index: Any, /) -> Any:
        """Select by ints, slices and `...`.

        Returns:
            A number if an int selects on every axis, else a tensor over the same memory.

        Raises:
            OutOfRange: An index is outside of its axis, or there are more indices than axes. Also an IndexError.
            DataTypeError: The index is neither an int, a slice, `...` nor a tuple of these.
        """

    def __iter__(self) -> Iterator[Any]: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a numpy array, over the same memory if `dtype` and `copy` permit.

        Raises:
            DataTypeError: numpy has no such element type, such as bfloat16.
        """

    def __bool__(self) -> bool:
        """Return whether the only element is not zero; raise DataTypeError if there is not exactly one."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> Any: ...
    def __ne__(self, other: object, /) -> Any: ...
    def __lt__(self, other: object, /) -> Any: ...
    def __le__(self, other: object, /) -> Any: ...
    def __gt__(self, other: object, /) -> Any: ...
    def __ge__(self, other: object, /) -> Any: ...
    def __buffer__(self, flags: int, /) -> memoryview:
        """Export the memory through the buffer protocol, without a copy.

        Raises:
            BufferError: The buffer protocol has no format for the element type, such as bfloat16.
        """

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the DLPack device type and device id."""

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the memory as a DLPack capsule.

        Args:
            stream: Must be None: CPU memory has no stream.
            max_version: The highest DLPack version that the consumer supports. Below (1, 0) a read-only tensor cannot
                be exported.
            dl_device: The device of the consumer; only the CPU is supported.
            copy: True copies the memory; False and None share it.

        Raises:
            BufferError: The export is not possible with these arguments.
        """

# ---- private: for the package only ----

class BackendServices:
    """What a Python backend reaches of its pipe."""

    @property
    def node(self) -> str:
        """The name of the node."""

    @property
    def store(self) -> RequestStore:
        """The store of the pipe."""

    def find(self, name: str) -> BackendHandle:
        """Return an instance of the pipe by name."""

    def queue(self, name: str) -> Queue:
        """Return a queue of the pipe by name."""

    def count(self, name: str, by: int) -> None:
        """Add to a counter of the node."""

    def remark(self, text: str) -> None:
        """Add a sentence about the node."""

    def delegate(self, name: str | None, distribution: str, params: dict[str, Any], convert: Any) -> None:
        """Give batches to another backend first; None as its name: no longer."""

class BackendClass:
    """A handle of a backend class: its name, parameters and traits."""

    @property
    def name(self) -> str:
        """The name in expressions."""

    @property
    def aliases(self) -> list[str]:
        """Other names of the class."""

    @property
    def owner(self) -> str:
        """The distribution that provides the class; empty if this process registered it."""

    @property
    def doc(self) -> str:
        """The documentation of the class."""

    @property
    def range(self) -> str:
        """The batch sizes that the class declares, as text; empty if it declares none."""

    @property
    def params(self) -> list[dict[str, Any]]:
        """The declared parameters.

        Each dict has the keys `name`, `aliases` (other spellings), `type`, `required`, `default`, `choices`, `least`,
        `most` (the limits, or None), `help` and `text` (the declaration as messages show it).
        """

    @property
    def brackets(self) -> str:
        """The bracket items that the class takes, as text; empty if it takes none."""

    @property
    def thread(self) -> str:
        """The threading trait: "dedicated", "serialized" or "concurrent"."""

    @property
    def non_blocking(self) -> bool:
        """Whether `forward` takes microseconds and may run on a caller's thread."""

    @property
    def lightweight(self) -> bool:
        """Whether another instance costs nearly nothing."""

    @property
    def device(self) -> str:
        """The kind of device for which the class implements its name; empty: it is the backend of that name."""

    def for_device(self, device: str) -> BackendClass:
        """Return a copy of the class for a kind of device."""

    def with_defaults(self, defaults: dict[str, Any]) -> BackendClass:
        """Return a copy of the class with other parameter defaults, by parameter name."""

    def with_check(self, check: BackendClass) -> BackendClass:
        """Return a copy of the class that initialises a Python class first, and has the parameters of both."""

Call: TypeAlias = object  # the handle of a submitted request

def cancel(call: Call) -> bool:
    """Cancel a submitted request. Returns False if it has completed."""

def deliver_postponed() -> None:
    """Complete the submitted requests whose callbacks could not run for lack of memory.

    Raises MemoryError if they still cannot.
    """

def wait_if_nested(call: Call) -> None:
    """Wait for a submitted request if this thread runs a backend or a pipe; otherwise return at once.

    A wait that would complete a deadlock cycle fails the request with ReentrantCall instead.
    """

def release_condition(
    self: Condition,
    exc_type: type[BaseException] | None,
    exc_val: BaseException | None,
    exc_tb: TracebackType | None,
) -> None:
    """Release the lock of a condition, as its __exit__, without memory."""

@final
class Awaitable:
    """The completion of one request, to be awaited by one asyncio task, once."""

    _asyncio_future_blocking: bool
    def __await__(self) -> Generator[Any]: ...
    def get_loop(self) -> AbstractEventLoop:
        """Return the event loop. Called by asyncio."""

    def add_done_callback(self, wake: Callable[[Any], object], /, *, context: Context) -> None:
        """Store the task's wake-up callback. Called by asyncio."""

    def cancel(self, msg: object = None) -> bool:
        """Resume the task with CancelledError; return False if the request has completed. Called by asyncio."""

    def result(self) -> None:
        """Raise the error of the request, if any. Called by asyncio."""

    def settle(self) -> None:
        """Apply the stored outcome and run the task until it waits again. Call it on the loop's thread."""

    def abandon(self) -> None:
        """Discard the outcome, and cancel the request if it has not completed."""

class Pipe:
    """A built pipe, behind `hami.Pipe`.

    A `timeout` is seconds; None means no limit. A `priority` is that of requests that have none of their own.
    """

    def __init__(self, config: LoadedConfig, queues: Mapping[str, Queue] = ...) -> None: ...
    def call(self, request: dict[str, Any], timeout: float | None, priority: int | None, /) -> dict[str, Any]:
        """Run one request and return the same dict, with `result`; raise the error of the request.

        A request with an event is only started.
        """

    def call_many(
        self, requests: Sequence[dict[str, Any]], timeout: float | None = None, priority: int | None = None
    ) -> list[BaseException | None]:
        """Run several requests and return None or an exception for each. Requests with an event are only started."""

    def submit(
        self,
        request: dict[str, Any],
        timeout: float | None,
        callback: Callable[[BaseException | None], object],
        may_wait: bool = True,
        priority: int | None = None,
    ) -> Call:
        """Start one request; `callback(exception or None)` runs on completion, on any thread.

        While the queue of the node is full, this call waits; without `may_wait`, the request waits instead.
        If an exception of a signal handler interrupts the callback, the callback runs a second time.
        """

    def submit_from_loop(
        self,
        request: dict[str, Any],
        timeout: float | None,
        completion_queue: Any,
        loop: AbstractEventLoop,
        priority: int | None = None,
    ) -> Awaitable:
        """Start one request from the thread of an asyncio loop, without blocking.

        A completion on another thread calls `completion_queue.put(awaitable)` and then `completion_queue.wake()`, once
        per batch of completions.
        """

    def close(self, timeout: float | None) -> list[str]:
        """Close the pipe and return the names of the backends that did not finish in time."""

    def finish(self, timeout: float | None) -> bool:
        """Reject new requests and return whether the others ended in time; `close` is still to come."""

    def close_in_background(self) -> None:
        """Let a thread close the pipe without waiting for requests; `close` waits for it."""

    def replace(self, other: Pipe, timeout: float | None) -> list[str]:
        """Take the place of this pipe's backends by those of another; close the old ones, as `close` does."""

    def uses_python(self) -> bool:
        """Return whether a backend of the pipe is one in Python."""

    def native_caller(self) -> object:
        """Return a capsule by which native code calls the pipe: a `hami_caller` of hami/caller.h."""

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""

    def queue(self, name: str) -> Queue:
        """Return a queue of the pipe by name."""

    @property
    def store(self) -> RequestStore:
        """The store of the pipe."""

    def describe(self) -> PipeDescription:
        """Return the nodes with their backends, parameters and edges as plain data."""

    def set_label(self, label: str) -> None:
        """Name the pipe for hami top."""

    def load(
        self,
        requests: list[dict[str, Any]],
        *,
        clients: int = 1,
        per_call: int = 1,
        warmup: int = 0,
        calls: int | None = None,
        duration: float | None = None,
        arrivals: Sequence[float] = (),
        timeout: float | None = None,
        objective: float | None = None,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Run a benchmark from threads of the core and return what was measured.

        Args:
            requests: Inputs, chosen at random.
            clients: Threads of a closed loop, each with one call at a time.
            per_call: Requests of one call.
            warmup: Calls of each thread that are not measured.
            calls: Measured calls of all threads together; None means no limit.
            duration: Seconds after which no call starts.
            arrivals: Moments, in seconds, at which calls start: an open loop.
            timeout: Time limit of each request in seconds.
            objective: Seconds that a good request takes at most.
            seed: Of the choice of inputs.
        """

    def stats(self) -> dict[str, dict[str, Any]]:
        """Return the values of `hami.observe.NodeStats` for each node, by the node's name."""

    def remarks(self) -> dict[str, list[str]]:
        """Return what the backends of each node say about it, by the node's name."""

def bits_of_bfloat16(tensor: Tensor) -> Tensor:
    """Return the memory of a bfloat16 tensor as one of uint16."""

def bfloat16_of_bits(array: Any) -> Tensor:
    """Return the memory of an array of uint16 as a tensor of bfloat16."""

def check_dlpack(object: Any, capsule: Any) -> None:
    """Raise DataTypeError if the DLPack capsule of an object is damaged, so that reading it could end the process."""

def trace_start(path: str, last: float | None = None, slow: float | None = None) -> None:
    """Begin to record the timeline of the process. `last` and `slow` are seconds.

    Raises AlreadyExists if a trace is active, ConfigError if the file cannot be written.
    """

def trace_stop() -> dict[str, Any]:
    """End the trace, and return `events`, `lost`, `written` and `error`. Without a trace it does nothing."""

def status() -> str:
    """Return the JSON that `hami top` reads: the statistics of all open pipes, and the threads in their backends."""

def trace_active() -> bool:
    """Return whether a trace is recorded."""

def trace_begin(name: str) -> int:
    """Begin a slice of this thread, and return the token for `trace_end`; 0 without a trace."""

def trace_end(token: int) -> None:
    """End the innermost slice of this thread."""

def trace_slice(name: str, began_ns: int, ended_ns: int) -> None:
    """Add a slice on a track of its own; the moments are those of `time.monotonic_ns()`."""

def record_visits() -> Opaque:
    """Return a value for the key `hami.visits` of one request, which records at which nodes the request is."""

def visits_in(recorded: Opaque) -> list[tuple[str, int, int | None, int | None, bool]]:
    """Return the visits: the node, when the request arrived, when its batch started, when it left, whether it failed.

    Moments are those of `time.monotonic_ns()`; None means that it has not happened.
    """

def on_core_thread() -> bool:
    """Return whether the core created the calling thread."""

def wait_for_detached_inits(timeout: float | None) -> bool:
    """Wait for backend inits that an interrupted construction left running.

    Returns False if some still run after `timeout` seconds.
    """

def check(config: LoadedConfig) -> list[Exception]:
    """Return every problem of a configuration, without building the pipe."""

def describe(config: LoadedConfig) -> PipeDescription:
    """Return what `Pipe.describe` returns of a configuration, without building the pipe. Raises its errors."""

def explain(config: LoadedConfig) -> dict[str, Any]:
    """Return the backends and parameter values of a configuration, and the source of each value."""

def message_with_caret(headline: str, text: str, begin: int, end: int, where: str = "", hint: str = "") -> str:
    """Format an error message that marks the characters from `begin` to `end` of `text`."""

def python_class(
    cls: type,
    name: str,
    *,
    owner: str,
    doc: str,
    range: str,
    params: Sequence[dict[str, Any]],
    attributes: Mapping[str, str],
    thread: str,
    non_blocking: bool,
    idempotent: bool,
    lightweight: bool,
    instances_on_device: int,
    by_device: bool,
    outlines_items: bool,
    child_count: tuple[int, int | None],
    takes_all_keys: bool = False,
    is_instance: bool = False,
) -> BackendClass:
    """Return a handle of a backend class written in Python.

    `attributes` maps parameter names to the attributes that hold them, where the names differ. A class that takes all
    keys of its node has them as the dict `params`. `Forward[name]` means a class that is an instance.
    """

class AbiMismatch(Exception):
    """A native plugin needs a version of the plugin ABI that this core does not support."""

def supported_abi() -> str:
    """Return the version of the plugin ABI, such as "1.0", that this core supports."""

def allow_library(path: bytes) -> None:
    """Allow configurations to load a file with native code, or any file in a folder."""

def check_library(path: bytes, what: str) -> None:
    """Raise ConfigError if a configuration may not load this file with native code."""

def load_library(path: bytes, owner: str) -> tuple[str, str, str, str, list[BackendClass]]:
    """Load a native plugin and return its name, its version, the ABI version it was built with, and its classes.

    Before the classes comes the first release of the core that it runs with.

    Raises AbiMismatch or PluginError.
    """

def generated_class(name: str, text: str, *, owner: str, defaults: dict[str, Any]) -> BackendClass:
    """Return a handle of a name that is replaced by the expression `text`."""

def define(handle: BackendClass) -> None:
    """Add a class to the registry, replacing a class of the same name."""

def defined() -> list[BackendClass]:
    """Return the classes in the registry."""

def is_defined(name: str) -> bool:
    """Return whether a class in the registry has this name or alias."""

def set_device_finder(finder: Callable[[str, str], BackendClass]) -> None:
    """Set the function that finds the implementation of a name for a kind of device: finder(name, device)."""

def set_finder(finder: Callable[[str, str, dict[str, str]], BackendClass]) -> None:
    """Set the function that finds classes outside the registry: finder(name, distribution, providers)."""

def set_log_level(level: int) -> None:
    """Set the lowest level that is logged. The environment variable HAMI_LOG overrides it."""

def read_duration(text: str) -> float | None:
    """Return a number with a unit, such as "5ms", in seconds; None for any other text."""

def value_of(address: int) -> Any:
    """Return the object for the hami_value at an address, which is borrowed."""

def near_names(name: str, candidates: Sequence[str], limit: int = 3) -> list[str]:
    """Return at most `limit` candidates that are spelled like `name`, nearest first."""

def did_you_mean(near: Sequence[str], quoted: bool = False) -> str:
    """Return a "did you mean" hint for an error message; empty if `near` is empty."""

def print_expression(text: str, where: str = "") -> str:
    """Return the canonical form of an expression. Raises ConfigError, with `where` in the message, if it is invalid."""

def parse_tree(text: str) -> dict[str, Any]:
    """Return an expression as nested dicts and lists. Raises ConfigError if it is invalid."""
