"""The files that an ONNX model consists of, and one hash of all of them.

Large weights are in files beside the model. To find their names, this module reads the parts of the protobuf encoding
that lead to the tensors; it does not need the onnx package.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hami

# Messages of onnx.proto3 that lead from a model to the file names of its tensors: {field number: message in the field}.
_Message = dict[int, Any]
_TENSOR: _Message = {13: {}}  # external_data: key and value entries
_GRAPH: _Message = {5: _TENSOR, 15: {1: _TENSOR, 2: _TENSOR}}  # initializer, sparse_initializer
_NODE: _Message = {5: {5: _TENSOR, 10: _TENSOR, 6: _GRAPH, 11: _GRAPH}}  # attribute: t, tensors, g, graphs
_GRAPH[1] = _NODE
_MODEL: _Message = {7: _GRAPH, 25: {7: _NODE}}  # graph, functions

# Wire types of protobuf.
_VARINT = 0
_FIXED_64 = 1
_LENGTH_DELIMITED = 2
_FIXED_32 = 5

_CHUNK = 1 << 22  # bytes to read at a time while hashing


def hash_model(model: Path, owner: str) -> str:
    """Return a SHA-256 hash of a model and of all files with its weights."""
    digest = hashlib.sha256(_hash_file(model))
    for location in external_files(model, owner):
        path = model.parent / location
        if not path.is_file():
            raise hami.ConfigError(
                f'{owner}: weights file "{location}" of "{model}" does not exist; expected it beside the model'
            )
        digest.update(location.encode() + b"\0" + _hash_file(path))
    return digest.hexdigest()


def external_files(model: Path, owner: str) -> list[str]:
    """Return the names of the files with weights of a model, sorted and without duplicates."""
    if not model.stat().st_size:
        raise hami.ConfigError(f'{owner}: "{model}" is empty; expected an ONNX model')
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return sorted(set(_locations(data, 0, len(data), _MODEL)))
        except (IndexError, UnicodeDecodeError, RecursionError):
            size = len(data)
    raise hami.ConfigError(f'{owner}: "{model}" ({size} bytes) is truncated or is not an ONNX model')


def _locations(data: mmap.mmap, start: int, end: int, message: _Message) -> Iterator[str]:
    for number, begin, stop in _fields(data, start, end):
        if number not in message:
            continue
        if message is _TENSOR:
            entry = {key: data[first:last] for key, first, last in _fields(data, begin, stop)}
            if entry.get(1) == b"location":
                yield entry.get(2, b"").decode()
        else:
            yield from _locations(data, begin, stop, message[number])


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, begin and end of each length-delimited field, and skip the other fields.

    Raises:
        IndexError: the data is not valid protobuf.
    """
    while at < end:
        tag, at = _varint(data, at)
        wire_type = tag & 7
        if wire_type == _LENGTH_DELIMITED:
            length, at = _varint(data, at)
            if at + length > end:
                raise IndexError
            yield tag >> 3, at, at + length
            at += length
        elif wire_type == _VARINT:
            _, at = _varint(data, at)
        elif wire_type in (_FIXED_64, _FIXED_32):
            at += 8 if wire_type == _FIXED_64 else 4
        else:
            raise IndexError
    if at > end:
        raise IndexError


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError


def _hash_file(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.digest()
