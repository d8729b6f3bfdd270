"""The body of an inference request and of its answer over HTTP: JSON, and the tensors that follow it as bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from starlette.types import Receive, Scope, Send

from hami_serve.classification import checked_class_count
from hami_serve.datatypes import (
    Array,
    array_of_bytes,
    array_of_json,
    bytes_of_array,
    checked_datatype,
    checked_shape,
    json_of_array,
)
from hami_serve.errors import BadRequest, short
from hami_serve.http_body import EXTENSION, SHORT
from hami_serve.inference import MAX_TENSORS, Inference, Output
from hami_serve.json_steps import MANY, decode, encode_steps, written
from hami_serve.model import Model
from hami_serve.shared_memory import REGION, WITHOUT, Memory, Place

JOINED = 1 << 16  # bytes of an answer; above that, a copy costs more than a system call
HEADER_LENGTH = "inference-header-content-length"
REQUIRED = {"name", "datatype"}  # keys of an input
LONG = 1 << 16  # characters of texts of an output: JSON of more is made on another thread
MAX_DIGITS = 19  # of a number in a header
MAX_NUMBER = 25  # bytes of a number in JSON, with a comma: -1.7976931348623157e+308,
MAX_ESCAPE = 6  # bytes of a character in JSON: \u0000
# Programs of .NET and PowerShell begin UTF-8 with a byte order mark.
BEGIN_OF_JSON = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*([\[{])")
Parameters = Mapping[str, Any]


@dataclass
class HttpInference(Inference):
    """A request over HTTP, and which of its outputs the client wants as bytes."""

    binary: Mapping[str, bool] = None  # type: ignore[assignment]
    all_binary: bool = False


def parse_value(data: bytes | bytearray | memoryview, what: str) -> Any:
    """Return a value of JSON."""
    raw = bytes(data)
    try:
        return decode(raw.decode(json.detect_encoding(raw), "surrogatepass").removeprefix("\ufeff"))
    except RecursionError:
        raise BadRequest(f"{what} is nested too deep") from None
    except ValueError as error:
        raise BadRequest(f"{what} is not valid JSON: {short(str(error))}") from None


def parse_json(data: bytes | bytearray | memoryview, what: str) -> dict[str, Any]:
    """Return a JSON object."""
    value = parse_value(data, what)
    if not isinstance(value, dict):
        raise BadRequest(f"{what} is a JSON object, got {short(value)}")
    return value


def may_be_json(body: bytes | bytearray | memoryview) -> bool:
    """Return whether a body begins as a list or an object of JSON does, maybe after a byte order mark."""
    return BEGIN_OF_JSON.match(body) is not None


def is_request(body: bytes | bytearray | memoryview) -> bool:
    """Return whether text is a request of the protocol: an object whose inputs have names and datatypes."""
    begin = BEGIN_OF_JSON.match(body)
    if begin is None or begin[1] != b"{":
        return False
    try:
        inputs = parse_json(body, "the text").get("inputs")
    except BadRequest:
        return False
    return isinstance(inputs, list) and all(
        isinstance(each, dict) and {"name", "datatype"} <= each.keys() for each in inputs
    )


def is_long_to_parse(
    headers: Mapping[bytes, bytes], body: bytes | bytearray | memoryview, *, regions: bool = False
) -> bool:
    """Return whether a request is worth another thread: its JSON is long, or it has many strings.

    So is one with tensors in shared memory, if the server has `regions`.
    """
    given = headers.get(HEADER_LENGTH.encode())
    size = len(body)
    if given is not None and given.isdigit() and len(given) <= MAX_DIGITS:
        size = min(size, int(given))
    if size > SHORT:
        return True
    head = bytes(body[:size])
    return (len(body) > SHORT and b'"BYTES"' in head) or (regions and REGION.encode() in head)


def is_long_to_render(inference: HttpInference, outputs: Sequence[Output]) -> bool:
    return any(
        is_long(output) and (output.datatype == "BYTES" or not inference.binary.get(output.name, inference.all_binary))
        for output in outputs
    )


def size_to_render(inference: HttpInference, outputs: Sequence[Output]) -> int:
    """Return the bytes at most of outputs in JSON: their elements, which are not in memory yet."""
    in_json = (each for each in outputs if not inference.binary.get(each.name, inference.all_binary))
    return sum(
        MAX_ESCAPE * _characters(each) if each.datatype == "BYTES" else MAX_NUMBER * each.array.size for each in in_json
    )


def is_long(output: Output) -> bool:
    """Return whether the elements of an output are long in JSON: they are many, or long texts."""
    if output.array.size > MANY or output.datatype != "BYTES":
        return output.array.size > MANY
    return _characters(output) > LONG


def _characters(output: Output) -> int:
    return sum(len(text) for text in output.array.flat if isinstance(text, (str, bytes)))


def require_one_length(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Check that the length of the JSON part is given once: a proxy may believe another one than this server."""
    given = [value.decode("latin-1") for name, value in headers if name == HEADER_LENGTH.encode()]
    if len(given) > 1:
        raise BadRequest(f"Inference-Header-Content-Length is given {len(given)} times: {short(given)}; send it once")


def header_length(given: bytes | None, size: int) -> int:
    """Return the number of bytes of the JSON part; without the header, the whole body is JSON."""
    if given is None:
        return size
    if not given.isdigit() or len(given) > MAX_DIGITS or int(given) > size:
        raise BadRequest(
            f"Inference-Header-Content-Length is {short(given.decode('latin-1'))}; "
            f"it is the length of the JSON part, 0 to {size} here"
        )
    return int(given)


def parse_request(body: bytes | bytearray | memoryview, length: int, memory: Memory = WITHOUT) -> HttpInference:
    """Return the request of a body whose first `length` bytes are JSON."""
    head = parse_json(memoryview(body)[:length], "the request")
    inputs = tensors_of(_list(head, "inputs"), memoryview(body)[length:], "input", memory)
    parameters = parameters_of(head, "the request")
    outputs, binary, classes, places = _outputs(head, memory)
    return HttpInference(
        inputs=inputs,
        parameters=parameters,
        outputs=outputs,
        id=id_of(head),
        classes=classes,
        places=places,
        binary=binary,
        all_binary=parameters.get("binary_data_output") is True,
    )


def tensors_of(
    entries: Sequence[Mapping[str, Any]], tail: memoryview, kind: str, memory: Memory = WITHOUT
) -> dict[str, Array]:
    """Return tensors by name, from their entries in JSON and the bytes after it. `kind` is "input" or "output"."""
    position = 0
    found: dict[str, Array] = {}
    for entry in entries:
        name = _name(entry, kind)
        what = f'{kind} "{short(name)}"'
        if name in found:
            raise BadRequest(f'two {kind}s have the name "{short(name)}"')
        datatype = checked_datatype(what, entry.get("datatype"))
        shape = checked_shape(what, entry.get("shape"))
        parameters = parameters_of(entry, what)
        if REGION in parameters:
            memory.regions.check_enabled()
            if "data" in entry or "binary_data_size" in parameters:
                raise BadRequest(f"{what} is in shared memory, and has data; give one of them")
            found[name] = array_of_bytes(what, datatype, shape, memory.read(what, datatype, parameters))
            continue
        if "binary_data_size" not in parameters:
            if "data" not in entry:
                raise BadRequest(f"{what} has neither data nor the parameter binary_data_size")
            found[name] = array_of_json(what, datatype, shape, entry["data"])
            continue
        if entry.get("data"):
            raise BadRequest(f"{what} has data and the parameter binary_data_size; give one of them")
        size = parameters["binary_data_size"]
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(tail) - position:
            raise BadRequest(
                f"{what} has the binary_data_size {short(size)}; "
                f"{len(tail) - position} bytes of the body are left for it"
            )
        found[name] = array_of_bytes(what, datatype, shape, tail[position : position + size])
        position += size
    if position != len(tail):
        raise BadRequest(f"the body has {len(tail) - position} bytes after its last tensor")
    return found


def _outputs(
    head: Mapping[str, Any], memory: Memory
) -> tuple[tuple[str, ...], dict[str, bool], dict[str, int], dict[str, Place]]:
    names, binary, classes, places = [], {}, {}, {}
    for entry in _list(head, "outputs"):
        name = _name(entry, "output")
        parameters = parameters_of(entry, f'output "{short(name)}"')
        if REGION in parameters:
            places[name] = memory.place(f'output "{short(name)}"', parameters)
        classes[name] = checked_class_count(name, parameters.get("classification", 0))
        names.append(name)
        if "binary_data" in parameters:
            binary[name] = parameters["binary_data"] is True
    return tuple(dict.fromkeys(names)), binary, classes, places


def list_of(head: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    """Return a list of objects in JSON."""
    value = head.get(key)
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise BadRequest(f"{key} is a list of objects, got {short(value)}")
    return value


def _list(head: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    value = list_of(head, key) if head.get(key) else []
    if len(value) > MAX_TENSORS:
        raise BadRequest(f"a request has at most {MAX_TENSORS} {key}, got {len(value)}")
    return value


def _name(entry: Mapping[str, Any], what: str) -> str:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise BadRequest(f"every {what} has a name, got {short(name)}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"the name of an {what} is not valid Unicode: {short(name)}") from None
    return name


def parameters_of(entry: Mapping[str, Any], what: str) -> Parameters:
    value = entry.get("parameters") or {}
    if not isinstance(value, dict):
        raise BadRequest(f"the parameters of {what} are an object, got {short(value)}")
    return value


def id_of(head: Mapping[str, Any]) -> str:
    value = head.get("id")
    if value is None:  # as some clients write a request without an id
        return ""
    if not isinstance(value, str):
        raise BadRequest(f"the id of a request is a string, got {short(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"the id of a request is Unicode text, got {short(ascii(value))}") from None
    return value


def render_answer(model: Model, inference: HttpInference, outputs: Sequence[Output]) -> list[bytes | memoryview]:
    """Return the body of an answer: its JSON part, and the tensors that follow it as bytes."""
    entries: list[dict[str, Any]] = []
    long: dict[int, bytes] = {}  # JSON of the data of an output, by its index
    tail: list[bytes | memoryview] = []
    for output in outputs:
        entry: dict[str, Any] = {"name": output.name, "datatype": output.datatype, "shape": list(output.array.shape)}
        if place := inference.places.get(output.name):
            data = bytes_of_array(output.datatype, output.array)
            place.write(f'output "{output.name}"', data)
            entry["parameters"] = place.parameters(len(data))
        elif inference.binary.get(output.name, inference.all_binary):
            data = bytes_of_array(output.datatype, output.array)
            entry["parameters"] = {"binary_data_size": len(data)}
            tail.append(data)
        elif is_long(output):
            long[len(entries)] = long_data(output)
        else:
            entry["data"] = json_of_array(output.name, output.datatype, output.array)
        entries.append(entry)
    answer: dict[str, Any] = {"model_name": model.handle.component, "model_version": model.handle.version}
    if inference.id:
        answer["id"] = inference.id
    if not long:
        return [_bytes({**answer, "outputs": entries}), *tail]
    texts = [_bytes(entry) for entry in entries]
    for index, data in long.items():
        texts[index] = b'%b,"data":%b}' % (texts[index][:-1], data)
    return [b'%b,"outputs":[%b]}' % (_bytes(answer)[:-1], b",".join(texts)), *tail]


def long_data(output: Output) -> bytes:
    """Return the elements of an output as JSON, made in steps."""
    parts = np.array_split(output.array.reshape(-1), 1 + output.array.size // MANY)
    return encode_steps(json_of_array(output.name, output.datatype, part) for part in parts)


def _bytes(value: Mapping[str, Any]) -> bytes:
    return written(value)


class TensorAnswer:
    """An answer to an inference request: JSON, and the tensors that follow it.

    Large tensors go to the server as they are in memory, if it takes views. Other servers take one `bytes` object.
    """

    def __init__(self, parts: list[bytes | memoryview]) -> None:
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = self._parts
        size = sum(map(len, parts))
        headers = [(b"content-length", b"%d" % size)]
        if len(parts) == 1:
            headers.append((b"content-type", b"application/json"))
        else:
            headers.append((b"content-type", b"application/octet-stream"))
            headers.append((HEADER_LENGTH.encode(), b"%d" % len(parts[0])))
            if size <= JOINED or EXTENSION not in scope.get("extensions", ()):
                parts = [b"".join(parts)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for part in parts[:-1]:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": parts[-1]})
