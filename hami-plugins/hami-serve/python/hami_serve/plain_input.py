"""The body of a request without a protocol: plain JSON, a form with files, or the input itself."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hami_serve.building import RESERVED, request_of
from hami_serve.datatypes import DATATYPES, Array, array_of_bytes, array_of_json, element_as, elements_as
from hami_serve.errors import BadRequest, UnknownContentType, short
from hami_serve.forms import Field, parse_form
from hami_serve.http_generate import DATATYPES_OF_JSON, fitting_shape
from hami_serve.http_tensors import may_be_json, parse_value
from hami_serve.inference import Bound, as_taken, check_inputs, rows_of
from hami_serve.model import Model, TensorSpec
from hami_serve.pictures import media_type

Body = bytes | bytearray | memoryview
FORM = "multipart/form-data"
OF_CURL = "application/x-www-form-urlencoded"  # which curl says of every body that it is not asked about
RAW = ("image/", "audio/", "video/", "text/", "application/octet-stream", "application/pdf")
ACCEPTED = f"application/json, {FORM}, image/*, text/plain, application/octet-stream"
MOST_DEPTH = 256  # lists and objects in each other


class Given(NamedTuple):
    """The values of a body: inputs by name, or one value, which may be either."""

    value: Any
    by_name: bool


def read(kind: str, body: Body) -> Given:
    """Return the values of a body, by its content type.

    Raises:
        UnknownContentType: The type is missing, or is not one of those that a model can take.
        BadRequest: The body is not of this type.
    """
    media = kind.partition(";")[0].strip().lower()
    if media == FORM:
        return Given(parse_form(kind, body), by_name=True)
    if media == "application/json" or media.endswith("+json") or (media in ("", OF_CURL) and may_be_json(body)):
        return Given(decoded(parse_value(body, "the request")), by_name=False)
    if media.startswith("text/"):
        try:
            return Given(bytes(body).decode("utf-8"), by_name=False)
        except UnicodeDecodeError as error:
            raise BadRequest(f"the body is {short(media)}, and not valid UTF-8: {error}") from None
    if media.startswith(RAW):
        return Given(bytes(body), by_name=False)
    raise UnknownContentType(f"{_type_given(media, body)}; this server accepts {ACCEPTED}")


def _type_given(media: str, body: Body) -> str:
    given = f'the Content-Type is "{short(media)}"' if media else "the request has no Content-Type"
    found = media_type(bytes(body[:16]))
    return f"{given}, and the body is {found}: send Content-Type: {found}" if found else given


def not_json(media: str, body: Body) -> BadRequest:
    """Return the error of a request of the protocol whose body is not JSON."""
    if not body:
        return BadRequest("the request is empty; it is a JSON object with inputs")
    if media == FORM:
        return BadRequest(f"a request of the protocol is JSON, got {FORM}; send the form to POST /NAME")
    return BadRequest(
        f"the request is not valid JSON: {_type_given(media, body)}; a body that is the input itself has the "
        "Content-Type image/*, text/plain or application/octet-stream"
    )


def decoded(value: Any, depth: int = 0) -> Any:
    """Return a value of JSON in which each {"base64": "…"} is the bytes that it means."""
    if depth > MOST_DEPTH:
        raise BadRequest(f"the request is nested more than {MOST_DEPTH} times")
    if isinstance(value, str):
        if not value.isascii():
            _check_unicode(value)
        return value
    if isinstance(value, list):
        return [decoded(each, depth + 1) if isinstance(each, (str, list, dict)) else each for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"base64"}:
        return _bytes(value["base64"])
    return {decoded(key): decoded(each, depth + 1) for key, each in value.items()}


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"the request has a string that is not valid Unicode: {short(str(error))}") from None


def _bytes(text: object) -> bytes:
    if isinstance(text, str):
        data = text.partition(",")[2] if text.startswith("data:") else text  # browsers make such URLs of files
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise BadRequest(f'{{"base64": …}} has the base64 of bytes, or a data URL with it, got {short(text)}')


def bind(given: Given, model: Model) -> Bound:
    """Return the request of a pipe for the values: what the model declares decides the form of each input."""
    specs = model.inputs
    value = given.value
    by_name = given.by_name or (isinstance(value, dict) and (len(specs) != 1 or specs[0].name in value))
    if not specs:
        if not by_name:
            return Bound({"data": _plain("data", value, model)}, 1)
        return Bound(request_of({name: _plain(name, each, model) for name, each in value.items()}), 1)
    if not by_name:
        if len(specs) > 1:
            names = ", ".join(spec.name for spec in specs)
            raise BadRequest(
                f'the body is one value, and model "{model.handle.component}" has the inputs {names}; send a JSON '
                f"object or {FORM} with each by its name"
            )
        value = {spec.name: value for spec in specs}  # which is one
    declared = {spec.name: spec for spec in specs}
    others = [name for name in value if model.takes_keys and name not in declared and name not in RESERVED]
    keys = {name: _plain(name, value[name], model) for name in others}
    inputs = {name: _array(name, each, declared.get(name)) for name, each in value.items() if name not in keys}
    check_inputs(model, inputs)
    taken = as_taken(model, inputs, None)
    if model.takes_rows and any(isinstance(value[name], list) for name in declared):
        return Bound(keys, rows_of(model, inputs), taken)
    return Bound(keys | request_of(taken), rows_of(model, inputs))


def _plain(name: str, value: Any, model: Model) -> Any:
    value = str(value) if isinstance(value, Field) else value
    return element_as(f'input "{short(name)}"', value, model.takes_text(name))


def _array(name: str, value: Any, spec: TensorSpec | None) -> Array:
    what = f'input "{short(name)}"'
    datatype = spec.datatype if spec is not None and spec.datatype else _datatype(value)
    shape = spec.shape if spec is not None else ()
    if datatype == "BYTES":
        return _fitted(_texts(what, value), shape)
    if isinstance(value, bytes):
        return of_raw(what, datatype, shape, value)
    if isinstance(value, Field):
        value = parse_value(value.encode(), f"{what}, which is {datatype},")
    return _fitted(array_of_json(what, datatype, _shape_of(value), value), shape)


def _datatype(value: Any) -> str:
    while isinstance(value, list) and value:
        value = value[0]
    return DATATYPES_OF_JSON.get(type(value), "BYTES")


def _shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of a nested list; that its rows have equal lengths is checked when it is converted."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return tuple(shape)


def _texts(what: str, value: Any) -> Array:
    """Return an array of texts, and of bytes as they are."""
    values = value if isinstance(value, list) else [value]
    if not any(isinstance(each, bytes) for each in values):
        given = str(value) if isinstance(value, Field) else value
        return elements_as(what, array_of_json(what, "BYTES", _shape_of(value), given), is_text=True)
    if wrong := [each for each in values if not isinstance(each, (bytes, str))]:
        raise BadRequest(f"{what} is a list of texts or bytes, got {short(wrong[0])}")
    array = np.empty(len(values), object)
    array[:] = values
    return array if isinstance(value, list) else array.reshape(())


def _fitted(array: Array, declared: tuple[int, ...]) -> Array:
    """Return an array in the declared number of axes: a value, a flat list, and one row without its axis fit too.

    If the sizes do not fit, the check of the inputs says what was expected.
    """
    if array.ndim == len(declared):
        return array
    if array.ndim <= 1:
        return array.reshape(fitting_shape(declared, array.size))
    return array[None] if array.ndim == len(declared) - 1 and declared[0] in (-1, 1) else array


def array_of_body(what: str, spec: TensorSpec, body: bytes) -> Array:
    """Return the tensor that a body is: one element of BYTES, or numbers."""
    if spec.datatype not in ("", "BYTES"):
        return of_raw(what, spec.datatype, spec.shape, body)
    element = np.empty(1, object)
    element[0] = body
    return _fitted(element, spec.shape)


def of_raw(what: str, datatype: str, shape: tuple[int, ...], data: bytes) -> Array:
    """Return a tensor of numbers from its bytes; its only variable size follows from their number."""
    if (found := media_type(data)) and found.startswith("image/"):
        raise BadRequest(
            f"{what} is {datatype} of shape {list(shape)}, and the body is a picture, {found}; send numbers, or serve "
            "a pipeline that decodes pictures"
        )
    if shape.count(-1) > 1:
        raise BadRequest(f"{what} has the shape {list(shape)}; a raw body needs at most one variable size")
    count = len(data) // DATATYPES[datatype][1]
    for known in shape:
        count = count // known if known > 0 else count
    return array_of_bytes(what, datatype, tuple(count if size == -1 else size for size in shape), memoryview(data))


def parameters_of_query(query: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of a request that are in its URL."""
    found: dict[str, Any] = dict(query)
    if "deadline" in found:
        try:
            found["deadline"] = float(found["deadline"])
        except ValueError:
            raise BadRequest(f"the deadline is in seconds since 1970, got {short(found['deadline'])}") from None
    return found
