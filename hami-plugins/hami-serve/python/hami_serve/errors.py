"""The exceptions of this package, in addition to those of hami, and the statuses of all in HTTP and gRPC."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import hami


class ModelUnavailable(hami.RequestError):
    """The model is known and cannot run a request now: it is loading, was unloaded, or failed to load."""


class BadRequest(hami.RequestError):
    """A request does not follow the protocol, or does not fit the model."""


class ControlDisabled(hami.RequestError):
    """A client asks to load or unload a model, and the server does not let clients do it."""


class TooLarge(BadRequest):
    """A request is larger than the server accepts."""


class Overloaded(hami.RequestError):
    """The open requests of the server have all the memory that they may have; the client may try again."""


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
    (hami.ConfigError, Status(400, "INVALID_ARGUMENT")),
    (hami.NotFound, Status(404, "NOT_FOUND")),
)


def status_of(error: BaseException) -> Status:
    return next((status for kind, status in STATUSES if isinstance(error, kind)), Status(500, "INTERNAL"))


def text_of(error: BaseException) -> str:
    """Return the message for a client: that of hami, or the type and message of a backend's own exception."""
    text = str(error) if isinstance(error, hami.Error) else f"{type(error).__name__}: {error}"
    return "\n".join([text, *getattr(error, "__notes__", ())])


def unknown_component(name: str, known: Iterable[str]) -> hami.NotFound:
    return hami.NotFound(f'there is no component "{short(name)}"; {_listed("components", known)}')


def unknown_version(component: str, version: str, known: Iterable[str]) -> hami.NotFound:
    return hami.NotFound(f'"{short(component)}" has no version "{short(version)}"; {_listed("versions", known)}')


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
