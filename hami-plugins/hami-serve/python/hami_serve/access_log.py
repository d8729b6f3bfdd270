"""The access log: one line for each request that has ended, with its model, its status and its times."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import hami

from hami_serve.errors import short

PROBES = ("/v2/health/live", "/v2/health/ready")  # which have no line if they succeed
REQUEST_ID = "hami_serve.id"  # in a scope: the id that a client has given to its request
CLIENT_LEFT = 499
VISITS = "hami.visits"  # the key of a request under which the core records its nodes
log = logging.getLogger("hami.serve.access")
Scope = MutableMapping[str, Any]


@dataclass
class Entry:
    """What the line of one request says."""

    protocol: str  # "HTTP" or "gRPC"
    request: str  # such as "POST /v2/models/detect/infer" or "ModelInfer"
    model: str = ""
    version: str = ""
    id: str = ""
    times: list[list[hami.observe.RequestTimes]] = field(default_factory=list)  # of rows that run at the same time
    started: float = field(default_factory=time.perf_counter)

    def write(self, status: int | str, ended: float | None = None) -> None:
        """Write the line. `ended`: the moment of time.perf_counter at which the request had its answer, if not now."""
        fields = {
            "protocol": self.protocol,
            "request": self.request,
            **({"model": self.model, "version": self.version} if self.model else {}),
            **({"request_id": short(self.id)} if self.id else {}),
            "status": status,
            "total_ms": _ms((time.perf_counter() if ended is None else ended) - self.started),
        }
        if slowest := [max(rows, key=lambda each: each.queue_s + each.compute_s) for rows in self.times if rows]:
            fields["queue_ms"] = _ms(sum(each.queue_s for each in slowest))
            fields["compute_ms"] = _ms(sum(each.compute_s for each in slowest))
        shown = {key: value for key, value in fields.items() if key not in ("protocol", "request", "status")}
        line = f"{self.request} over {self.protocol}: {status} {' '.join(f'{k}={v}' for k, v in shown.items())}"
        log.info("%s", line, extra={"fields": fields})


_current: ContextVar[Entry | None] = ContextVar("hami_serve.access_log", default=None)


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


def is_on() -> bool:
    return log.isEnabledFor(logging.INFO)


@contextmanager
def recorded(protocol: str, request: str) -> Iterator[Entry | None]:
    """Record the requests of models inside the block in a new entry; yield None if the access log is off."""
    if not is_on():
        yield None
        return
    entry = Entry(protocol, request)
    token = _current.set(entry)
    try:
        yield entry
    finally:
        _current.reset(token)


@contextmanager
def of_model(model: Any, *requests: dict[str, Any]) -> Iterator[None]:
    """Record the times of requests of a model that run at the same time in the entry of this task, if there is one."""
    entry = _current.get()
    if entry is None:
        yield
        return
    entry.model, entry.version = model.handle.component, model.handle.version
    with ExitStack() as running:
        entry.times.append([running.enter_context(hami.observe.RequestTimes(each)) for each in requests])
        yield


class AccessLog:
    """An ASGI application that writes the line of each request of another one."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with recorded("HTTP", f"{scope['method']} {short(scope['path'])}") as entry:
            if entry is None:
                await self._app(scope, receive, send)
            else:
                await self._recorded(entry, scope, receive, send)

    async def _recorded(self, entry: Entry, scope: Scope, receive: Any, send: Any) -> None:
        status = CLIENT_LEFT

        async def noted(message: Mapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            entry.model = entry.model or short(scope.get("path_params", {}).get("name", ""))
            entry.id = id_of(scope)
            if status != 200 or scope["path"] not in PROBES:
                entry.write(status)


def id_of(scope: Scope) -> str:
    """Return the id of a request: that of its body, else its header X-Request-Id."""
    given = scope.get(REQUEST_ID)
    if given is None:
        given = next((value.decode("latin-1") for key, value in scope["headers"] if key == b"x-request-id"), "")
    return str(given)
