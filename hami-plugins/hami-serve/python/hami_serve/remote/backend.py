"""`Remote`: a backend that runs a model of another server by the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, wait
from typing import Annotated, Any

import hami

from hami_serve.building import request_of
from hami_serve.datatypes import DATATYPES, Array, checked_integers
from hami_serve.inference import Output, output_of
from hami_serve.model import TensorSpec
from hami_serve.remote.call import Parts, RemoteCall
from hami_serve.remote.client import Settings, close_client, open_client

POLL_S = 0.01  # how often a batch looks for requests that were cancelled


class Remote(hami.Backend):
    """Run a model of another server, over HTTP or gRPC by the Open Inference Protocol.

    Each input of the remote model is the key of its name; a single input may also be `data`. Each output is a key;
    `result` is the only output, or a dict of several. The deadline, the priority and the sequence of a request are
    passed on, and a request that is cancelled here is cancelled there. All requests of a batch are sent at once. With
    `parts`, a caller that takes parts gets those of the remote model as they come.
    """

    url: Annotated[list[str], "URLs of the replicas: http://, https://, grpc:// or grpcs://"]
    model: Annotated[str, "name of the model at the server"]
    version: Annotated[str, "version of the model; by default the choice of the server"] = ""
    attempts: Annotated[int, "how many times a request is sent, if replicas fail or their queues are full"] = 2
    connect_timeout: Annotated[hami.types.Duration, "limit for a connection"] = 1.0
    attempt_timeout: Annotated[
        hami.types.Duration | None, "limit for an answer, after which another replica is tried"
    ] = 300.0
    recovery: Annotated[
        hami.types.Duration, "time without requests for a replica that has failed three times in a row"
    ] = 5.0
    parts: Annotated[bool, "the model answers in parts, which are passed on; needs grpc:// or grpcs://"] = False
    token_file: Annotated[hami.types.FilePath | None, "file with the token of the server"] = None
    tls_ca: Annotated[
        hami.types.FilePath | None, "certificates in PEM that the server's certificate is checked with"
    ] = None

    thread = "concurrent"

    def init(self, options: hami.types.DictView) -> None:
        if not self.url or self.attempts < 1:
            raise hami.ConfigError(f"Remote needs a url and at least 1 attempt, got {self.url} and {self.attempts}")
        if self.parts and not all(each.startswith("grpc") for each in self.url):
            raise hami.ConfigError(f"Remote passes on parts over gRPC only; use a url with grpc://, got {self.url}")
        settings = Settings(
            urls=tuple(dict.fromkeys(self.url)),
            model=self.model,
            version=self.version,
            attempts=self.attempts,
            connect_timeout=self.connect_timeout,
            attempt_timeout=self.attempt_timeout,
            recovery=self.recovery,
            token_file=str(self.token_file) if self.token_file else None,
            tls_ca=str(self.tls_ca) if self.tls_ca else None,
        )
        self._client = open_client(settings)
        try:
            self._inputs = self._client.inputs() or (TensorSpec("data", "", ()),)
        except BaseException:
            close_client(self._client)
            raise

    def forward(self, batch: list[hami.Request]) -> None:
        sent: list[tuple[hami.Request, RemoteCall, Future[dict[str, Array]]]] = []
        for item in batch:
            try:
                call = call_of(item, self._inputs, parts=self.parts)
                sent.append((item, call, self._client.infer(call)))
            except Exception as error:
                item.fail(error)
        while wait([future for _, _, future in sent], POLL_S).not_done:
            for item, _, future in sent:
                if item.cancelled:
                    future.cancel()
        for item, call, future in sent:
            if call.parts is not None:
                call.parts.close()
            try:
                outputs = future.result()
                item.update(outputs)
                item["result"] = _result(outputs)
            except CancelledError:  # the outcome of a cancelled request is fixed
                pass
            except Exception as error:
                item.fail(error)

    def close(self) -> None:
        close_client(self._client)


def call_of(item: hami.Request, inputs: tuple[TensorSpec, ...], *, parts: bool = False) -> RemoteCall:
    """Return the call for a request of a pipe.

    Raises:
        RequestError: An input is missing.
        DataTypeError: A value does not fit the datatype of its input.
    """
    tensors = [_tensor(spec, _value(item, spec.name, len(inputs))) for spec in inputs]
    parameters = dict(item.get("parameters") or {})
    if item.priority:
        parameters["priority"] = item.priority
    sequence = item.get("req_id")
    if sequence is not None:
        parameters["sequence_id"] = sequence
        parameters["sequence_start"] = bool(item.get("sequence_start", False))
        parameters["sequence_end"] = bool(item.get("finish", False))
    take = Parts(lambda outputs: item.emit(_result(outputs))) if parts else None
    return RemoteCall(tensors, parameters, item.deadline, sequence, take)


def _result(outputs: dict[str, Array]) -> Any:
    """Return the only output, a dict of several, or None if an answer ends after its parts."""
    if len(outputs) == 1:
        return request_of(outputs)["data"]
    return outputs or None


def _value(item: hami.Request, name: str, count: int) -> Any:
    if name in item:
        return item[name]
    data = item.get("data")
    if isinstance(data, Mapping) and name in data:
        return data[name]
    if count == 1 and data is not None:
        return data
    raise hami.RequestError(f'the remote model needs the input "{name}"; the request has {", ".join(item.keys())}')


def _tensor(spec: TensorSpec, value: Any) -> Output:
    """Return a value as a tensor of the datatype of the input, if that loses no more than precision."""
    tensor = output_of(spec.name, value)
    if spec.datatype in ("", tensor.datatype):
        return tensor
    given, wanted = tensor.array.dtype.kind, DATATYPES[spec.datatype][0]
    if given in "iu" and wanted.kind in "iu":
        return Output(spec.name, spec.datatype, checked_integers(f'input "{spec.name}"', spec.datatype, tensor.array))
    if given in "iuf" and wanted.kind == "f":
        return Output(spec.name, spec.datatype, tensor.array.astype(wanted))
    raise hami.DataTypeError(f'the input "{spec.name}" of the remote model is {spec.datatype}, got {tensor.datatype}')
