"""A request for a remote model, independent of the transport, and the errors of its answers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any, Protocol

import hami

from hami_serve.datatypes import DATATYPES, Array
from hami_serve.errors import BadRequest, RemoteFailed, TooLarge, short
from hami_serve.inference import Output
from hami_serve.model import TensorSpec

HINTS = {401: "check the token", 403: "check the token"}
MAX_ANSWER = 1 << 30  # bytes of an answer: more of it is not read


class Parts:
    """Takes the parts of an answer, on the thread that reads them. An answer that has begun is not asked for again."""

    def __init__(self, take: Callable[[dict[str, Array]], object]) -> None:
        self._take: Callable[[dict[str, Array]], object] | None = take
        self._lock = threading.Lock()
        self.begun = False

    def take(self, outputs: dict[str, Array]) -> None:
        """Give the caller the outputs of a part, and wait while the caller is behind.

        Raises:
            CancelledError: The caller has left.
        """
        with self._lock:
            if self._take is None:
                raise CancelledError
            self.begun = True
            self._take(outputs)

    def close(self) -> None:
        """Give the caller no more parts. After this, no thread uses its request."""
        with self._lock:
            self._take = None


@dataclass(frozen=True)
class RemoteCall:
    """One request: its tensors, its parameters, and the limit of its caller."""

    inputs: Sequence[Output]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    deadline: float | None = None  # a moment of time.monotonic()
    sequence: str | int | None = None
    parts: Parts | None = None  # if the answer is wanted in parts

    def seconds_left(self) -> float | None:
        """Return the time until the deadline, at least 1 ms; None without one."""
        return None if self.deadline is None else max(0.001, self.deadline - time.monotonic())


class ReplicaFailed(Exception):
    """A replica could not be reached, was lost, or is not available: another one may answer."""

    def __init__(self, reason: str, *, may_have_run: bool) -> None:
        super().__init__(reason)
        self.may_have_run = may_have_run


class Transport(Protocol):
    """The protocol over HTTP or gRPC, for one replica."""

    async def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the inputs in the metadata of the model."""
        ...

    async def infer(self, call: RemoteCall) -> dict[str, Array]:
        """Run a request and return the outputs by name. Raises ReplicaFailed, or the error for the caller."""
        ...

    async def close(self) -> None: ...


def error_of(status: int, text: str) -> Exception:
    """Return the exception for an answer with an HTTP status, of the type that a pipe in this process would raise."""
    if status in (502, 503):  # 502 is of a proxy that has lost the server
        return ReplicaFailed(text or f"status {status}", may_have_run=status == 502)
    kind: type[hami.Error] = {
        400: hami.RequestError,
        404: hami.NotFound,
        413: TooLarge,
        422: hami.RequestError,
        429: hami.QueueFull,
        504: hami.DeadlineExceeded,
    }.get(status, RemoteFailed)
    if not text:
        hint = "set the url to where it redirects" if 300 <= status < 400 else HINTS.get(status, "check the url")
        text = f"the remote server answered with status {status} and without a text, expected 200; {hint}"
    return kind(text)


def specs_of(inputs: Sequence[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    """Return the inputs of a model's metadata."""
    try:
        found = tuple(
            TensorSpec(str(each["name"]), str(each["datatype"]), tuple(map(int, each["shape"]))) for each in inputs
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RemoteFailed(f"the metadata of the remote model have inputs of another form: {short(inputs)}") from None
    for spec in found:
        if spec.datatype and spec.datatype not in DATATYPES:
            raise RemoteFailed(
                f'the input "{short(spec.name)}" of the remote model has the datatype {short(spec.datatype)}; '
                f"known: {', '.join(DATATYPES)}"
            )
    return found


@contextlib.contextmanager
def answer_checked() -> Iterator[None]:
    """Turn what is wrong with the tensors of an answer into a failure of the remote server."""
    try:
        yield
    except BadRequest as error:
        raise RemoteFailed(f"the remote server sent a malformed answer: {error}") from error
