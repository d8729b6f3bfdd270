"""The exceptions of this package, in addition to those of hami, and the statuses of all in HTTP and gRPC."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar, cast

import hami


class ModelUnavailable(hami.RequestError):
    """The model is known and cannot run a request now: it was unloaded, or failed to load."""


class LoadFailed(hami.Error):
    """A model cannot be built. The exception of its backend or of its configuration is the cause."""


class ModelFailed(hami.Error):
    """A model has raised an exception that is not one of hami, or its result has no form in the protocol."""


class RowFailed(hami.Error):
    """One of the rows of a request has failed. `error` is its exception, which other requests may have too."""

    def __init__(self, error: hami.Error, row: int, rows: int) -> None:
        super().__init__(f"element {row} of {rows}")
        self.error = error


class BadRequest(hami.RequestError):
    """A request does not follow the protocol, or does not fit the model."""


class ControlDisabled(hami.RequestError):
    """A client asks to load or unload a model, and the server does not let clients do it."""


class TooLarge(BadRequest):
    """A request is larger than the server accepts."""


class UnknownContentCoding(BadRequest):
    """The body of a request is compressed in a way that the server does not know."""


class UnknownContentType(BadRequest):
    """The Content-Type of a request is missing, or is none that a model can take."""


class NotAcceptable(BadRequest):
    """The client accepts no form that the answer can have."""


class UnknownTransferCoding(BadRequest):
    """A request came in a transfer coding that the server does not know."""


class Overloaded(hami.RequestError):
    """The open requests of the server have all the memory that they may have; the client may try again."""


class UnknownModel(hami.NotFound):
    """The request names an unknown component or version."""


class RemoteUnavailable(ModelUnavailable):
    """No replica of a remote model can be reached, or each says that it cannot run a request now."""


class RemoteFailed(hami.Error):
    """A remote model has failed, or its server rejects this client or sends what the protocol does not have."""


class Status(NamedTuple):
    """How a failure is reported."""

    http: int
    grpc: str  # the name of a member of grpc.StatusCode


STATUSES: tuple[tuple[type[BaseException], Status], ...] = (  # the first class that fits counts
    (TooLarge, Status(413, "RESOURCE_EXHAUSTED")),
    (UnknownContentCoding, Status(415, "INVALID_ARGUMENT")),
    (UnknownContentType, Status(415, "INVALID_ARGUMENT")),
    (NotAcceptable, Status(406, "INVALID_ARGUMENT")),
    (UnknownTransferCoding, Status(501, "UNIMPLEMENTED")),
    (ControlDisabled, Status(403, "PERMISSION_DENIED")),
    (Overloaded, Status(503, "RESOURCE_EXHAUSTED")),
    (ModelUnavailable, Status(503, "UNAVAILABLE")),
    (hami.PipeClosed, Status(503, "UNAVAILABLE")),
    (hami.QueueFull, Status(429, "RESOURCE_EXHAUSTED")),
    (hami.DeadlineExceeded, Status(504, "DEADLINE_EXCEEDED")),
    (hami.NoResult, Status(500, "INTERNAL")),
    (hami.BackendExit, Status(500, "INTERNAL")),
    (hami.ReentrantCall, Status(500, "INTERNAL")),
    (hami.RequestError, Status(400, "INVALID_ARGUMENT")),
    (hami.DataTypeError, Status(400, "INVALID_ARGUMENT")),
    (hami.NotFound, Status(404, "NOT_FOUND")),
)
STOPPING = "the server is stopping, and the request did not end in time; send it to another server"
MAX_TEXT = 4000  # bytes of a message in the trailers of gRPC: clients accept 8 KiB of them, and retry if there are more
E = TypeVar("E", bound=BaseException)
_TRACEBACK = "Traceback (most recent call last)"  # in messages of processes that libraries have started
_PATH = re.compile(r"(?<![\w:/.…-])/[^\s/'\":,;()\[\]<>|]+(?:/[^\s/'\":,;()\[\]<>|]+)+/?")  # of a file, with its folder


def status_of(error: BaseException) -> Status:
    if issubclass(type(error), RowFailed):
        return status_of(cast("RowFailed", error).error)
    return next((status for kind, status in STATUSES if issubclass(type(error), kind)), Status(500, "INTERNAL"))


def with_text(error: E, for_clients: str) -> E:
    """Let clients get another text than the message, which only the log has."""
    error.for_clients = for_clients  # type: ignore[attr-defined]
    return error


def text_of(error: BaseException) -> str:
    """Return the message in printable lines, without secrets: that of hami, or the type and message of another class.

    It never raises and is never long, for any class of exceptions.
    """
    text = _message(error)
    if not issubclass(type(error), hami.Error):
        text = f"{kind_of(error)}: {text}" if text else kind_of(error)
    return printable("\n".join([text, *_notes(error)]))


def kind_of(error: BaseException) -> str:
    """Return the name of the class, in few printable characters; its metaclass is not asked."""
    return short(type.__dict__["__name__"].__get__(type(error)))


def reason_of(error: BaseException) -> str:
    """Return the type and the first line of the message."""
    kind, first = kind_of(error), text_of(error).partition("\n")[0]
    return first if first.startswith(kind) else f"{kind}: {first}"


def load_failed(reason: str) -> str:
    """Return what clients get of the reason why a model has failed to load: the type of the exception."""
    return f"failed to load: {short(reason.partition(':')[0])}; the log of the server has the message"


def printable(text: str) -> str:
    """Return lines of printable characters without secrets, which have at most MAX_TEXT bytes over gRPC."""
    lines = hami.observe.redact(text)[:MAX_TEXT].split("\n")
    shown = "\n".join(each if each.isprintable() else "".join(map(_visible, each)) for each in lines)
    size = 0
    for place, char in enumerate(shown):
        size += 1 if " " <= char <= "~" and char != "%" else 3 * len(char.encode())
        if size > MAX_TEXT:
            return f"{shown[:place]}…"
    return shown


def _visible(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def _message(error: BaseException) -> str:
    try:
        return str.__str__(str(error))
    except BaseException as raised:  # from __str__ of the class of a backend
        return f"(its __str__ raised {kind_of(raised)})"


def _notes(error: BaseException) -> list[str]:
    notes = attribute_of(error, "__notes__")
    if not issubclass(type(notes), list):
        return []
    return [str.__str__(note) for note in list.__getitem__(notes, slice(MAX_TEXT)) if issubclass(type(note), str)]


def text_for_clients(error: BaseException) -> str:
    """Return what clients get of an exception, in printable lines: without places of files on this machine, and without
    a traceback.

    A message of a library may have both; the log has it as it is.
    """
    chosen = attribute_of(error, "for_clients")
    text = printable(str.__str__(chosen)) if issubclass(type(chosen), str) else text_of(error)
    return _PATH.sub(_without_folder, text.partition(_TRACEBACK)[0].rstrip())


def _without_folder(found: re.Match[str]) -> str:
    path = found[0]
    is_here = os.path.lexists(f"/{path.split('/')[1]}")  # else it may be the path of a URL
    return f"…/{path.rstrip('/').rpartition('/')[2]}" if is_here else path


def attribute_of(error: BaseException, name: str) -> Any:
    """Return an attribute of an exception; None if there is none, or the class of a backend raises instead."""
    try:
        return object.__getattribute__(error, name)
    except BaseException:
        return None


def unknown_component(name: str, known: Iterable[str]) -> UnknownModel:
    return UnknownModel(f'there is no model "{short(name)}"; {_listed("models", known)}')


def unknown_version(component: str, version: str, known: Iterable[str]) -> UnknownModel:
    return UnknownModel(f'"{short(component)}" has no version "{short(version)}"; {_listed("versions", known)}')


def _listed(what: str, names: Iterable[str]) -> str:
    found = sorted(names)
    if not found:
        return f"there are no {what} now"
    more = f", and {len(found) - 20} more" if len(found) > 20 else ""
    return f"{what}: {', '.join(map(short, found[:20]))}{more}"


def short(name: object) -> str:
    """Return what a client has sent in at most 80 printable characters."""
    text = name if isinstance(name, str) else repr(name)
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= 80 else f"{shown[:77]}…"
