"""The datatypes of the Open Inference Protocol, and tensors of each as bytes and as numpy arrays.

BF16 is float32 in a pipe, because numpy has no such type. Elements of BYTES are `bytes` in an array of objects, which
`elements_as` makes `str` for models that take text. On the wire, numbers are little-endian, and an element of BYTES is
its length in four bytes and then the bytes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from hami_serve.errors import BadRequest, ModelFailed, short, text_of
from hami_serve.json_steps import CONSTANTS, MINUS_ZERO, pause, release

Array = np.ndarray[Any, Any]
DATATYPES: dict[str, tuple[np.dtype[Any], int]] = {  # the type of the array, bytes of an element on the wire
    "BOOL": (np.dtype(np.bool_), 1),
    "UINT8": (np.dtype(np.uint8), 1),
    "UINT16": (np.dtype("<u2"), 2),
    "UINT32": (np.dtype("<u4"), 4),
    "UINT64": (np.dtype("<u8"), 8),
    "INT8": (np.dtype(np.int8), 1),
    "INT16": (np.dtype("<i2"), 2),
    "INT32": (np.dtype("<i4"), 4),
    "INT64": (np.dtype("<i8"), 8),
    "FP16": (np.dtype("<f2"), 2),
    "FP32": (np.dtype("<f4"), 4),
    "FP64": (np.dtype("<f8"), 8),
    "BF16": (np.dtype("<f4"), 2),
    "BYTES": (np.dtype(object), 0),
}
TEXT = "STRING"  # in a configuration: BYTES that the model takes as `str`
_NAMES = {dtype: name for name, (dtype, _) in DATATYPES.items() if name != "BF16"}
DATATYPE_OF_NAME = {**{dtype.name: name for dtype, name in _NAMES.items()}, "bfloat16": "BF16"}
MAX_RANK = 32  # axes; numpy 1 has no more
MAX_ELEMENTS = 1 << 48  # of a tensor; no request has as many, and no product of sizes is larger than numpy's integers
MAX_ELEMENT = (1 << 32) - 1  # bytes of an element of BYTES, whose length has four bytes
STEP = 1 << 12  # elements that are converted at once, see json_steps
LITERALS = {None: "null", True: "true", False: "false"}
ELEMENTS: dict[str, set[type]] = {  # of a list in JSON, by the kind of its array
    "b": {bool},
    "i": {int},
    "u": {int},
    "f": {int, float, type(None)},
}


def datatype_of(array: Array) -> str | None:
    """Return the datatype of an array; None if the protocol has none for it."""
    if array.dtype.kind in "OSU":
        return "BYTES"
    return _NAMES.get(array.dtype.newbyteorder("<") if array.dtype.itemsize > 1 else array.dtype)


# In the functions below, `what` is how messages name the tensor: 'input "x"'.


def checked_datatype(what: str, datatype: object) -> str:
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise BadRequest(f"{what} has the datatype {short(datatype)}; known: {', '.join(DATATYPES)}")
    return datatype


def checked_shape(what: str, shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple; every size is from 0 on, and a tensor of the shape has at most `MAX_ELEMENTS`."""
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Sequence) or len(shape) > MAX_RANK:
        raise BadRequest(f"{what} needs a shape of at most {MAX_RANK} sizes, got {short(shape)}")
    elements = 1  # of the shape without its zeros, which numpy limits too
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MAX_ELEMENTS:
            raise BadRequest(
                f"{what} has the size {_shown_value(size)} in its shape; sizes are ints from 0 to {MAX_ELEMENTS}"
            )
        elements *= size or 1
        if elements > MAX_ELEMENTS:
            raise BadRequest(f"{what} has a shape of more than {MAX_ELEMENTS} elements: {_shown(tuple(shape))}")
    return tuple(shape)


def array_of_bytes(what: str, datatype: str, shape: tuple[int, ...], data: memoryview) -> Array:
    """Return a tensor from the bytes that it has on the wire; without a copy if they are aligned."""
    dtype, size = DATATYPES[datatype]
    count = math.prod(shape)
    if datatype == "BYTES":
        return _texts(what, count, data).reshape(shape)
    if len(data) != count * size:
        raise BadRequest(
            f"{what} has {len(data)} bytes; {datatype} of shape {_shown(shape)} has {short(str(count * size))}"
        )
    if datatype == "BF16":
        wide = np.frombuffer(data, "<u2").astype("<u4") << 16
        array: Array = wide.view(dtype)
        return array.reshape(shape)
    if datatype == "BOOL":
        flags: Array = np.frombuffer(data, np.uint8) != 0
        return flags.reshape(shape)
    array = np.frombuffer(data, dtype)
    return (array if array.flags.aligned and array.flags.writeable else array.copy()).reshape(shape)


def _texts(what: str, count: int, data: memoryview) -> Array:
    if 4 * count > len(data):
        raise BadRequest(f"{what} has {len(data)} bytes, too few for {short(str(count))} elements of BYTES")
    texts = np.empty(count, object)
    position = 0
    for index in range(count):
        if not (index + 1) % STEP:
            pause()
        start = position + 4
        if start > len(data):
            raise BadRequest(f"{what} ends before element {index} of BYTES")
        (length,) = struct.unpack_from("<I", data, position)
        position = start + length
        if position > len(data):
            raise BadRequest(f"{what}: element {index} of BYTES has {length} bytes, and {len(data) - start} are left")
        texts[index] = bytes(data[start:position])
    if position != len(data):
        raise BadRequest(f"{what} has {len(data) - position} bytes after its last element")
    return texts


def elements_as(what: str, array: Array, is_text: bool | None) -> Array:
    """Return the elements of BYTES as `str`, as `bytes`, or (None) as they are.

    Raises:
        BadRequest: An element is not UTF-8.
    """
    if is_text is None:
        return array
    found: Array = np.empty(array.size, object)
    for index, element in enumerate(array.flat):
        if not (index + 1) % STEP:
            pause()
        found[index] = element_as(what, element, is_text, index)
    shaped: Array = found.reshape(array.shape)
    return shaped


def element_as(what: str, element: Any, is_text: bool | None, index: int = 0) -> Any:
    if is_text is False:
        return element.encode() if isinstance(element, str) else element
    if is_text is None or not isinstance(element, bytes):
        return element
    try:
        return element.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(
            f"{what}: element {index} is not text in UTF-8: {error.reason} at byte {error.start}; send text, or "
            'let the model declare the input with datatype = "BYTES"'
        ) from None


def array_of_json(what: str, datatype: str, shape: tuple[int, ...], data: Any) -> Array:
    """Return a tensor from JSON: a flat list, or a nested one in row-major order; a tensor without axes is a value."""
    if not isinstance(data, list):
        if shape:
            raise BadRequest(f"the data of {what} is a list, got {short(data)}")
        data = [data]
    flat = _flat(what, data)
    try:
        count = math.prod(shape)
        if len(flat) != count:
            raise BadRequest(f"{what} has {len(flat)} elements; its shape {_shown(shape)} has {count}")
        if count <= STEP:
            return _elements(what, datatype, flat).reshape(shape)
        array = np.empty(count, DATATYPES[datatype][0])
        for start in range(0, count, STEP):
            array[start : start + STEP] = _elements(what, datatype, flat[start : start + STEP])
            pause()
        return array.reshape(shape)
    finally:
        if len(flat) > STEP:
            release(flat)


def _elements(what: str, datatype: str, flat: list[Any]) -> Array:
    return _strings(what, flat) if datatype == "BYTES" else _numbers(what, datatype, flat)


def _flat(what: str, data: list[Any]) -> list[Any]:
    """Return the elements of a list, which may be nested if all lists of a level have the same length."""
    for _ in range(MAX_RANK):
        if not any(list in set(map(type, data[start : start + STEP])) for start in range(0, len(data), STEP)):
            return data
        if any(type(each) is not list or len(each) != len(data[0]) for each in data):
            raise BadRequest(f"the data of {what} is not a regular list: its rows have different lengths")
        rows, data = data, [each for row in data for each in row]
        if len(data) > STEP:
            release(rows, 1 + STEP * len(rows) // len(data))
    raise BadRequest(f"the data of {what} is nested more than {MAX_RANK} times")


def _strings(what: str, flat: list[Any]) -> Array:
    wrong = next((each for each in flat if type(each) is not str), None) if {*map(type, flat)} - {str} else ""
    if not isinstance(wrong, str):
        raise BadRequest(f"{what} is BYTES; its elements are strings, got {short(wrong)}")
    array = np.empty(len(flat), object)
    try:
        array[:] = [each.encode() for each in flat]
    except UnicodeEncodeError as error:
        raise BadRequest(f"{what} has a string that is not valid Unicode: {short(str(error))}") from None
    return array


def _numbers(what: str, datatype: str, flat: list[Any]) -> Array:
    dtype = DATATYPES[datatype][0]
    kinds = set(map(type, flat))
    if dtype.kind in "iu" and float in kinds:
        flat = [0 if each is MINUS_ZERO else each for each in flat]
        kinds = set(map(type, flat))
    if wrong := kinds - ELEMENTS[dtype.kind]:
        value = next(each for each in flat if type(each) in wrong)
        why = "; JSON has no NaN for integers" if value is None and dtype.kind in "iu" else ""
        raise BadRequest(f"{what} is {datatype}, and has the element {_shown_value(value)}{why}")
    if dtype.kind == "b":
        return np.array(flat, dtype)
    if dtype.kind in "iu":
        return _integers(what, datatype, flat)
    if type(None) in kinds:  # NaN, as this server and KServe write it
        flat = [CONSTANTS["NaN"] if each is None else each for each in flat]
    try:
        wide = np.array(flat, np.float64)
    except OverflowError:
        raise _out_of_range(what, datatype, max(flat, key=abs)) from None
    with np.errstate(over="ignore"):
        array: Array = wide.astype(dtype)
    for index in np.flatnonzero(np.isinf(array)):
        if not any(flat[index] is each for each in CONSTANTS.values()):
            raise _out_of_range(what, datatype, flat[index])
    return array


def _integers(what: str, datatype: str, flat: list[Any]) -> Array:
    try:
        array = np.array(flat, np.uint64 if datatype == "UINT64" else np.int64)
    except (OverflowError, ValueError):  # more than 64 bits, or negative as UINT64
        limits = np.iinfo(DATATYPES[datatype][0])
        raise _out_of_range(what, datatype, min(flat) if min(flat) < limits.min else max(flat)) from None
    return checked_integers(what, datatype, array)


def _out_of_range(what: str, datatype: str, value: Any) -> BadRequest:
    dtype = DATATYPES[datatype][0]
    limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    return BadRequest(f"{what} has the element {_shown_value(value)}; {datatype} is {limits.min} to {limits.max}")


def checked_integers(what: str, datatype: str, array: Array) -> Array:
    """Return integers as a datatype that has all of them."""
    dtype = DATATYPES[datatype][0]
    if array.size:
        limits = np.iinfo(dtype)
        low, high = int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            raise _out_of_range(what, datatype, low if low < limits.min else high)
    return array.astype(dtype)


def _shown_value(value: Any) -> str:
    """Return an element as JSON has it."""
    if isinstance(value, int) and value.bit_length() >= 128:
        return f"of {value.bit_length()} bits"
    if isinstance(value, str):
        return short(json.dumps(value, ensure_ascii=False))
    return LITERALS[value] if value is None or isinstance(value, bool) else short(value)


def bytes_of_array(datatype: str, array: Array) -> bytes | memoryview:
    """Return a tensor as the bytes that it has on the wire, without a copy if its memory has them already."""
    if datatype == "BYTES":
        flat = array.reshape(-1)
        if flat.size <= STEP:
            return _joined(flat)
        steps = []
        for start in range(0, flat.size, STEP):
            steps.append(_joined(flat[start : start + STEP]))
            pause()
        return b"".join(steps)
    if datatype == "BF16":
        return _rounded_to_bf16(array).tobytes()
    if not array.size:
        return b""
    return np.ascontiguousarray(array, DATATYPES[datatype][0]).data.cast("B")


def _joined(texts: Array) -> bytes:
    parts = []
    for element in texts:
        data = as_bytes(element)
        if len(data) > MAX_ELEMENT:
            raise ModelFailed(
                f"an element of BYTES has {len(data)} bytes, and the protocol has at most {MAX_ELEMENT}; return "
                "several elements, or an array of UINT8"
            )
        parts += [struct.pack("<I", len(data)), data]
    return b"".join(parts)


def _rounded_to_bf16(array: Array) -> Array:
    """Round to the nearest value with 7 bits of fraction, ties to even; a NaN stays a NaN."""
    values = np.ascontiguousarray(array, "<f4")
    bits = values.view("<u4").astype("<u8")
    rounded: Array = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    rounded[np.isnan(values)] = 0x7FC0
    return rounded


def json_of_array(name: str, datatype: str, array: Array) -> list[Any]:
    """Return a tensor as a flat list for JSON; NaN, which JSON does not have, is None.

    Raises:
        BadRequest: JSON cannot represent an element, so that the client has to ask for bytes.
    """
    if datatype == "BYTES":
        try:
            return [as_bytes(element).decode() for element in array.reshape(-1)]
        except UnicodeDecodeError:
            raise _not_in_json(name, "bytes that are not UTF-8 text") from None
    flat: list[Any] = array.reshape(-1).tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        if np.isinf(array).any():
            raise _not_in_json(name, "an infinite number")
        return [None if math.isnan(value) else value for value in flat]
    return flat


def _not_in_json(name: str, what: str) -> BadRequest:
    return BadRequest(
        f'output "{short(name)}" has {what}, which JSON does not have; ask for it as binary data, '
        'with "binary_data": true in the parameters of the output, or over gRPC'
    )


def as_bytes(element: Any) -> bytes:
    """Return an element of BYTES. A model may return an array of objects of any class."""
    if isinstance(element, bytes):
        return element
    try:
        return str.encode(str(element), "utf-8", "surrogatepass")
    except BaseException as error:
        raise ModelFailed(f"an element of type {type(element).__name__} has no text: {text_of(error)}") from error


def _shown(shape: tuple[int, ...]) -> str:
    return short(str(list(shape)))
