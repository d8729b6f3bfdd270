"""The Open Inference Protocol over HTTP, as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from typing import Any

import hami
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hami_serve import describing, openapi
from hami_serve.access import Gate
from hami_serve.access_log import CLIENT_LEFT, REQUEST_ID, AccessLog, id_of
from hami_serve.budget import Lease
from hami_serve.cors import Cors, checked_origins
from hami_serve.errors import STOPPING, BadRequest, Overloaded, UnknownContentCoding, load_failed, short
from hami_serve.failures import log_rejected, report
from hami_serve.http_body import EXTENSION, REJECTED, SHORT, ClientLeft, UntilClientLeaves, off_loop, read_body
from hami_serve.http_generate import EventStream, event, generated, parse_generate
from hami_serve.http_plain import JSON_COST, PATHS, Plain, PlainRoute
from hami_serve.http_tensors import (
    HEADER_LENGTH,
    HttpInference,
    TensorAnswer,
    header_length,
    is_long_to_parse,
    is_long_to_render,
    is_request,
    may_be_json,
    parse_json,
    parse_request,
    render_answer,
    require_one_length,
    size_to_render,
)
from hami_serve.inference import Call, Inference, Part, apply_parameters, call_of, run, stream
from hami_serve.json_steps import is_long, write, written
from hami_serve.metrics import CONTENT_TYPE, answers
from hami_serve.model import Model, TensorSpec
from hami_serve.plain_input import array_of_body, not_json
from hami_serve.routes import Exchange, plugin_routes
from hami_serve.routes import Route as PluginRoute
from hami_serve.serving import Serving
from hami_serve.shared_memory import Memory
from hami_serve.tracing import Tracing
from hami_serve.web_page import MODELS, PAGES, models_of, page

MAX_BODY = 64 << 20  # bytes of a request, by default
SHARED = "/v2/systemsharedmemory"
LEASE = "hami_serve.lease"  # a key of a scope: what the request has of the memory of open requests
HEADERS: dict[type[BaseException], dict[str, str]] = {  # of answers to requests that fail
    Overloaded: {"Retry-After": "1"},  # seconds
    UnknownContentCoding: {"Accept-Encoding": "gzip, deflate"},
}


def app(
    source: Any,
    *,
    max_body: int = MAX_BODY,
    max_open: int | None = None,
    allow_control: bool = False,
    shared_memory: bool = False,
    allow_hosts: Collection[str] = (),
    cors: Collection[str] = (),
    **options: Any,
) -> Starlette:
    """Return an ASGI application that serves models by the Open Inference Protocol.

    The models are loaded when the application starts, and closed when it stops. An application that is mounted in
    another one has no start of its own: its first request loads the models. The other application starts and stops
    them with `lifespan=models.router.lifespan_context`, where `models` is the result.

    Args:
        source: A folder with a model repository, a file, an expression, a mapping from component to what `hami.pipe`
            takes, or an `AllRounder`, which the caller closes.
        max_body: Maximum size of a request in bytes.
        max_open: Maximum memory of all open requests in bytes; by default a quarter of the memory of the machine.
        allow_control: Let clients load and unload models. Otherwise these requests are answered with 403.
        shared_memory: Let clients of this machine register regions of shared memory, for their tensors.
        allow_hosts: Names of hosts whose web pages may send requests, in addition to those of this server itself.
        cors: Origins of pages of other sites that may use the server, such as `https://app.example.org`; `*` for all.
        options: Options of `AllRounder`.
    """
    origins = checked_origins(cors)
    serving = Serving(source, allow_control=allow_control, shared_memory=shared_memory, max_open=max_open, **options)
    made = application(serving, max_body)
    made.add_middleware(Gate, hosts=allow_hosts, origins=origins)
    if origins:
        made.add_middleware(Cors, origins=origins)
    made.add_middleware(Tracing)
    made.add_middleware(AccessLog)
    return made


def application(serving: Serving, max_body: int = MAX_BODY) -> Starlette:
    """Return the application for models that a server manages."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if not serving.begun:  # else requests wait for the models, and probes do not
            await serving.started()
        try:
            yield
        finally:
            await asyncio.to_thread(serving.stop)

    handlers = Handlers(serving, max_body)
    routes = handlers.routes()
    made = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _not_routed})
    made.state.serving = serving
    first = {each.path: each.app for each in reversed(routes) if "POST" in (each.methods or ())}
    made.state.of_plugins = {each.path: first[each.path] for each in handlers.plugin_routes}
    made.state.infer = Endpoint(serving, handlers.infer)
    return made


class Direct:
    """An application with a short way to inference and to routes of plugins, for a server that adds no middleware.

    The layers and routes of starlette cost as much as parsing a small request.
    """

    def __init__(self, app: Starlette) -> None:
        self._app = app
        self._infer: ASGIApp = app.state.infer
        self._of_plugins: Mapping[str, ASGIApp] = app.state.of_plugins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            if of_plugin := self._of_plugins.get(scope["path"]):
                scope["path_params"] = {}
                return await of_plugin(scope, receive, send)
            match scope["path"].split("/"):
                case ["", "v2", "models", name, "infer"] if name:
                    scope["path_params"] = {"name": name}
                    return await self._infer(scope, receive, send)
        await self._app(scope, receive, send)


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = {
        404: f"there is no {short(request.url.path)}",
        405: f"{short(request.url.path)} does not take {request.method}",
    }.get(error.status_code, error.detail)
    log_rejected("HTTP", f"{request.method} {short(request.url.path)}", error.status_code, text)
    answers.count("HTTP", error.status_code)
    answer = _json({"error": text}, error.status_code)
    answer.headers.update(error.headers or {})  # the methods that the path takes
    return answer


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value, ensure_ascii=False).encode(), status, media_type="application/json")


class Handlers:
    """The endpoints of the protocol."""

    def __init__(self, serving: Serving, max_body: int) -> None:
        self._serving = serving
        self._max_body = max_body
        self.plugin_routes = plugin_routes()
        self._taken: frozenset[str] = frozenset()  # paths of one part that routes have

    def routes(self) -> list[Route]:
        model, versioned = "/v2/models/{name}", "/v2/models/{name}/versions/{version}"
        table: list[tuple[str, str, Callable[[Request], Awaitable[ASGIApp]]]] = [
            *(("POST", f"{each}/infer", self.infer) for each in (model, versioned)),
            *(("POST", f"{each}/generate", self.generate) for each in (model, versioned)),
            *(("POST", f"{each}/generate_stream", self.generate_stream) for each in (model, versioned)),
            ("GET", "/metrics", self.metrics),
            ("GET", "/openapi.json", self.openapi),
            *(("GET", path, page) for path in PAGES),
            ("GET", MODELS, self.shown),
            ("GET", "/v2", self.server),
            ("GET", "/v2/health/live", self.live),
            ("GET", "/v2/health/ready", self.ready),
            ("GET", "/v2/models/stats", self.all_statistics),
            *(("GET", each, self.metadata) for each in (model, versioned)),
            *(("GET", f"{each}/ready", self.model_ready) for each in (model, versioned)),
            *(("GET", f"{each}/config", self.config) for each in (model, versioned)),
            *(("GET", f"{each}/stats", self.statistics) for each in (model, versioned)),
            ("POST", "/v2/repository/index", self.index),
            ("POST", "/v2/repository/models/{name}/load", self.load),
            ("POST", "/v2/repository/models/{name}/unload", self.unload),
            *(("GET", f"{each}/status", self.regions) for each in (SHARED, f"{SHARED}/region/{{name}}")),
            ("POST", f"{SHARED}/region/{{name}}/register", self.register),
            *(("POST", f"{each}/unregister", self.unregister) for each in (SHARED, f"{SHARED}/region/{{name}}")),
        ]
        probes = {self.live, self.ready, self.model_ready, self.metrics, self.openapi, self.server, page}
        table += [("POST", each.path, self._of_plugin(each)) for each in self.plugin_routes]
        made = [
            Route(path, Endpoint(self._serving, function, waits=function not in probes), methods=[method])
            for method, path, function in table
        ]
        self._taken = frozenset(path for _, path, _ in table if path.count("/") == 1)
        plain = Endpoint(self._serving, Plain(self._serving, self._body, LEASE))
        long = [Route(path, plain, methods=["POST"]) for path in PATHS[1:]]
        return [*made, *long, PlainRoute(PATHS[0], plain, self._taken)]

    def _of_plugin(self, route: PluginRoute) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            exchange = Exchange(self._serving.rounder, route.path, request.receive, lambda: self._object(request))
            status, content = await route.function(exchange)
            body = await off_loop(write, content) if is_long(content) else written(hami.to_json(content, str))
            return Response(body, status, media_type="application/json")

        return answer

    async def _object(self, request: Request, default: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the JSON object of a body, or the default for an empty one."""
        body = await self._body(request)
        if not body and default is not None:
            return default
        if len(body) <= SHORT:
            return parse_json(body, "the request")
        request.scope[LEASE].add(JSON_COST * len(body))
        return await off_loop(parse_json, body, "the request")

    async def infer(self, request: Request) -> TensorAnswer:
        headers = dict(request.scope["headers"])
        if len(headers) < len(request.scope["headers"]):
            require_one_length(request.scope["headers"])
        body = await self._body(request, headers)
        if is_long_to_parse(headers, body, regions=self._serving.regions.enabled):
            call, inference = await off_loop(self._parse_long, request, headers, body)
        else:
            call, inference = self._parse(request, headers, body)
        async with UntilClientLeaves(request.receive):
            model, outputs = await run(self._serving.rounder, call)
        if inference.places or is_long_to_render(inference, outputs):
            request.scope[LEASE].add(size_to_render(inference, outputs))
            return TensorAnswer(await off_loop(render_answer, model, inference, outputs))
        return TensorAnswer(render_answer(model, inference, outputs))

    async def _body(
        self, request: Request, headers: Mapping[bytes, bytes] | None = None
    ) -> bytes | bytearray | memoryview:
        scope = request.scope
        headers = dict(scope["headers"]) if headers is None else headers
        return await read_body(scope, request.receive, headers, self._max_body, scope[LEASE])

    def _parse_long(
        self, request: Request, headers: Mapping[bytes, bytes], body: bytes | bytearray | memoryview
    ) -> tuple[Call, HttpInference]:
        lease: Lease = request.scope[LEASE]
        lease.add(JSON_COST * len(body))
        call, inference = self._parse(request, headers, body)
        lease.resize(len(body) + sum(array.nbytes for array in inference.inputs.values()))
        return call, inference

    def _parse(
        self, request: Request, headers: Mapping[bytes, bytes], body: bytes | bytearray | memoryview
    ) -> tuple[Call, HttpInference]:
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        given = headers.get(HEADER_LENGTH.encode())
        # fetch() of a browser says text/plain for a string, also if it is a request in JSON
        may_be_raw = kind.startswith(b"text/") or (kind == b"application/octet-stream" and given is None)
        is_raw = may_be_raw and not (given is None and is_request(body))
        if is_raw or kind.startswith(b"image/") or given == b"0":
            return self._parse_raw(request, kind.decode("latin-1"), bytes(body))
        if given is None and not may_be_json(body):
            raise not_json(kind.decode("latin-1"), body)
        memory = Memory(self._serving.regions, request.scope[LEASE])
        inference = parse_request(body, header_length(given, len(body)), memory)
        request.scope[REQUEST_ID] = inference.id
        return call_of(inference, *_place(request)), inference

    def _parse_raw(self, request: Request, kind: str, body: bytes) -> tuple[Call, HttpInference]:
        """Return the request of a body that is the input itself: an image, text, or the bytes of the only input."""
        parameters = dict(request.query_params)
        binary = parameters.get("binary_data_output") == "true"
        inference = HttpInference(inputs={}, parameters=parameters, binary={}, all_binary=binary)
        if kind.startswith("text/"):
            try:
                body.decode("utf-8")
            except UnicodeDecodeError as error:
                raise BadRequest(f"the body is {kind}, and not valid UTF-8: {error}") from None
        component, version = _place(request)
        model = self._serving.rounder.registry.draw(component, version)
        if len(model.version.inputs) > 1:
            names = ", ".join(spec.name for spec in model.version.inputs)
            raise BadRequest(f'a body of the type {kind or "bytes"} is one input; model "{component}" has {names}')
        spec = model.version.inputs[0] if model.version.inputs else TensorSpec("data", "BYTES", (1,))
        inputs = {spec.name: array_of_body(f'input "{spec.name}"', spec, body)}
        keys: dict[str, Any] = {}
        timeout = apply_parameters(keys, inference.parameters)
        is_text = kind.startswith("text/")
        return Call(inference, component, version, keys, timeout, inputs, is_text, model.handle.version), inference

    async def generate(self, request: Request) -> Response:
        call = await self._parse_generate(request)
        async with UntilClientLeaves(request.receive):
            model, outputs = await run(self._serving.rounder, call)
        return Response(await generated(model, call.inference, outputs), media_type="application/json")

    async def generate_stream(self, request: Request) -> Response:
        """Answer with an event for each part. An error before the first part is an answer with its status."""
        call = await self._parse_generate(request)
        parts = stream(self._serving.rounder, call)
        async with UntilClientLeaves(request.receive):
            first = await anext(parts)
        return EventStream(_events(self._serving, first, parts, call.inference, request.scope))

    async def _parse_generate(self, request: Request) -> Call:
        body = await self._body(request)
        if len(body) > SHORT:
            request.scope[LEASE].add(JSON_COST * len(body))
            return await off_loop(self._call_of_generate, request, body)
        return self._call_of_generate(request, body)

    def _call_of_generate(self, request: Request, body: bytes | bytearray | memoryview) -> Call:
        given = parse_json(body, "the request")
        model = self._serving.rounder.registry.draw(*_place(request))
        inference = parse_generate(given, model.version.inputs)
        request.scope[REQUEST_ID] = inference.id
        call = call_of(inference, *_place(request))
        call.drawn = model.handle.version
        return call

    async def metrics(self, request: Request) -> Response:
        return Response(await self._serving.metrics(), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        models = self._serving.rounder.registry.models() if self._serving.loaded else ()
        return _json(openapi.document(models, self._taken))

    async def shown(self, request: Request) -> Response:
        return _json(models_of(self._serving.rounder, request, self._taken))

    async def server(self, request: Request) -> Response:
        return _json(describing.server_metadata(shared_memory=self._serving.regions.enabled))

    async def live(self, request: Request) -> Response:
        return _json({"live": True})

    async def ready(self, request: Request) -> Response:
        """Answer whether requests are answered now, else with the names of the models that still load."""
        if self._serving.ready:
            return _json({"ready": True})
        if not self._serving.draining:
            self._serving.begin()  # nothing else may come before the server is ready
        return _json({"ready": False, "loading": self._serving.loading()}, 503)

    async def metadata(self, request: Request) -> Response:
        return _json(describing.model_metadata(self._serving.rounder, self._model(request)))

    async def config(self, request: Request) -> Response:
        return _json(describing.model_config(self._model(request)))

    async def model_ready(self, request: Request) -> Response:
        model = self._model(request)
        ready = model.usable
        answer = {"name": model.handle.component, "ready": ready}
        if not ready:
            answer["error"] = f"the model is {model.state}{f': {load_failed(model.reason)}' if model.reason else ''}"
        return _json(answer, 200 if ready else 503)

    async def statistics(self, request: Request) -> Response:
        if "version" in request.path_params:
            return await self._statistics([self._model(request)])
        return await self._statistics(self._serving.rounder.registry.versions(request.path_params["name"]).values())

    async def all_statistics(self, request: Request) -> Response:
        return await self._statistics(self._serving.rounder.registry.models())

    async def _statistics(self, models: Collection[Model]) -> Response:
        return _json({"model_stats": await self._serving.statistics(models)})

    def _model(self, request: Request) -> Any:
        return self._serving.rounder.registry.find(*_place(request))

    async def index(self, request: Request) -> Response:
        options = await self._object(request, {})
        only_ready = options.get("ready", False)
        if not isinstance(only_ready, bool):
            raise BadRequest(f"ready is true or false, got {short(only_ready)}")
        return _json(describing.index(self._serving.rounder, only_ready=only_ready))

    async def load(self, request: Request) -> Response:
        options = await self._object(request, {})
        if options.get("parameters"):
            raise BadRequest("a client cannot change the configuration of a model; leave out the parameters")
        await self._serving.load(request.path_params["name"])
        return _json({})

    async def unload(self, request: Request) -> Response:
        await self._object(request, {})
        await self._serving.unload(request.path_params["name"])
        return _json({})

    async def regions(self, request: Request) -> Response:
        return _json(self._serving.regions.status(request.path_params.get("name")))

    async def register(self, request: Request) -> Response:
        given = await self._object(request)
        key, offset, size = given.get("key"), given.get("offset", 0), given.get("byte_size")
        self._serving.regions.register(request.path_params["name"], key, offset, size)
        return _json({})

    async def unregister(self, request: Request) -> Response:
        await self._object(request, {})
        self._serving.regions.unregister(request.path_params.get("name"))
        return _json({})


def _place(request: Request) -> tuple[str, str | None]:
    """Return the component and the version in the path of a request."""
    return request.path_params["name"], request.path_params.get("version")


async def _events(
    serving: Serving, first: Part, parts: AsyncGenerator[Part, None], inference: Inference, scope: Scope
) -> AsyncGenerator[bytes, None]:
    """Yield the events of an answer in parts; an error is the last event."""
    async with aclosing(parts):
        try:
            if first.outputs:
                yield event(await generated(first.model, inference, first.outputs))
            async for part in parts:
                if part.outputs:
                    yield event(await generated(part.model, inference, part.outputs))
        except asyncio.CancelledError:
            if not serving.draining:
                raise
            yield event(_report(hami.PipeClosed(STOPPING), scope)[1])
        except GeneratorExit:
            raise
        except BaseException as error:
            yield event(_report(error, scope)[1])


class Endpoint:
    """A function that answers requests, as an ASGI application; exceptions become answers of the protocol.

    A route that is given a function adds layers to it, which cost a tenth of a small request.
    """

    def __init__(
        self, serving: Serving, function: Callable[[Request], Awaitable[ASGIApp]], *, waits: bool = True
    ) -> None:
        self._serving = serving
        self._function = function
        self._waits = waits  # until the models are loaded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lease = scope[LEASE] = self._serving.budget.lease()
        try:
            await self._answer(scope, receive, send)
        finally:
            lease.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: ASGIApp
        rejected = None
        try:
            if self._waits and not self._serving.loaded:
                await self._serving.started_for_request()
            response = await self._function(Request(scope, receive))
        except ClientLeft:
            rejected = scope.get("extensions", {}).get(EXTENSION, {}).get(REJECTED)
            response = Response(status_code=rejected or CLIENT_LEFT)
        except asyncio.CancelledError:
            if not self._serving.draining:
                raise
            response = answer_of_error(hami.PipeClosed(STOPPING), scope)
        except GeneratorExit:
            raise
        except BaseException as error:
            response = answer_of_error(error, scope)
        if rejected is None:  # else its server has counted it
            answers.count("HTTP", getattr(response, "status_code", 200))
        await response(scope, receive, send)


def answer_of_error(error: BaseException, scope: Scope) -> Response:
    status, body = _report(error, scope)
    headers = next((each for kind, each in HEADERS.items() if issubclass(type(error), kind)), None)
    return Response(body, status, headers, "application/json")


def _report(error: BaseException, scope: Scope) -> tuple[int, bytes]:
    """Log why a request failed; return the status and the body of its answer."""
    name = scope.get("path_params", {}).get("name")
    what = f'model "{short(name)}"' if name else f"{scope['method']} {short(scope['path'])}"
    failure = report(error, "HTTP", what, id_of(scope))
    return failure.status.http, json.dumps({"error": failure.text}, ensure_ascii=False).encode()
