"""Which files an ONNX model consists of, and one hash of all: large weights lie in files beside the model.

Reads just so much of the protobuf encoding as leads to the tensors; the package onnx is not needed.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from pathlib import Path

import hami

# Field numbers on the way from a model to where its tensors say that they lie in a file.
_TENSOR = {13: {}}  # external_data: (key, value) pairs
_GRAPH: dict[int, dict] = {5: _TENSOR, 15: {1: _TENSOR, 2: _TENSOR}}  # initializer, sparse_initializer
_NODE = {5: {5: _TENSOR, 10: _TENSOR, 6: _GRAPH, 11: _GRAPH}}  # attribute: t, tensors, g, graphs
_GRAPH[1] = _NODE
_MODEL = {7: _GRAPH, 25: {7: _NODE}}  # graph, functions
_LENGTH_DELIMITED = 2
_CHUNK = 1 << 22


def hash_of(model: Path, owner: str) -> str:
    """Return a SHA-256 that changes with the model and with every file that it keeps weights in."""
    digest = hashlib.sha256(_hash_of_file(model))
    for location in external_files(model, owner):
        path = model.parent / location
        if not path.is_file():
            raise hami.ConfigError(
                f'{owner}: the weights of "{model}" lie in a file "{location}" beside it, which is not there'
            )
        digest.update(location.encode() + b"\0" + _hash_of_file(path))
    return digest.hexdigest()


def external_files(model: Path, owner: str) -> list[str]:
    """Return the names of the files beside the model that hold weights of it, each once, sorted."""
    if not model.stat().st_size:
        raise hami.ConfigError(f'{owner}: "{model}" is empty, not an ONNX model')
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return sorted(set(_locations(data, 0, len(data), _MODEL)))
        except (IndexError, UnicodeDecodeError, RecursionError):
            size = len(data)
    raise hami.ConfigError(f'{owner}: "{model}" ({size} bytes) is truncated or is not an ONNX model')


def _locations(data: mmap.mmap, start: int, end: int, fields: dict[int, dict]) -> Iterator[str]:
    for number, begin, stop in _fields(data, start, end):
        if number not in fields:
            continue
        if fields is _TENSOR:
            pair = {key: data[first:last] for key, first, last in _fields(data, begin, stop)}
            if pair.get(1) == b"location":
                yield pair.get(2, b"").decode()
        else:
            yield from _locations(data, begin, stop, fields[number])


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, begin and end of each field that holds bytes; skip the others. IndexError: no protobuf."""
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            length, at = _varint(data, at)
            if at + length > end:
                raise IndexError
            yield tag >> 3, at, at + length
            at += length
        elif kind == 0:
            _, at = _varint(data, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
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


def _hash_of_file(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.digest()
