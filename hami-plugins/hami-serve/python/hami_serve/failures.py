"""One answer and one log line for all that a request, a model or this server raises."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import traceback
from collections.abc import Iterator
from typing import NamedTuple, cast

import hami

from hami_serve.errors import (
    LoadFailed,
    ModelFailed,
    ModelUnavailable,
    RowFailed,
    Status,
    UnknownModel,
    attribute_of,
    kind_of,
    load_failed,
    reason_of,
    short,
    status_of,
    text_for_clients,
    text_of,
    with_text,
)

MAX_TRACEBACK = 1 << 14  # characters
NOT_OF_LOAD = (  # what ends a load, and is not a fault of the model
    *(UnknownModel, ModelUnavailable, hami.PipeClosed, hami.DeadlineExceeded),
    *(asyncio.CancelledError, GeneratorExit),
)
log = logging.getLogger("hami.serve")


class Failure(NamedTuple):
    """What a client gets."""

    status: Status
    text: str


def report(error: BaseException, protocol: str, request: str, id: object = "") -> Failure:
    """Log in one line why a request has failed, and return what its client gets.

    Only a fault of this server has a traceback, and at the level DEBUG that of a model too.

    Args:
        error: The exception.
        protocol: "HTTP" or "gRPC".
        request: What the request asks for, such as 'model "detect"'.
        id: The id that the client has given to the request.
    """
    if issubclass(type(error), RowFailed):
        found = report(cast("RowFailed", error).error, protocol, f"{request}, {error}", id)
        return Failure(found.status, f"{found.text}\n{error}")
    status = status_of(error)
    cause = error.__cause__ if issubclass(type(error), (ModelFailed, LoadFailed)) else None
    raised = error if cause is None else cause  # without `or`, as an exception of a backend may be false
    named = f', request "{short(id)}"' if id not in ("", None) else ""
    line = f"{request}{named} over {protocol}: {status.http} {line_of(raised)}"
    fields = {"protocol": protocol, "request": request, "request_id": short(id) if named else "", "status": status.http}
    fields |= {"error": kind_of(raised), "message": line}
    if not issubclass(type(error), hami.Error) or log.isEnabledFor(logging.DEBUG):
        fields["traceback"] = _traceback(error)
        line = f"{line}\n{fields['traceback']}"
    level = logging.ERROR if status.http == 500 else logging.WARNING
    log.log(level, "%s", line, extra={"fields": fields})
    return Failure(status, text_for_clients(error))


def log_fault(what: str, error: BaseException) -> None:
    """Log a fault of this server, or of a model at an unexpected place, with its traceback."""
    line, trace = f"{what}: {line_of(error)}", _traceback(error)
    log.error("%s", f"{line}\n{trace}", extra={"fields": {"message": line, "traceback": trace}})


def line_of(error: BaseException) -> str:
    """Return the type, the message and the place of an exception in one line."""
    own = issubclass(type(error), hami.Error)
    text = "; ".join(text_of(error).split("\n"))
    return f"{kind_of(error)}: {text}" if own else f"{text}{_place(error)}"


def log_rejected(protocol: str, request: str, status: int, text: str) -> None:
    """Log a request that is rejected before it reaches a model."""
    fields = {"protocol": protocol, "request": request, "status": status}
    log.warning("%s over %s: %d %s", request, protocol, status, text, extra={"fields": fields})


@contextlib.contextmanager
def unraisable_in_log() -> Iterator[None]:
    """Log in one line an exception that has no caller, such as an exception of a backend while it is closed."""

    def report_unraisable(raised: sys.UnraisableHookArgs) -> None:
        error = raised.exc_value
        what = raised.object if isinstance(raised.object, (str, type)) else type(raised.object)
        text = line_of(error) if error is not None else short(raised.exc_type.__name__)
        log.error("an exception of %s has no caller: %s", short(getattr(what, "__name__", what)), text)

    before, sys.unraisablehook = sys.unraisablehook, report_unraisable
    try:
        yield
    finally:
        sys.unraisablehook = before


def _traceback(error: BaseException) -> str:
    try:
        return hami.observe.redact("".join(traceback.format_exception(error)))[-MAX_TRACEBACK:]
    except BaseException as raised:  # from the class of a backend
        return f"(no traceback: {kind_of(raised)})"


def _place(error: BaseException) -> str:
    """Return where an exception was raised."""
    trace = attribute_of(error, "__traceback__")
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" ({short(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"


@contextlib.contextmanager
def of_model() -> Iterator[None]:
    """Make what a model raises an exception of hami."""
    try:
        yield
    except (hami.Error, asyncio.CancelledError, GeneratorExit):  # the last two end this task: the core replaces others
        raise
    except BaseException as error:
        raise ModelFailed(text_of(error)) from error


@contextlib.contextmanager
def of_result() -> Iterator[None]:
    """Make all that the result of a model raises while it is converted, which waits for nothing, a ModelFailed."""
    try:
        yield
    except BaseException as error:
        raise ModelFailed(text_of(error)) from error


@contextlib.contextmanager
def of_load(name: str) -> Iterator[None]:
    """Make what the configuration or the backend of a model raises a LoadFailed, whose text clients do not get."""
    try:
        yield
    except NOT_OF_LOAD:
        raise
    except BaseException as error:
        failed = LoadFailed(f'"{short(name)}" failed to load: {text_of(error)}')
        raise with_text(failed, f'"{short(name)}" {load_failed(reason_of(error))}') from error
