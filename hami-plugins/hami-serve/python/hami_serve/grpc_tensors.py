"""Inference requests and answers as messages of gRPC."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from hami_serve.budget import Lease
from hami_serve.classification import checked_class_count
from hami_serve.datatypes import (
    DATATYPES,
    MAX_RANK,
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
from hami_serve.grpc_steps import LENGTH_DELIMITED, encoded, fields, merge
from hami_serve.inference import MAX_TENSORS, Call, Inference, Output, call_of
from hami_serve.json_steps import pause
from hami_serve.model import Model
from hami_serve.shared_memory import REGION, WITHOUT, Memory, Place

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
RAW_INPUT = Request.DESCRIPTOR.fields_by_name["raw_input_contents"].number << 3 | LENGTH_DELIMITED
NAMES = {  # keys of fields
    Request.DESCRIPTOR.fields_by_name[name].number << 3 | LENGTH_DELIMITED
    for name in ("model_name", "model_version", "id")
}
INFER_RESPONSE = (
    message("ModelStreamInferResponse").DESCRIPTOR.fields_by_name["infer_response"].number << 3 | LENGTH_DELIMITED
)
RAW_OUTPUT = Response.DESCRIPTOR.fields_by_name["raw_output_contents"].number << 3 | LENGTH_DELIMITED
_OUTPUT = Response.DESCRIPTOR.fields_by_name["outputs"]
OUTPUT = _OUTPUT.number << 3 | LENGTH_DELIMITED
OUTPUT_CONTENTS = _OUTPUT.message_type.fields_by_name["contents"].number << 3 | LENGTH_DELIMITED


def call_of_message(received: Received, context: Any, memory: Memory = WITHOUT) -> Call:
    """Return the call for a message. The deadline of the client is a timeout too."""
    received.read()
    request = received.message
    inference = parse_request(request, received.raw, memory)
    call = call_of(inference, request.model_name, request.model_version or None)
    remaining = context.time_remaining()
    if remaining is not None:
        call.timeout = min(call.timeout, remaining) if call.timeout else remaining
    return call


def parse_request(request: Any, raw: Sequence[bytes | memoryview], memory: Memory = WITHOUT) -> Inference:
    """Return the request of a message with these raw contents."""
    for kind in ("inputs", "outputs", "parameters"):
        if len(getattr(request, kind)) > MAX_TENSORS:
            raise BadRequest(f"a request has at most {MAX_TENSORS} {kind}, got {len(getattr(request, kind))}")
    return Inference(
        inputs=tensors_of(request.inputs, raw, "input", memory),
        parameters=_values(request.parameters),
        outputs=tuple(dict.fromkeys(output.name for output in request.outputs)),
        id=request.id,
        classes={
            output.name: checked_class_count(output.name, output.parameters["classification"].int64_param)
            for output in request.outputs
            if "classification" in output.parameters
        },
        places={
            output.name: memory.place(f'output "{short(output.name)}"', _values(output.parameters))
            for output in request.outputs
            if REGION in output.parameters
        },
    )


def tensors_of(
    entries: Sequence[Any], raw: Sequence[bytes | memoryview], kind: str, memory: Memory = WITHOUT
) -> dict[str, Array]:
    """Return tensors by name, from their entries in a message and its raw contents. `kind` is "input" or "output"."""
    count = sum(REGION not in entry.parameters for entry in entries)
    if raw and len(raw) != count:
        raise BadRequest(f"raw_{kind}_contents has {len(raw)} entries for {count} {kind}s; give one for each")
    found: dict[str, Array] = {}
    contents = iter(raw)
    for entry in entries:
        if not entry.name or entry.name in found:
            named = f'two {kind}s have the name "{short(entry.name)}"' if entry.name else f"every {kind} has a name"
            raise BadRequest(named)
        what = f'{kind} "{short(entry.name)}"'
        datatype = checked_datatype(what, entry.datatype)
        shape = checked_shape(what, entry.shape[: MAX_RANK + 1])
        if REGION in entry.parameters:
            if entry.contents.ListFields():
                raise BadRequest(f"{what} is in shared memory, and has contents; give one of them")
            found[entry.name] = array_of_bytes(
                what, datatype, shape, memory.read(what, datatype, _values(entry.parameters))
            )
            continue
        _check_contents(what, datatype, entry.contents, bool(raw))
        found[entry.name] = (
            array_of_bytes(what, datatype, shape, memoryview(next(contents)))
            if raw
            else _array_of_contents(what, datatype, shape, entry.contents)
        )
    return found


def _check_contents(what: str, datatype: str, contents: Any, raw: bool) -> None:
    """Check that a tensor has no elements in a field that is not read."""
    for field, _ in contents.ListFields():
        if raw:
            raise BadRequest(f"{what} has {field.name} and raw contents; give one of them")
        if datatype in CONTENTS and field.name != CONTENTS[datatype]:
            raise BadRequest(f"{what} is {datatype}, whose elements are {CONTENTS[datatype]}, and has {field.name}")


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


def _values(parameters: Any) -> dict[str, Any]:
    return {key: _value(parameter) for key, parameter in parameters.items()}


def _value(parameter: Any) -> Any:
    choice = parameter.WhichOneof("parameter_choice")
    return getattr(parameter, choice) if choice else None


def is_long(outputs: Sequence[Output], *, raw: bool) -> bool:
    """Return whether a message for these outputs is worth another thread: it has many elements that are not views."""
    return any(output.array.size > MANY and (output.datatype == "BYTES" or not raw) for output in outputs)


def render_answer(
    model: Model, id: str, outputs: Sequence[Output], raw: bool, places: Mapping[str, Place] | None = None
) -> tuple[Any, list[bytes | memoryview]]:
    """Return the message of an answer, and the bytes of its fields that follow: raw contents, and long outputs.

    There are no raw contents if `raw` is false, as it is for a request with typed contents, unless a datatype has no
    others.
    """
    answer = Response(model_name=model.handle.component, model_version=model.handle.version, id=id)
    fields: list[bytes | memoryview] = []
    raw = raw or any(output.datatype not in CONTENTS for output in outputs)
    long = is_long(outputs, raw=raw)
    for output in outputs:
        named = {"name": output.name, "datatype": output.datatype, "shape": output.array.shape}
        if place := (places or {}).get(output.name):
            data = bytes_of_array(output.datatype, output.array)
            place.write(f'output "{output.name}"', data)
            entry = answer.outputs.add(**named)
            for key, value in place.parameters(len(data)).items():
                setattr(entry.parameters[key], "string_param" if key == REGION else "int64_param", value)
            if raw:
                fields.append(encoded(RAW_OUTPUT, 0))  # clients find the contents of an output by its place
        elif raw:
            answer.outputs.add(**named)
            data = bytes_of_array(output.datatype, output.array)
            fields += (encoded(RAW_OUTPUT, len(data)), data)
        elif long:
            parts = _typed(Response().outputs.add(**named), output)
            fields += (encoded(OUTPUT, sum(map(len, parts))), *parts)
        else:
            _extend(answer.outputs.add(**named).contents, output.datatype, output.array.reshape(-1))
    return answer, fields


def _typed(entry: Any, output: Output) -> list[bytes]:
    """Return the bytes of an output with typed contents, which protobuf would write in one step.

    A field of the contents may come in several parts, which each reader of protobuf joins.
    """
    flat, parts = output.array.reshape(-1), []
    for start in range(0, flat.size, STEP):
        contents = type(entry.contents)()
        _extend(contents, output.datatype, flat[start : start + STEP])
        parts.append(contents.SerializeToString())
        pause()
    return [entry.SerializeToString(), encoded(OUTPUT_CONTENTS, sum(map(len, parts))), *parts]


def _extend(contents: Any, datatype: str, values: Array) -> None:
    is_text = datatype == "BYTES"
    getattr(contents, CONTENTS[datatype]).extend(
        map(as_bytes, values) if is_text else values.astype(DATATYPES[datatype][0]).tolist()
    )


# ---- large messages: protobuf copies raw contents twice in each direction, so it does not see them ----


class Received:
    """A request as it has come.

    Attributes:
        message: It, without what is long until `read` has ended. The name and version of its model are there.
        raw: Its raw contents. Those of a large request are views of what has come, and `message` has none.
        size: Its bytes.
        lease: What it has of the memory of open requests.
    """

    __slots__ = ("_rest", "lease", "message", "raw", "size")

    def __init__(self, data: bytes, lease: Lease | None) -> None:
        self.size = len(data)
        self.lease = lease
        self._rest = b""
        if len(data) <= LARGE:
            self.message = Request.FromString(data)
            self.raw: Sequence[bytes | memoryview] = self.message.raw_input_contents
            return
        names, rest, self.raw = _without_raw(data)
        if len(names) > LARGE:
            raise BadRequest(
                f"the model, its version and the id have {len(names)} bytes together; give at most {LARGE}"
            )
        self.message = Request.FromString(names)
        if len(rest) <= LARGE:
            self.message.MergeFromString(rest)
        else:
            self._rest = rest

    @property
    def is_long(self) -> bool:
        """Whether `read` is to be called, on another thread."""
        return bool(self._rest)

    @property
    def is_raw(self) -> bool:
        """Whether the client takes raw contents: it has sent some, or a tensor in shared memory, which are such."""
        return bool(self.raw) or any(REGION in entry.parameters for entry in self.message.inputs)

    def read(self) -> None:
        """Read the rest in steps.

        Raises:
            BadRequest: It is not a request, or it has too many fields.
        """
        try:
            rest, self._rest = self._rest, b""
            merge(self.message, memoryview(rest))
        except DecodeError:
            raise unreadable(Request) from None


def unreadable(kind: Any) -> BadRequest:
    """Return the error for bytes that are not a message of this kind."""
    return BadRequest(f"the message is not a {kind.DESCRIPTOR.name}, or it is not complete")


def receive(data: bytes, lease: Lease | None = None) -> Received | BadRequest:
    """Return a request, or why it cannot be read: for an exception, grpcio would answer with the status UNKNOWN."""
    try:
        return Received(data, lease)
    except DecodeError:
        return unreadable(Request)
    except BadRequest as error:
        return error.with_traceback(None)  # which has the message


def _without_raw(data: bytes) -> tuple[bytes, bytes, list[memoryview]]:
    """Return the fields of a message that are texts, the others, and its raw contents."""
    view = memoryview(data)
    names: list[memoryview] = []
    rest: list[memoryview] = []
    raw: list[memoryview] = []
    for key, start, content, end in fields(data):
        if key == RAW_INPUT:
            raw.append(view[content:end])
        else:
            (names if key in NAMES else rest).append(view[start:end])
    return b"".join(names), b"".join(rest), raw


def joined(answer: tuple[Any, Sequence[bytes | memoryview]]) -> bytes:
    """Return the bytes of an answer with the fields that follow its message."""
    message, fields = answer
    return b"".join([message.SerializeToString(), *fields])


def joined_of_stream(answer: tuple[Any, Sequence[bytes | memoryview]]) -> bytes:
    """Return the bytes of a response of a stream that has this answer."""
    message, fields = answer
    parts = [message.SerializeToString(), *fields]
    return b"".join([encoded(INFER_RESPONSE, sum(map(len, parts))), *parts])
