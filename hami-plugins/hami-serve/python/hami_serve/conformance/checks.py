"""The checks of the protocol that need one model with inputs in its metadata."""

from __future__ import annotations

import json
import math
import threading
from typing import Any

from hami_serve.conformance.client import Answer
from hami_serve.conformance.context import Context, Failed, Skipped, check, check_outputs, error_text, expect, succeeded
from hami_serve.datatypes import DATATYPES

ABSENT = "no-such-model-5d1f"
BINARY = "binary_tensor_data"

# ---- health and metadata ----


@check("health", "the server is live and ready")
def _health(context: Context) -> None:
    for path in ("/v2/health/live", "/v2/health/ready"):
        status = context.client.get(path).status
        expect(status == 200, f"{path}: expected status 200, got {status}")


@check("metadata", "the server has a name, a version and a list of extensions")
def _server_metadata(context: Context) -> None:
    answer = succeeded(context.client.get("/v2"))
    expect(isinstance(answer.get("name"), str), "name is not a string")
    expect(isinstance(answer.get("version"), str), "version is not a string")
    extensions = answer.get("extensions")
    expect(
        isinstance(extensions, list) and all(isinstance(each, str) for each in extensions), "extensions is not a list"
    )


@check("metadata", "a model has a name, a platform, inputs and outputs with known datatypes")
def _model_metadata(context: Context) -> None:
    answer = succeeded(context.client.get(f"/v2/models/{context.model}"))
    expect(answer.get("name") == context.model, f"name is {answer.get('name')!r}")
    expect(isinstance(answer.get("platform"), str), "platform is not a string")
    for key in ("inputs", "outputs"):
        expect(isinstance(answer.get(key), list), f"{key} is not a list")
        for tensor in answer[key]:
            expect(tensor.get("datatype") in DATATYPES, f"{key}: the datatype is {tensor.get('datatype')!r}")
            expect(isinstance(tensor.get("name"), str), f"{key}: the name is {tensor.get('name')!r}")
            expect(isinstance(tensor.get("shape"), list), f"{key}: the shape is {tensor.get('shape')!r}")


@check("health", "a model is ready")
def _model_ready(context: Context) -> None:
    status = context.client.get(f"/v2/models/{context.model}/ready").status
    expect(status == 200, f"expected status 200, got {status}")


@check("health", "a model that does not exist is not ready")
def _absent_ready(context: Context) -> None:
    status = context.client.get(f"/v2/models/{ABSENT}/ready").status
    expect(400 <= status < 600, f"expected an error status, got {status}")


@check("errors", "the metadata of a model that does not exist are a client error with a message")
def _absent_metadata(context: Context) -> None:
    context.rejects(context.client.get(f"/v2/models/{ABSENT}"), "metadata")


@check("errors", "inference with a model that does not exist is a client error with a message")
def _absent_infer(context: Context) -> None:
    context.rejects(context.client.infer(ABSENT, {"inputs": context.tensors()}), "inference")


@check("errors", "a version that does not exist is a client error with a message")
def _absent_version(context: Context) -> None:
    path = f"/v2/models/{context.model}/versions/987654321/infer"
    context.rejects(context.client.send("POST", path, {"inputs": context.tensors()}), "inference")


@check("errors", "an unknown path is status 404, and the wrong method status 4xx")
def _unknown_path(context: Context) -> None:
    status = context.client.get("/v2/no/such/path").status
    expect(status == 404, f"expected status 404, got {status}")
    status = context.client.get(f"/v2/models/{context.model}/infer").status
    expect(400 <= status < 500, f"GET of infer: expected a status 4xx, got {status}")


# ---- inference ----


@check("inference", "JSON tensors are answered with outputs whose elements fit their shapes")
def _infer(context: Context) -> None:
    answer = succeeded(context.infer())
    expect(answer.get("model_name") == context.model, f"model_name is {answer.get('model_name')!r}")
    check_outputs(answer)


@check("inference", "the id of a request is the id of its answer")
def _id(context: Context) -> None:
    answer = succeeded(context.infer(id="ünique/1"))
    expect(answer.get("id") == "ünique/1", f"id is {answer.get('id')!r}")


@check("inference", "nested lists have the same elements as flat ones")
def _nested(context: Context) -> None:
    tensors = context.tensors()
    for tensor in tensors:
        tensor["data"] = _nest(tensor["data"], tensor["shape"])
    nested = check_outputs(succeeded(context.infer(inputs=tensors)))
    expect(_values(nested) == _values(check_outputs(succeeded(context.infer()))), "the outputs differ")


def _nest(data: list[Any], shape: list[int]) -> list[Any]:
    if len(shape) < 2:
        return data
    step = len(data) // shape[0] if shape[0] else 0
    return [_nest(data[index * step : (index + 1) * step], shape[1:]) for index in range(shape[0])]


def _values(outputs: list[dict[str, Any]]) -> dict[str, Any]:
    return {output["name"]: output["data"] for output in outputs}


@check("inference", "only the outputs that are asked for are returned")
def _requested(context: Context) -> None:
    outputs = check_outputs(succeeded(context.infer()))
    one = outputs[-1]["name"]
    answer = check_outputs(succeeded(context.infer(outputs=[{"name": one}])))
    expect([output["name"] for output in answer] == [one], f"asked for {one}, got {[o['name'] for o in answer]}")


@check("inference", "two requests on one connection are both answered")
def _keep_alive(context: Context) -> None:
    connection = context.client.connect()
    try:
        for _ in range(2):
            path = f"/v2/models/{context.model}/infer"
            succeeded(context.client.send_on(connection, "POST", path, {"inputs": context.tensors()}))
    finally:
        connection.close()


@check("inference", "64 requests of 16 clients at once are all answered alike")
def _concurrent(context: Context) -> None:
    wanted = _values(check_outputs(succeeded(context.infer())))
    wrong: list[str] = []

    def call() -> None:
        for _ in range(4):
            try:
                found = _values(check_outputs(succeeded(context.infer())))
                if found != wanted:
                    wrong.append("another answer")
            except Exception as error:
                wrong.append(str(error))

    callers = [threading.Thread(target=call) for _ in range(16)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    expect(not wrong, f"{len(wrong)} of 64 failed, the first: {wrong[0] if wrong else ''}")


# ---- malformed requests ----


def _changed(context: Context, **changes: Any) -> dict[str, Any]:
    """Return a request whose first tensor has other entries; None removes one."""
    first, *others = context.tensors()
    first = {key: value for key, value in {**first, **changes}.items() if value is not None}
    return {"inputs": [first, *others]}


_TINY: dict[str, Any] = {"datatype": "INT8", "shape": [1], "data": [0]}
MALFORMED: list[tuple[str, Any]] = [
    ("malformed JSON", lambda context: b'{"inputs": ['),
    ("a body that is not an object", lambda context: b"[1, 2]"),
    ("an empty body", lambda context: b""),
    ("an object without inputs", lambda context: {}),
    ("inputs that are not a list", lambda context: {"inputs": {"x": 1}}),
    ("a tensor without a name", lambda context: _changed(context, name=None)),
    ("a tensor without a datatype", lambda context: _changed(context, datatype=None)),
    ("a tensor without a shape", lambda context: _changed(context, shape=None)),
    ("a tensor without data", lambda context: _changed(context, data=None)),
    ("an unknown input", lambda context: _changed(context, name="no-such-input")),
    ("a missing input", lambda context: {"inputs": []}),
    ("an unknown datatype", lambda context: _changed(context, datatype="FP7")),
    ("too many elements", lambda context: _changed(context, data=context.tensors()[0]["data"] * 2 + [0])),
    ("a negative size", lambda context: _changed(context, shape=[-5])),
    ("a shape whose product overflows", lambda context: _changed(context, shape=[2**32, 2**32, 2**32])),
    ("data that are not a list", lambda context: _changed(context, data={"a": 1})),
    ("data of another kind", lambda context: _changed(context, data=[{"a": 1}] * len(context.tensors()[0]["data"]))),
    ("deeply nested JSON", lambda context: b'{"inputs": ' + b"[" * 100_000),
    ("10,000 inputs", lambda context: {"inputs": [{"name": str(n), **_TINY} for n in range(10_000)]}),
]


def _rejects_malformed(what: str, make: Any) -> None:
    @check("malformed", f"{what}: a client error with a message")
    def malformed(context: Context) -> None:
        context.tensors()
        context.rejects(context.client.infer(context.model, make(context)), what)


for _what, _make in MALFORMED:
    _rejects_malformed(_what, _make)


@check("errors", "an output that does not exist is a client error with a message")
def _unknown_output(context: Context) -> None:
    context.rejects(context.infer(outputs=[{"name": "no-such-output"}]), "inference")


@check("errors", "an unknown model with a name of 4,000 characters is a client error")
def _long_name(context: Context) -> None:
    answer = context.client.get(f"/v2/models/{'n' * 4000}")
    expect(400 <= answer.status < 500, f"expected a status 4xx, got {answer.status}")


# ---- clients that leave ----


@check("clients", "a client that disconnects in its body leaves the server alive")
def _half_body(context: Context) -> None:
    for _ in range(8):
        with context.client.socket() as client:
            client.sendall(_head(context, 1000) + b'{"inputs"')
    expect(context.client.get("/v2/health/live").status == 200, "the server is not live any more")


@check("clients", "a client that disconnects before its answer leaves the server alive")
def _left(context: Context) -> None:
    body = json.dumps({"inputs": context.tensors()}).encode()
    for _ in range(8):
        with context.client.socket() as client:
            client.sendall(_head(context, len(body)) + body)
    succeeded(context.infer())


def _head(context: Context, length: int) -> bytes:
    path = f"{context.client.prefix}/v2/models/{context.model}/infer"
    lines = (f"POST {path} HTTP/1.1", f"Host: {context.client.host}", f"Content-Length: {length}", "", "")
    return "\r\n".join(lines).encode()


@check("clients", "100 idle connections do not keep others from being answered")
def _idle(context: Context) -> None:
    clients = [context.client.socket() for _ in range(100)]
    try:
        succeeded(context.infer())
    finally:
        for client in clients:
            client.close()


# ---- binary tensors ----


def binary_request(context: Context) -> tuple[dict[str, Any], bytes]:
    """Return the JSON part and the tail of a request with all inputs as bytes."""
    context.needs(BINARY)
    entries, tail = [], b""
    for tensor in context.tensors():
        count, size = math.prod(tensor["shape"]), DATATYPES[tensor["datatype"]][1]
        data = (b"\1\0\0\0" + b"0") * count if size == 0 else b"\0" * (count * size)
        entry = {key: value for key, value in tensor.items() if key != "data"}
        entries.append({**entry, "parameters": {"binary_data_size": len(data)}})
        tail += data
    return {"inputs": entries}, tail


@check("binary", "binary inputs give the same outputs as JSON inputs")
def _binary_inputs(context: Context) -> None:
    head, tail = binary_request(context)
    names = [output["name"] for output in check_outputs(succeeded(context.infer()))]
    head["outputs"] = [{"name": name, "parameters": {"binary_data": False}} for name in names]
    found = check_outputs(succeeded(context.client.infer_binary(context.model, head, tail)))
    wanted = check_outputs(succeeded(context.infer(outputs=head["outputs"])))
    expect(_values(found) == _values(wanted), "the outputs differ")


@check("binary", "binary outputs have the sizes that their JSON part says")
def _binary_outputs(context: Context) -> None:
    head, tail = binary_request(context)
    head["parameters"] = {"binary_data_output": True}
    answer = context.client.infer_binary(context.model, head, tail)
    outputs = succeeded(answer)["outputs"]
    sizes = [output.get("parameters", {}).get("binary_data_size") for output in outputs]
    expect(all(isinstance(size, int) for size in sizes), f"binary_data_size is {sizes}")
    expect(sum(sizes) == len(answer.tail), f"the sizes are {sizes}, and {len(answer.tail)} bytes follow")
    for output, size in zip(outputs, sizes, strict=True):
        width = DATATYPES[output["datatype"]][1]
        expect(not width or size == width * math.prod(output["shape"]), f"{output['name']} has {size} bytes")


def _damaged(context: Context, change: Any) -> Answer:
    head, tail = binary_request(context)
    if not tail:
        raise Skipped("the inputs of the model are empty")
    return context.client.infer_binary(context.model, *change(head, tail))


DAMAGED: list[tuple[str, Any]] = [
    ("a truncated tail", lambda head, tail: (head, tail[:-1])),
    ("bytes after the last tensor", lambda head, tail: (head, tail + b"\0")),
    ("a header length beyond the body", lambda head, tail: (head, tail, 10**9)),
    ("a header length that cuts the JSON", lambda head, tail: (head, tail, 5)),
    ("a negative binary_data_size", lambda head, tail: (_sized(head, -1), tail)),
    ("a binary_data_size of another type", lambda head, tail: (_sized(head, "4"), tail)),
]


def _sized(head: dict[str, Any], size: Any) -> dict[str, Any]:
    first, *others = head["inputs"]
    return {**head, "inputs": [{**first, "parameters": {"binary_data_size": size}}, *others]}


def _rejects_damaged(what: str, change: Any) -> None:
    @check("binary", f"{what}: a client error with a message")
    def damaged(context: Context) -> None:
        context.rejects(_damaged(context, change), what)


for _what, _make in DAMAGED:
    _rejects_damaged(_what, _make)

# ---- extensions ----


@check("repository", "the index lists the model as ready")
def _index(context: Context) -> None:
    context.needs("model_repository")
    answer = succeeded(context.client.send("POST", "/v2/repository/index", {}))
    found = [entry for entry in answer if entry.get("name") == context.model]
    expect(any(entry.get("state") == "READY" for entry in found), f"the entries of the model are {found}")


@check("repository", "loading a model that does not exist is a client error with a message")
def _load_absent(context: Context) -> None:
    context.needs("model_repository")
    answer = context.client.send("POST", f"/v2/repository/models/{ABSENT}/load", {})
    context.rejects(answer, "load")


@check("statistics", "the statistics count a request")
def _statistics(context: Context) -> None:
    context.needs("statistics")

    def count() -> int:
        models = succeeded(context.client.get(f"/v2/models/{context.model}/stats"))["model_stats"]
        return sum(int(model["inference_stats"]["success"]["count"]) for model in models)

    before = count()
    succeeded(context.infer())
    after = count()
    if after < before + 1:
        raise Failed(f"{before} before the request, {after} after it")


@check("errors", "every error is an object with the text error")
def _error_form(context: Context) -> None:
    error_text(context.client.get(f"/v2/models/{ABSENT}"))
