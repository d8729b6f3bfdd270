"""The path of a model for clients without a protocol: POST /NAME."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from hami_serve.failures import of_result
from hami_serve.http_body import SHORT, UntilClientLeaves, off_loop
from hami_serve.inference import Bound, apply_parameters, run_bound
from hami_serve.json_steps import is_long
from hami_serve.model import Model
from hami_serve.plain_answer import render, result_of
from hami_serve.plain_input import bind, parameters_of_query, read
from hami_serve.serving import Serving

PATHS = ("/{name}", "/models/{name}", "/models/{name}/versions/{version}")  # the first may be that of a plugin's route
JSON_COST = 8  # bytes of objects for a byte of JSON while it is converted: a float of 4 characters has 32


class PlainRoute(Route):
    """A path that exists for POST only, so that any other request finds nothing at a name that is free.

    `taken`: paths of other routes, which say themselves that they do not take POST.
    """

    def __init__(self, path: str, endpoint: Any, taken: frozenset[str]) -> None:
        super().__init__(path, endpoint, methods=["POST"])
        self._taken = taken

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope.get("method") != "POST":
            return Match.NONE, {}
        match, child = super().matches(scope)
        if match is not Match.NONE and f"/{child['path_params']['name']}" in self._taken:
            return Match.NONE, {}
        return match, child


def plain_path(name: str, taken: frozenset[str]) -> str:
    """Return the path of a model: the short one, if no other route has it."""
    return f"/{name}" if f"/{name}" not in taken else f"/models/{name}"


class Plain:
    """Answers requests of plain JSON, forms and pictures."""

    def __init__(self, serving: Serving, read_body: Callable[[Request], Awaitable[Any]], lease: str) -> None:
        self._serving = serving
        self._read_body = read_body
        self._lease = lease  # the key of a scope

    async def __call__(self, request: Request) -> Response:
        name, version = request.path_params["name"], request.path_params.get("version")
        extra: dict[str, Any] = {}
        timeout = apply_parameters(extra, parameters_of_query(request.query_params))
        self._serving.rounder.registry.draw(name, version)  # an unknown model is named before the body is read
        body = await self._read_body(request)
        kind = request.headers.get("content-type", "")
        is_short = len(body) <= SHORT

        async def bound(model: Model) -> Bound:
            if is_short:
                found = bind(read(kind, body), model)
            else:
                request.scope[self._lease].add(JSON_COST * len(body))
                found = await off_loop(_read_and_bind, kind, body, model)
                request.scope[self._lease].resize(2 * len(body))
            found.keys.update(extra)
            return found

        async with UntilClientLeaves(request.receive):
            model, keys = await run_bound(self._serving.rounder, name, version, timeout, bound)
        accept = request.headers.get("accept", "")
        with of_result():
            value = result_of(model, keys)
            to_convert = is_long(value)
        answer = await off_loop(render, value, accept) if to_convert else render(value, accept)
        return Response(answer.body, media_type=answer.kind, headers={"Vary": "Accept"})


def _read_and_bind(kind: str, body: Any, model: Model) -> Bound:
    return bind(read(kind, body), model)
