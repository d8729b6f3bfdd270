"""The datatypes of the Open Inference Protocol, and tensors of each as bytes and as numpy arrays.

BF16 is float32 in a pipe, because numpy has no such type. Elements of BYTES are `bytes` in an array of objects. On the
wire, numbers are little-endian, and an element of BYTES is its length in four bytes and then the bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hami_serve.errors import BadRequest, short

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
_NAMES = {dtype: name for name, (dtype, _) in DATATYPES.items() if name != "BF16"}
MAX_RANK = 32  # axes; numpy 1 has no more


def datatype_of(array: Array) -> str | None:
    """Return the datatype of an array; None if the protocol has none for it."""
    if array.dtype.kind in "OSU":
        return "BYTES"
    return _NAMES.get(array.dtype.newbyteorder("<") if array.dtype.itemsize > 1 else array.dtype)


def checked_datatype(name: str, datatype: object) -> str:
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise BadRequest(f'input "{name}" has the datatype {short(datatype)}; known: {", ".join(DATATYPES)}')
    return datatype


def checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple; every size is from 0 on."""
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Sequence) or len(shape) > MAX_RANK:
        raise BadRequest(f'input "{name}" needs a shape of at most {MAX_RANK} sizes, got {short(shape)}')
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise BadRequest(f'input "{name}" has the size {short(size)} in its shape; sizes are ints from 0 on')
    return tuple(shape)


def array_of_bytes(name: str, datatype: str, shape: tuple[int, ...], data: memoryview) -> Array:
    """Return a tensor from the bytes that it has on the wire; without a copy if they are aligned."""
    dtype, size = DATATYPES[datatype]
    count = math.prod(shape)
    if datatype == "BYTES":
        return _texts(name, count, data).reshape(shape)
    if len(data) != count * size:
        raise BadRequest(
            f'input "{name}" has {len(data)} bytes; {datatype} of shape {_shown(shape)} has {short(str(count * size))}'
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


def _texts(name: str, count: int, data: memoryview) -> Array:
    if 4 * count > len(data):
        raise BadRequest(f'input "{name}" has {len(data)} bytes, too few for {short(str(count))} elements of BYTES')
    texts = np.empty(count, object)
    position = 0
    for index in range(count):
        start = position + 4
        if start > len(data):
            raise BadRequest(f'input "{name}" ends before element {index} of BYTES')
        (length,) = struct.unpack_from("<I", data, position)
        position = start + length
        if position > len(data):
            raise BadRequest(
                f'input "{name}": element {index} of BYTES has {length} bytes, and {len(data) - start} are left'
            )
        texts[index] = bytes(data[start:position])
    if position != len(data):
        raise BadRequest(f'input "{name}" has {len(data) - position} bytes after its last element')
    return texts


def array_of_json(name: str, datatype: str, shape: tuple[int, ...], data: Any) -> Array:
    """Return a tensor from JSON: a flat or a nested list, in row-major order."""
    if not isinstance(data, list):
        raise BadRequest(f'the data of input "{name}" is a list, got {short(data)}')
    count = math.prod(shape)
    array = _strings(name, data) if datatype == "BYTES" else _numbers(name, datatype, data)
    if array.size != count:
        raise BadRequest(f'input "{name}" has {array.size} elements; its shape {_shown(shape)} has {short(str(count))}')
    return array.reshape(shape)


def _strings(name: str, data: list[Any]) -> Array:
    flat: list[bytes] = []
    pending = [iter(data)]
    while pending:
        for element in pending[-1]:
            if isinstance(element, str):
                flat.append(element.encode("utf-8", "surrogatepass"))
            elif isinstance(element, list):
                pending.append(iter(element))
                break
            else:
                raise BadRequest(f'input "{name}" is BYTES; its elements are strings, got {short(element)}')
        else:
            pending.pop()
    array = np.empty(len(flat), object)
    array[:] = flat
    return array


def _numbers(name: str, datatype: str, data: list[Any]) -> Array:
    dtype = DATATYPES[datatype][0]
    try:
        array = np.asarray(data)
    except (ValueError, OverflowError) as error:
        raise BadRequest(f'the data of input "{name}" is not a regular list of numbers: {error}') from None
    if array.size == 0:
        return array.astype(dtype)
    if dtype.kind in "iu" and array.dtype.kind in ("f", "O") and all(type(each) is int for each in _leaves(data)):
        array = np.asarray(data, object)  # ints of more than 63 bits
        return checked_integers(name, datatype, array)
    kinds = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}[dtype.kind]
    if array.dtype.kind not in kinds:
        raise BadRequest(f'input "{name}" is {datatype}; its data has elements of another kind ({array.dtype})')
    if dtype.kind in "iu":
        return checked_integers(name, datatype, array)
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def checked_integers(name: str, datatype: str, array: Array) -> Array:
    """Return integers as a datatype that has all of them."""
    if not array.size:
        return array.astype(DATATYPES[datatype][0])
    limits = np.iinfo(DATATYPES[datatype][0])
    low, high = int(array.min()), int(array.max())
    if low < limits.min or high > limits.max:
        wrong = low if low < limits.min else high
        raise BadRequest(
            f'input "{name}" has the element {_int_text(wrong)}; {datatype} is {limits.min} to {limits.max}'
        )
    return array.astype(DATATYPES[datatype][0])


def _int_text(value: int) -> str:
    return str(value) if value.bit_length() < 128 else f"of {value.bit_length()} bits"


def _leaves(data: list[Any]) -> Iterator[Any]:
    for each in data:
        if isinstance(each, list):
            yield from _leaves(each)
        else:
            yield each


def bytes_of_array(datatype: str, array: Array) -> bytes | memoryview:
    """Return a tensor as the bytes that it has on the wire, without a copy if its memory has them already."""
    if datatype == "BYTES":
        parts = []
        for element in array.reshape(-1):
            data = as_bytes(element)
            parts += [struct.pack("<I", len(data)), data]
        return b"".join(parts)
    if datatype == "BF16":
        return _rounded_to_bf16(array).tobytes()
    if not array.size:
        return b""
    return np.ascontiguousarray(array, DATATYPES[datatype][0]).data.cast("B")


def _rounded_to_bf16(array: Array) -> Array:
    """Round to the nearest value with 7 bits of fraction, ties to even; a NaN stays a NaN."""
    values = np.ascontiguousarray(array, "<f4")
    bits = values.view("<u4").astype("<u8")
    rounded: Array = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    rounded[np.isnan(values)] = 0x7FC0
    return rounded


def json_of_array(datatype: str, array: Array) -> list[Any]:
    """Return a tensor as a flat list for JSON; NaN and infinities, which JSON does not have, are None."""
    if datatype == "BYTES":
        return [as_bytes(element).decode("utf-8", "replace") for element in array.reshape(-1)]
    flat: list[Any] = array.reshape(-1).tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return [value if math.isfinite(value) else None for value in flat]
    return flat


def as_bytes(element: Any) -> bytes:
    if isinstance(element, bytes):
        return element
    return str(element).encode("utf-8", "surrogatepass")


def _shown(shape: tuple[int, ...]) -> str:
    return short(str(list(shape)))
