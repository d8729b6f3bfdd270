"""Inference requests and answers as messages of gRPC."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from hami_serve.classification import checked_class_count
from hami_serve.datatypes import (
    DATATYPES,
    STEP,
    Array,
    array_of_bytes,
    as_bytes,
    bytes_of_array,
    checked_datatype,
    checked_integers,
    checked_shape,
)
from hami_serve.errors import BadRequest, short
from hami_serve.grpc_messages import message
from hami_serve.inference import MAX_TENSORS, Call, Inference, Output, call_of
from hami_serve.json_steps import pause
from hami_serve.model import Model

CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
WIDEST = {"b": "?", "i": "i8", "u": "u8"}  # types of arrays for typed contents, by the kind of the datatype
Request = message("ModelInferRequest")
Response = message("ModelInferResponse")
FINAL = "triton_final_response"  # a parameter of each response of a stream: whether it is the last of its request
WITH_EMPTY_FINAL = "triton_enable_empty_final_response"  # the client also wants a last response without outputs
LARGE = 1 << 16  # bytes of a message
MANY = 1 << 12  # elements of an output
MAX_FIELDS = 4 * MAX_TENSORS
LENGTH_DELIMITED = 2  # a wire type of protobuf
RAW_INPUT = Request.DESCRIPTOR.fields_by_name["raw_input_contents"].number << 3 | LENGTH_DELIMITED
RAW_OUTPUT = Response.DESCRIPTOR.fields_by_name["raw_output_contents"].number << 3 | LENGTH_DELIMITED


def call_of_message(request: Any, context: Any, raw: Sequence[bytes | memoryview]) -> Call:
    """Return the call for a message. The deadline of the client is a timeout too."""
    call = call_of(parse_request(request, raw), request.model_name, request.model_version or None)
    remaining = context.time_remaining()
    if remaining is not None:
        call.timeout = min(call.timeout, remaining) if call.timeout else remaining
    return call


def parse_request(request: Any, raw: Sequence[bytes | memoryview]) -> Inference:
    """Return the request of a message with these raw contents."""
    for kind in ("inputs", "outputs", "parameters"):
        if len(getattr(request, kind)) > MAX_TENSORS:
            raise BadRequest(f"a request has at most {MAX_TENSORS} {kind}, got {len(getattr(request, kind))}")
    return Inference(
        inputs=tensors_of(request.inputs, raw, "input"),
        parameters={key: _value(parameter) for key, parameter in request.parameters.items()},
        outputs=tuple(dict.fromkeys(output.name for output in request.outputs)),
        id=request.id,
        classes={
            output.name: checked_class_count(output.name, output.parameters["classification"].int64_param)
            for output in request.outputs
            if "classification" in output.parameters
        },
    )


def tensors_of(entries: Sequence[Any], raw: Sequence[bytes | memoryview], kind: str) -> dict[str, Array]:
    """Return tensors by name, from their entries in a message and its raw contents. `kind` is "input" or "output"."""
    if raw and len(raw) != len(entries):
        raise BadRequest(f"raw_{kind}_contents has {len(raw)} entries for {len(entries)} {kind}s; give one for each")
    found: dict[str, Array] = {}
    for index, entry in enumerate(entries):
        if not entry.name or entry.name in found:
            named = f'two {kind}s have the name "{short(entry.name)}"' if entry.name else f"every {kind} has a name"
            raise BadRequest(named)
        what = f'{kind} "{short(entry.name)}"'
        datatype = checked_datatype(what, entry.datatype)
        shape = checked_shape(what, list(entry.shape))
        if "shared_memory_region" in entry.parameters:
            raise BadRequest("this server has no shared memory; send the tensor in the request")
        found[entry.name] = (
            array_of_bytes(what, datatype, shape, memoryview(raw[index]))
            if raw
            else _array_of_contents(what, datatype, shape, entry.contents)
        )
    return found


def _array_of_contents(what: str, datatype: str, shape: tuple[int, ...], contents: Any) -> Array:
    if datatype not in CONTENTS:
        raise BadRequest(f"{what} is {datatype}, which is sent as raw contents")
    values = getattr(contents, CONTENTS[datatype])
    if len(values) != math.prod(shape):
        raise BadRequest(
            f"{what} has {len(values)} elements; its shape {short(str(list(shape)))} has {math.prod(shape)}"
        )
    array = np.empty(len(values), object if datatype == "BYTES" else WIDEST.get(DATATYPES[datatype][0].kind, "f8"))
    for start in range(0, len(values), STEP):
        array[start : start + STEP] = values[start : start + STEP]
        pause()
    if array.dtype.kind in "iu":
        array = checked_integers(what, datatype, array)
    return array.astype(DATATYPES[datatype][0], copy=False).reshape(shape)


def _value(parameter: Any) -> Any:
    choice = parameter.WhichOneof("parameter_choice")
    return getattr(parameter, choice) if choice else None


def is_long(outputs: Sequence[Output], *, raw: bool) -> bool:
    """Return whether a message for these outputs is worth another thread: it has many elements that are not views."""
    return any(output.array.size > MANY and (output.datatype == "BYTES" or not raw) for output in outputs)


def render_answer(model: Model, id: str, outputs: Sequence[Output], raw: bool) -> tuple[Any, list[bytes | memoryview]]:
    """Return the message of an answer, and its raw contents, which it does not have yet.

    There are none if `raw` is false, as it is for a request with typed contents, unless a datatype has no others.
    """
    answer = Response(model_name=model.handle.component, model_version=model.handle.version, id=id)
    contents: list[bytes | memoryview] = []
    raw = raw or any(output.datatype not in CONTENTS for output in outputs)
    for output in outputs:
        entry = answer.outputs.add(name=output.name, datatype=output.datatype, shape=output.array.shape)
        if raw:
            contents.append(bytes_of_array(output.datatype, output.array))
        else:
            flat = output.array.reshape(-1)
            contents_of = getattr(entry.contents, CONTENTS[output.datatype])
            for start in range(0, flat.size, STEP):
                values = flat[start : start + STEP]
                is_text = output.datatype == "BYTES"
                contents_of.extend(
                    map(as_bytes, values) if is_text else values.astype(DATATYPES[output.datatype][0]).tolist()
                )
                pause()
    return answer, contents


# ---- large messages: protobuf copies raw contents twice in each direction, so it does not see them ----


def split(data: bytes) -> tuple[Any, Sequence[bytes | memoryview]]:
    """Return a request, None if `data` cannot be read as one, and its raw contents.

    Those of a large message are views of `data`, and the request has none.
    """
    try:
        if len(data) > LARGE and (found := _without_raw(data)) is not None:
            rest, raw = found
            return Request.FromString(rest), raw
        request = Request.FromString(data)
    except DecodeError:  # grpcio would log it, and answer with the status UNKNOWN
        return None, ()
    return request, request.raw_input_contents


def _without_raw(data: bytes) -> tuple[bytes, list[memoryview]] | None:
    """Return the fields of a message except its raw contents, and these; None if protobuf should see all of it."""
    view = memoryview(data)
    rest: list[memoryview] = []
    raw: list[memoryview] = []
    position = 0
    while position < len(data):
        if len(rest) + len(raw) > MAX_FIELDS:
            return None
        start = position
        key, position = _varint(data, position)
        if key & 7 != LENGTH_DELIMITED:  # the messages of the protocol have no others
            return None
        size, position = _varint(data, position)
        if not 0 <= size <= len(data) - position:
            return None
        end = position + size
        if key == RAW_INPUT:
            raw.append(view[position:end])
        else:
            rest.append(view[start:end])
        position = end
    return b"".join(rest), raw


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number, and the position after it; -1 if it is not complete or too long."""
    value = 0
    for shift, byte in enumerate(data[position : position + 5]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, position + shift + 1
    return -1, position


def joined(answer: tuple[Any, Sequence[bytes | memoryview]]) -> bytes:
    """Return the bytes of an answer with its raw contents."""
    response, raw = answer
    parts: list[bytes | memoryview] = [response.SerializeToString()]
    for data in raw:
        parts += (_field(RAW_OUTPUT, len(data)), data)
    return b"".join(parts)


def _field(key: int, size: int) -> bytes:
    found = bytearray([key])
    while size > 0x7F:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    found.append(size)
    return bytes(found)
