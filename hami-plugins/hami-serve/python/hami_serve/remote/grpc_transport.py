"""A remote model over gRPC. A task that is cancelled cancels its call.

It uses the channels of grpc that have threads of their own: those of grpc.aio disturb one another when a process has
several loops, as a server with models of other servers does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from hami_serve.datatypes import Array, bytes_of_array
from hami_serve.errors import BadRequest, RemoteFailed, short
from hami_serve.grpc_messages import SERVICE, message, methods
from hami_serve.grpc_tensors import FINAL, WITH_EMPTY_FINAL, tensors_of
from hami_serve.model import TensorSpec
from hami_serve.remote.call import MAX_ANSWER, Parts, RemoteCall, ReplicaFailed, answer_checked, error_of, specs_of

STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
CALLED = ("ModelMetadata", "ModelInfer", "ModelStreamInfer")
MAX_STREAMS = 256  # answers in parts that are read at once
LARGEST_BACKOFF_MS = 1000  # of gRPC, before it connects again


class GrpcTransport:
    """One replica over gRPC."""

    def __init__(
        self, url: str, model: str, version: str, *, connect_timeout: float, token: str | None, ca: str | None
    ) -> None:
        scheme, _, target = url.rstrip("/").partition("://")
        options = [
            ("grpc.max_receive_message_length", MAX_ANSWER),
            ("grpc.max_send_message_length", -1),
            ("grpc.enable_retries", 0),
            ("grpc.min_reconnect_backoff_ms", int(connect_timeout * 1000)),
            ("grpc.max_reconnect_backoff_ms", LARGEST_BACKOFF_MS),
        ]
        self._channel = (
            grpc.secure_channel(target, grpc.ssl_channel_credentials(ca.encode() if ca else None), options)
            if scheme == "grpcs"
            else grpc.insecure_channel(target, options)
        )
        self._names = {"model_name": model, "model_version": version}
        self._metadata = (("authorization", f"Bearer {token}"),) if token else None
        self._methods = {each.name: _stub(self._channel, each) for each in methods() if each.name in CALLED}
        self._readers = ThreadPoolExecutor(MAX_STREAMS, "hami-remote-reader")

    async def inputs(self) -> tuple[TensorSpec, ...]:
        request = message("ModelMetadataRequest")(name=self._names["model_name"], version=self._names["model_version"])
        answer = await self._send("ModelMetadata", request, None)
        return specs_of([{"name": it.name, "datatype": it.datatype, "shape": it.shape} for it in answer.inputs])

    async def infer(self, call: RemoteCall) -> dict[str, Array]:
        request = message("ModelInferRequest")(**self._names)
        for tensor in call.inputs:
            request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.array.shape)
            request.raw_input_contents.append(bytes(bytes_of_array(tensor.datatype, tensor.array)))
        for key, value in call.parameters.items():
            _set(request.parameters[key], key, value)
        if call.parts is not None:
            return await self._stream(request, call, call.parts)
        return _outputs(await self._send("ModelInfer", request, call.seconds_left()))

    async def _stream(self, request: Any, call: RemoteCall, parts: Parts) -> dict[str, Array]:
        """Run a request whose answer may have parts; return the outputs after the last part."""
        request.parameters[WITH_EMPTY_FINAL].bool_param = True
        timeout = call.seconds_left()
        responses = self._methods["ModelStreamInfer"](iter([request]), timeout=timeout, metadata=self._metadata)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, _read, responses, parts)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return _outputs(await self._send("ModelInfer", request, call.seconds_left()))
            raise _error(error) from None
        finally:
            responses.cancel()

    async def _send(self, name: str, request: Any, timeout: float | None) -> Any:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        call = self._methods[name].future(request, timeout=timeout, metadata=self._metadata)
        call.add_done_callback(lambda _: _tell(loop, ended))
        try:
            await ended.wait()
        except asyncio.CancelledError:
            call.cancel()
            raise
        if call.code() is grpc.StatusCode.OK:
            return call.result()
        raise _error(call)

    async def close(self) -> None:
        self._channel.close()
        self._readers.shutdown(wait=False)


def _error(call: Any) -> Exception:
    """Return the exception for a call that has failed."""
    if call.code() is grpc.StatusCode.UNAVAILABLE:  # refused, lost, or answered so: the code does not tell
        return ReplicaFailed(call.details() or "not available", may_have_run=True)
    return error_of(STATUSES.get(call.code(), 500), call.details() or "")


def _read(responses: Iterator[Any], parts: Parts) -> dict[str, Array]:
    """Pass on the parts of an answer; return the outputs of the last response."""
    for response in responses:
        if response.error_message:
            raise RemoteFailed(response.error_message)
        outputs = _outputs(response.infer_response)
        if response.infer_response.parameters[FINAL].bool_param:
            return outputs
        parts.take(outputs)
    raise ReplicaFailed("the stream ended before the answer", may_have_run=True)


def _tell(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the client was closed
        loop.call_soon_threadsafe(ended.set)


def _stub(channel: Any, method: Any) -> Any:
    kind = channel.stream_stream if method.name == "ModelStreamInfer" else channel.unary_unary
    return kind(
        f"/{SERVICE}/{method.name}",
        request_serializer=message(method.input_type.name).SerializeToString,
        response_deserializer=message(method.output_type.name).FromString,
    )


def _set(parameter: Any, key: str, value: Any) -> None:
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
    if type(value) not in kinds:
        raise BadRequest(
            f"the parameter {short(key)} is a bool, an int, a float or a str over gRPC, got {short(value)}"
        )
    setattr(parameter, kinds[type(value)], value)


def _outputs(answer: Any) -> dict[str, Array]:
    with answer_checked():
        return tensors_of(answer.outputs, answer.raw_output_contents, "output")
