"""The Open Inference Protocol over gRPC, with health and reflection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from typing import Any

import grpc
import grpc.aio
import hami
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from hami_serve import describing, tracing
from hami_serve.access import MISSING, is_allowed
from hami_serve.access_log import Entry, recorded
from hami_serve.budget import Budget
from hami_serve.errors import STOPPING, BadRequest, Overloaded, TooLarge, short, status_of
from hami_serve.failures import Failure, log_rejected, report
from hami_serve.grpc_messages import POOL, SERVICE, message, methods
from hami_serve.grpc_stopping import GOAWAY_S, LAST_CALLS_S, LastCalls
from hami_serve.grpc_tensors import (
    FINAL,
    LARGE,
    WITH_EMPTY_FINAL,
    Received,
    Request,
    call_of_message,
    is_long,
    joined,
    joined_of_stream,
    receive,
    render_answer,
    unreadable,
)
from hami_serve.http_body import off_loop
from hami_serve.inference import Call, Output, run, stream
from hami_serve.listener import refuse_new_at
from hami_serve.metrics import answers
from hami_serve.model import Model
from hami_serve.rounder import AllRounder
from hami_serve.serving import Serving
from hami_serve.shared_memory import REGION, Memory, Place, Regions

Method = Callable[[Any, Any], Awaitable[Any]]
StreamResponse = message("ModelStreamInferResponse")
NO_MESSAGE = "the call has no message; send one before it is closed"
MIN_PING_MS = 100  # between pings of a client; more of them end its connection
LAST_ANSWERS_S = 1.0  # for the errors of requests that did not end in time
GRPC_LOG = "grpc._cython.cygrpc"  # the logger of its asyncio servers
INFER = f"/{SERVICE}/ModelInfer"
MAX_ANSWER = (1 << 32) - 1  # bytes of a message: its length has four
TYPED_COST = 16  # bytes for a byte of typed contents while they are converted: a small int64 has 8 in two places
WAIT_S = 1.0  # for the memory of a call, before it is rejected
MESSAGE_S = 60.0  # for a message to come, of which gRPC shows nothing before all of it has come,
MESSAGE_RATE = 1 << 20  # and a second more for each of so many bytes that it may have
PROBES = {"ServerLive", "ServerReady", "ModelReady", "ServerMetadata"}  # answered also while models load
STREAM_STOPPING = "the server is stopping; open the stream again, at another server"
MAX_RUNNING = 256  # requests of decoupled models of one stream


class Service:
    """The methods of the service, by the names of the protocol."""

    def __init__(self, serving: Serving, last: LastCalls) -> None:
        self._serving = serving
        self._last = last

    @property
    def _rounder(self) -> AllRounder:
        return self._serving.rounder

    def _model(self, request: Any) -> Model:
        return self._rounder.registry.find(request.name, request.version or None)

    async def ServerLive(self, request: Any, context: Any) -> dict[str, Any]:
        return {"live": True}

    async def ServerReady(self, request: Any, context: Any) -> dict[str, Any]:
        return {"ready": self._serving.ready}

    async def ModelReady(self, request: Any, context: Any) -> dict[str, Any]:
        try:
            model = self._model(request)
        except (hami.NotFound, hami.PipeClosed):  # or the server is starting
            return {"ready": False}
        return {"ready": model.usable}

    async def ServerMetadata(self, request: Any, context: Any) -> dict[str, Any]:
        return describing.server_metadata(shared_memory=self._serving.regions.enabled)

    async def ModelMetadata(self, request: Any, context: Any) -> dict[str, Any]:
        return describing.model_metadata(self._rounder, self._model(request))

    async def ModelConfig(self, request: Any, context: Any) -> dict[str, Any]:
        return {"config": describing.model_config(self._model(request))}

    async def ModelStatistics(self, request: Any, context: Any) -> dict[str, Any]:
        if not request.name:
            models = self._rounder.registry.models()
        elif request.version:
            models = [self._model(request)]
        else:
            models = list(self._rounder.registry.versions(request.name).values())
        return {"model_stats": await self._serving.statistics(models)}

    async def RepositoryIndex(self, request: Any, context: Any) -> dict[str, Any]:
        return {"models": describing.index(self._rounder, only_ready=request.ready)}

    async def RepositoryModelLoad(self, request: Any, context: Any) -> dict[str, Any]:
        if request.parameters:
            raise BadRequest("a client cannot change the configuration of a model; leave out the parameters")
        await self._serving.load(request.model_name)
        return {}

    async def RepositoryModelUnload(self, request: Any, context: Any) -> dict[str, Any]:
        await self._serving.unload(request.model_name)
        return {}

    async def SystemSharedMemoryStatus(self, request: Any, context: Any) -> dict[str, Any]:
        return {"regions": {each["name"]: each for each in self._serving.regions.status(request.name)}}

    async def SystemSharedMemoryRegister(self, request: Any, context: Any) -> dict[str, Any]:
        self._serving.regions.register(request.name, request.key, request.offset, request.byte_size)
        return {}

    async def SystemSharedMemoryUnregister(self, request: Any, context: Any) -> dict[str, Any]:
        self._serving.regions.unregister(request.name)
        return {}

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        call = await _call(request, context, self._serving.regions)
        model, outputs = await run(self._rounder, call)
        return await rendered(model, request.message.id, outputs, request.is_raw, call.inference.places)

    async def ModelStreamInfer(self, requests: AsyncIterator[Any], context: Any) -> None:
        """Answer the requests of a stream; one that fails does not end the stream.

        Those of decoupled models run at once, and their responses alternate. The others run one after the other.
        """
        stream = Stream(self._serving, context)
        with self._last.streaming(stream):
            try:
                async for request in requests:
                    if self._is_decoupled(request):
                        await stream.begin(request)
                    else:
                        await stream.answer(request)
                await stream.join()
            except asyncio.CancelledError:
                if not stream.stopped:
                    raise
            finally:
                await stream.cancel()
        if stream.stopped:
            await context.abort(grpc.StatusCode.UNAVAILABLE, STREAM_STOPPING)

    def _is_decoupled(self, request: Received | BadRequest) -> bool:
        try:
            message = _readable(request).message
            model = self._rounder.registry.find(message.model_name, message.model_version or None)
        except Exception:  # the answer says why
            return False
        return model.version.decoupled


async def _call(request: Received, context: Any, regions: Regions) -> Call:
    """Return the call for a message; the loop does not wait for a long conversion."""
    if request.is_long:
        lease = request.lease
        assert lease is not None
        lease.add(TYPED_COST * request.size)
        call = await off_loop(call_of_message, request, context, Memory(regions, lease))
        lease.resize(request.size + sum(array.nbytes for array in call.inference.inputs.values()))
        return call
    has_texts = any(entry.datatype == "BYTES" for entry in request.message.inputs)
    memory = Memory(regions, request.lease)
    in_memory = regions.enabled and any(REGION in entry.parameters for entry in request.message.inputs)
    if in_memory or (request.size > LARGE and (not request.raw or has_texts)):
        return await off_loop(call_of_message, request, context, memory)
    return call_of_message(request, context, memory)


async def rendered(
    model: Model, id: str, outputs: Sequence[Output], raw: bool, places: Mapping[str, Place] | None = None
) -> Any:
    """Return the message of an answer and its other fields; the loop does not wait for a long conversion.

    Raises:
        TooLarge: The answer has more bytes than a message can have.
    """
    if places or is_long(outputs, raw=raw):
        answer, fields = await off_loop(render_answer, model, id, outputs, raw, places)
    else:
        answer, fields = render_answer(model, id, outputs, raw)
    if (size := answer.ByteSize() + sum(map(len, fields))) > MAX_ANSWER:
        raise TooLarge(
            f"the answer has {size} bytes; a message of gRPC has at most {MAX_ANSWER}, ask for fewer outputs or rows"
        )
    return answer, fields


class Stream:
    """The requests of one stream that run now. One response is written at a time."""

    def __init__(self, serving: Serving, context: Any) -> None:
        self.begun = self._ended = 0  # requests
        self.stopped = False  # by this server
        self._task = asyncio.current_task()
        self._serving = serving
        self._context = context
        self._capacity = asyncio.Semaphore(MAX_RUNNING)
        self._writing = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()

    async def begin(self, request: Any) -> None:
        """Start a request. If very many run, wait for one to end: the client then has to wait too."""
        await self._capacity.acquire()
        task = asyncio.create_task(self.answer(request))
        self._running.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._capacity.release()
        if not task.cancelled():
            task.exception()  # the stream is broken, which its reader sees too

    async def join(self) -> None:
        """Wait until all requests have ended."""
        await asyncio.gather(*self._running)

    @property
    def is_idle(self) -> bool:
        return self.begun == self._ended

    def stop(self) -> None:
        """End the stream because the server stops."""
        assert self._task is not None
        self.stopped = True
        self._task.cancel()

    async def cancel(self) -> None:
        """End the requests that still run."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def answer(self, request: Any) -> None:
        """Run a request, and write its responses."""
        self.begun += 1
        lease = self._serving.budget.lease()
        entry = None
        try:
            lease.add(_readable(request).size)
            request.lease = lease
            span = _span("ModelStreamInfer", self._context, lambda: self.stopped)
            with recorded("gRPC", "ModelStreamInfer") as entry, span:
                await self._answer_in_parts(request)
            _answered(entry, request, None)
        except asyncio.CancelledError:
            if self.stopped:
                await self._fail(hami.PipeClosed(STOPPING), request, entry)
            raise
        except GeneratorExit:
            raise
        except BaseException as error:
            await self._fail(error, request, entry)
        finally:
            lease.close()
            self._ended += 1

    async def _fail(self, error: BaseException, request: Any, entry: Entry | None) -> None:
        failure = _report(error, request)
        _answered(entry, request, failure)
        failed = StreamResponse(error_message=failure.text)
        failed.infer_response.id = getattr(_message(request), "id", "")
        failed.infer_response.parameters[FINAL].bool_param = True
        await self._write(failed.SerializeToString())

    async def _answer_in_parts(self, request: Received) -> None:
        call = await _call(request, self._context, self._serving.regions)
        inference = call.inference
        with_empty = inference.parameters.get(WITH_EMPTY_FINAL) is True
        async with aclosing(stream(self._serving.rounder, call)) as parts:
            async for part in parts:
                if part.outputs or with_empty:
                    answer, fields = await rendered(
                        part.model, inference.id, part.outputs, request.is_raw, inference.places
                    )
                    answer.parameters[FINAL].bool_param = part.final
                    await self._write(joined_of_stream((answer, fields)))

    async def _write(self, response: bytes) -> None:
        """Write a response. This waits while the client is slow, and then the model waits too.

        Raises:
            CancelledError: The client has left, before gRPC has cancelled the task of the stream.
        """
        async with self._writing:
            try:
                await self._context.write(response)
            except grpc.aio.InternalError:
                raise asyncio.CancelledError from None


def unary(name: str, method: Method, answer: Any, last: LastCalls, *, noted: bool = False) -> Method:
    """Let a method answer with a dict, and turn exceptions into statuses. `noted`: the native door notes the call."""

    async def call(request: Any, context: Any) -> Any:
        failure, value, entry = None, None, None
        try:
            recording = nullcontext() if noted else recorded("gRPC", name)
            span = nullcontext() if noted else _span(name, context, lambda: last.over)
            with last.running(), recording as entry, span:
                value = await method(_readable(request), context)
                value = json_format.ParseDict(value, answer()) if isinstance(value, dict) else value
        except asyncio.CancelledError:
            if not last.over:
                raise
            failure = _report(hami.PipeClosed(STOPPING), request)
        except GeneratorExit:
            raise
        except BaseException as error:
            failure = _report(error, request)
        _answered(entry, request, failure)
        await last.before_answer()
        if failure is None:
            return value
        request = None  # a cycle of gRPC keeps this frame until the garbage collector runs
        await context.abort(getattr(grpc.StatusCode, failure.status.grpc), failure.text)

    return call


@contextmanager
def _span(name: str, context: Any, is_over: Callable[[], bool]) -> Iterator[None]:
    """Record the block as the span of a call, whose parent is that of the metadata of its client.

    `is_over`: a call that is cancelled was ended by the server, which answers it, and not by its client.
    """
    if not tracing.is_on():
        yield
        return
    given = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    attributes = tracing.attributes_of_call(SERVICE, name)
    with tracing.server_span(f"{SERVICE}/{name}", given, attributes, records_faults=False) as span:
        try:
            yield
        except asyncio.CancelledError:
            if is_over():
                tracing.describe_call(span, grpc.StatusCode.UNAVAILABLE.value[0])
            raise
        except GeneratorExit:  # the call gets no answer
            raise
        except BaseException as error:
            tracing.describe_call(span, getattr(grpc.StatusCode, status_of(error).grpc).value[0])
            raise
        tracing.describe_call(span, grpc.StatusCode.OK.value[0])


def _answered(entry: Entry | None, request: Any, failure: Failure | None) -> None:
    """Count an answer, and write its line of the access log."""
    status = failure.status.grpc if failure else "OK"
    answers.count("gRPC", status)
    if entry is not None:
        request = _message(request)
        entry.model = entry.model or short(getattr(request, "model_name", "") or getattr(request, "name", ""))
        entry.id = str(getattr(request, "id", ""))
        entry.write(status)


def _message(request: Any) -> Any:
    return request.message if isinstance(request, Received) else request


def _report(error: BaseException, request: Any) -> Failure:
    request = _message(request)
    name = getattr(request, "model_name", "") or getattr(request, "name", "")
    what = f'model "{short(name)}"' if name else "a request"
    return report(error, "gRPC", what, getattr(request, "id", ""))


class InferHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Handles ModelInfer: before its message is read, the largest one that may come is charged.

    gRPC says the size of a message only when it has read it. A call waits unread while the others have too much.
    """

    def __init__(self, method: Method, budget: Budget, max_body: int) -> None:
        self._method = method
        self._budget = budget
        self._max_body = max_body

    def service(self, handler_call_details: Any) -> Any:
        if handler_call_details.method != INFER:
            return None
        lease = self._budget.lease()

        def read(data: bytes) -> Received | BadRequest:
            lease.resize(len(data))  # which is less
            return receive(data, lease)

        task = asyncio.current_task()
        assert task is not None  # that of the call
        task.add_done_callback(lambda _: lease.close())
        try:
            lease.resize(self._max_body)
        except Overloaded:
            pass
        else:
            return grpc.unary_unary_rpc_method_handler(self._method, read, joined)

        async def wait(_: Any, context: Any) -> None:
            try:
                await lease.wait(self._max_body, WAIT_S)
            except Overloaded as error:
                failure = report(error, "gRPC", "ModelInfer")
                answers.count("gRPC", failure.status.grpc)
                await context.abort(getattr(grpc.StatusCode, failure.status.grpc), failure.text)
            await context.write(await self._method(await _message_of(context, INFER, self._max_body), context))

        # A handler of a stream begins before a message is read; the client sees no difference.
        return grpc.stream_stream_rpc_method_handler(wait, read, joined)


def _reader(kind: Any) -> Callable[[bytes], Any]:
    """Return a function that reads a message, or returns why it cannot: grpcio would answer with the status UNKNOWN."""
    if kind is Request:
        return receive

    def read(data: bytes) -> Any:
        if len(data) > LARGE:
            return BadRequest(f"a {kind.DESCRIPTOR.name} has at most {LARGE} bytes, got {len(data)}")
        try:
            return kind.FromString(data)
        except DecodeError:
            return unreadable(kind)

    return read


def _readable(request: Any) -> Any:
    if isinstance(request, BadRequest):
        raise request
    return request


def _after_start(serving: Serving, method: Method) -> Method:
    """Let a method wait until the models are loaded."""

    async def call(request: Any, context: Any) -> Any:
        if not serving.loaded:
            await serving.started_for_request()
        return await method(request, context)

    return call


def method_handlers(serving: Serving, last: LastCalls) -> dict[str, Any]:
    """Return the handlers of the service by the names of their methods."""
    service = Service(serving, last)
    found = {}
    for method in methods():
        given, answer = message(method.input_type.name), message(method.output_type.name)
        coders = {"request_deserializer": _reader(given), "response_serializer": answer.SerializeToString}
        function = getattr(service, method.name)
        if method.name not in PROBES:
            function = _after_start(serving, function)
        if method.name == "ModelStreamInfer":
            found[method.name] = grpc.stream_stream_rpc_method_handler(function, coders["request_deserializer"])
        else:
            found[method.name] = grpc.unary_unary_rpc_method_handler(
                unary(method.name, function, answer, last), **coders
            )
    return found


def _is_not_of_a_client_that_left(record: logging.LogRecord) -> bool:
    """Return False for a traceback of gRPC that says only that an answer could not be sent."""
    return not record.exc_info or not isinstance(record.exc_info[1], grpc.aio.InternalError)


async def _message_of(context: Any, method: str, max_body: int) -> Any:
    """Return the message of a call that has one; without it, end the call: others wait for its memory."""
    limit = MESSAGE_S + max_body / MESSAGE_RATE
    try:
        request = await asyncio.wait_for(context.read(), limit)
    except asyncio.TimeoutError:
        why = f"the message did not come within {limit:g} s"
        log_rejected("gRPC", short(method), 408, why)
        answers.count("gRPC", "DEADLINE_EXCEEDED")
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, why)
        raise  # for type checkers: `abort` has raised
    if request is not grpc.aio.EOF:  # pyright: ignore[reportAttributeAccessIssue]
        return request
    why = f"it has no message, or one of more than {max_body} bytes, or its client has left"
    log_rejected("gRPC", short(method), 413, why)
    answers.count("gRPC", "RESOURCE_EXHAUSTED")
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, NO_MESSAGE)


class _OneMessage(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Answers a call that ends without its message, which grpc.aio leaves open; counts those that gRPC has rejected."""

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return handler
        method = handler.unary_stream if handler.response_streaming else handler.unary_unary

        async def call(_: Any, context: Any) -> Any:
            return await method(await _message_of(context, handler_call_details.method, self._max_body), context)

        kind = (
            grpc.stream_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        return kind(call, handler.request_deserializer, handler.response_serializer)


class _RequireToken(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Rejects calls without the token, except those of the health service."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        is_open = handler_call_details.method.startswith(f"/{health.SERVICE_NAME}/")
        given = dict(handler_call_details.invocation_metadata or ()).get("authorization")
        if is_open or is_allowed(self._token, given):
            return await continuation(handler_call_details)

        async def reject(_: Any, context: Any) -> Any:
            log_rejected("gRPC", short(handler_call_details.method), 401, MISSING)
            answers.count("gRPC", "UNAUTHENTICATED")
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, MISSING)

        # A handler of a stream begins before a message is read, which may be large; the client sees no difference.
        return grpc.stream_stream_rpc_method_handler(reject)


class Health:
    """What the health service says."""

    def __init__(self) -> None:
        self.servicer = health.aio.HealthServicer()  # pyright: ignore[reportAttributeAccessIssue]

    async def set(self, ready: bool) -> None:
        status = health_pb2.HealthCheckResponse
        for name in ("", SERVICE):
            await self.servicer.set(name, status.SERVING if ready else status.NOT_SERVING)


def add_services(server: Any, servicer: Any) -> None:
    """Add health and reflection to a server."""
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    POOL.AddSerializedFile(health_pb2.DESCRIPTOR.serialized_pb)
    names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
    found = reflection.aio.ReflectionServicer(names, pool=POOL)  # pyright: ignore[reportAttributeAccessIssue]
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(found, server)


class GrpcServer:
    """A server of gRPC in the current asyncio loop."""

    def __init__(
        self,
        serving: Serving,
        address: str,
        max_body: int,
        *,
        token: str | None = None,
        tls: tuple[bytes, bytes] | None = None,
        shared: bool = False,
    ) -> None:
        options = [
            ("grpc.max_receive_message_length", max_body),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", int(shared)),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", MIN_PING_MS),  # while a request runs for long
            ("grpc.keepalive_permit_without_calls", 1),
        ]
        logging.getLogger(GRPC_LOG).addFilter(_is_not_of_a_client_that_left)
        interceptors = [*([_RequireToken(token)] if token else []), _OneMessage(max_body)]
        self._server = grpc.aio.server(interceptors=interceptors, options=options)
        self._serving = serving
        self._last = LastCalls()
        found = method_handlers(serving, self._last)
        infer = InferHandler(found["ModelInfer"].unary_unary, serving.budget, max_body)
        self._server.add_generic_rpc_handlers([infer, grpc.method_handlers_generic_handler(SERVICE, found)])
        self._health = Health()
        add_services(self._server, self._health.servicer)
        try:
            if tls is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, grpc.ssl_server_credentials([tls]))
        except RuntimeError as error:
            raise hami.ConfigError(f"cannot listen on {address} for gRPC: {error}") from error
        if not self.port:
            raise hami.ConfigError(f"cannot listen on {address} for gRPC")

    async def start(self) -> None:
        await self._server.start()
        await self._health.set(self._serving.ready)

    async def set_ready(self) -> None:
        """Tell clients that the models are loaded."""
        await self._health.set(True)

    async def stop(self, grace: float) -> None:
        """Answer what clients have sent, at most for `grace` seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        await self._health.servicer.enter_graceful_shutdown()
        refuse_new_at(self.port)
        await self._last.collect(min(grace, LAST_CALLS_S))
        stopping = loop.create_task(self._server.stop(max(0.0, until - loop.time()) + LAST_ANSWERS_S))
        await asyncio.sleep(GOAWAY_S)
        self._last.release()
        await self._last.end(stopping, until)
        await stopping
