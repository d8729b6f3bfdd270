"""The values of requests as bytes: plain values by `marshal`, arrays in blocks, any other object by pickle.

A number, text, bytes, True, False or None stands for itself. Any other value is a list that begins with a tag.
"""

from __future__ import annotations

import functools
import importlib
import marshal
import os
import pickle
import sys
from collections.abc import Callable, Iterable
from typing import Any

import hami
import numpy as np

from hami_process.blocks import Block, Held, Hold, Sender

SCALARS = frozenset((type(None), bool, int, float, complex, str, bytes))
INLINE = 32 << 10  # bytes of an array or a text that travel in the message
OWN_BLOCK = 1 << 20  # bytes from which an array has a block of its own; smaller ones share one
MOST_SHOWN = 80  # characters of a key in an error
PLAIN, LIST, TUPLE, DICT, ARRAY, SCALAR, BYTES, TEXT, PICKLE = range(9)
NUMPY, HAMI, TORCH = range(3)  # what an array was
_CONTAINERS: dict[Any, int] = {list: LIST, tuple: TUPLE}
_ALIGNMENT = 64
_DTYPE_KINDS = "?biufcmMSU"


class CannotSend(hami.DataTypeError):
    """A value that no other process can have."""

    path = ""  # from the value of a key to this one, as in `["boxes"][3]`


class Encoder:
    """Writes the values of one message. `pickles`: whether objects that have no form here may be pickled."""

    def __init__(self, sender: Sender, pickles: bool) -> None:
        self._sender, self._pickles = sender, pickles
        self._shared: tuple[Block, int] | None = None  # of small arrays, and how much of it is used

    def request(self, items: list[tuple[str, Any]], what: str) -> list[Any]:
        """Return keys and values in turn."""
        encoded: list[Any] = []
        for key, value in items:
            if type(value) not in SCALARS or (type(value) in (bytes, str) and len(value) > INLINE):
                try:
                    value = self.value(value)
                except CannotSend as error:
                    where = f"{key}{error.path}" if error.path else f'"{key}"'
                    raise hami.DataTypeError(f"{where} of {what} cannot go to another process: {error}") from None
                except RecursionError:
                    raise hami.DataTypeError(
                        f'"{key}" of {what} cannot go to another process: it is nested too deep, or contains itself'
                    ) from None
            encoded += (key, value)
        return encoded

    def value(self, value: Any) -> Any:
        kind = type(value)
        if kind in SCALARS:
            if kind is bytes and len(value) > INLINE:
                return [BYTES, *self._blob(value)]
            if kind is str and len(value) > INLINE:
                return [TEXT, *self._blob(value.encode("utf-8", "surrogatepass"))]
            return value
        if kind is np.ndarray:
            return self._array(value, NUMPY)
        if kind is dict:
            if _is_plain(value) and _is_plain(value.values()):
                return [PLAIN, value]
            return [DICT, [self.value(each) for each in value], self._elements(value.values(), value)]
        if kind is list or kind is tuple:
            if _is_plain(value):
                return [PLAIN, value]
            return [_CONTAINERS[kind], self._elements(value, range(len(value)))]
        if kind in (set, frozenset) and _is_plain(value):
            return [PLAIN, value]
        if kind is hami.Tensor:
            return self._tensor(value)
        if isinstance(value, np.generic) and _dtype_name(value.dtype):
            return [SCALAR, _dtype_name(value.dtype), value.tobytes()]
        torch = sys.modules.get("torch")
        if torch is not None and kind is torch.Tensor:
            return self._torch(value, torch)
        return self._pickled(value)

    def _elements(self, values: Iterable[Any], keys: Iterable[Any]) -> list[Any]:
        """Encode the values that a container has under these keys."""
        encoded: list[Any] = []
        for value in values:
            try:
                encoded.append(self.value(value))
            except CannotSend as error:
                error.path = f"[{_shown(list(keys)[len(encoded)])}]{error.path}"
                raise
        return encoded

    def _tensor(self, value: hami.Tensor) -> Any:
        if value.device != "cpu":
            raise CannotSend(f"a tensor on {value.device}; move it to the CPU first, as CpuTensor does")
        return self._array(hami.to_numpy(value), HAMI)

    def _torch(self, value: Any, torch: Any) -> Any:
        if value.device.type != "cpu":
            raise CannotSend(f"a torch.Tensor on {value.device}; move it to the CPU first")
        if value.layout is not torch.strided or value.is_conj() or value.is_neg():
            return self._pickled(value)
        value = value.detach()
        if value.dtype is torch.bfloat16:
            return [*self._array(value.view(torch.int16).numpy(), TORCH), "bfloat16"]
        try:
            return self._array(value.numpy(), TORCH)
        except TypeError:  # a dtype that numpy has not
            return self._pickled(value)

    def _array(self, array: np.ndarray, was: int) -> list[Any]:
        name = _dtype_name(array.dtype)
        if not name:
            return self._pickled(array)
        if array.nbytes <= INLINE:
            return [ARRAY, was, name, array.shape, array.tobytes()]
        block, offset = self._room(array.nbytes)
        room = np.asarray(block.view(offset, array.nbytes)).view(array.dtype).reshape(array.shape)
        np.copyto(room, array)
        return [
            ARRAY,
            was,
            name,
            array.shape,
            (block.number, offset, array.nbytes, offset == 0 and self._is_own(block)),
        ]

    def _is_own(self, block: Block) -> bool:
        return self._shared is None or self._shared[0] is not block

    def _blob(self, data: bytes | bytearray) -> tuple[int, int, int]:
        block, offset = self._room(len(data))
        np.asarray(block.view(offset, len(data)))[:] = np.frombuffer(data, np.uint8)
        return block.number, offset, len(data)

    def _room(self, size: int) -> tuple[Block, int]:
        if size >= OWN_BLOCK:
            return self._sender.block(size), 0
        if self._shared is None or self._shared[1] + size > self._shared[0].capacity:
            self._shared = (self._sender.block(size), 0)
        block, offset = self._shared
        self._shared = (block, -(-(offset + size) // _ALIGNMENT) * _ALIGNMENT)
        return block, offset

    def _pickled(self, value: Any) -> list[Any]:
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if not self._pickles:
            raise CannotSend(f'{name} has no compact form, and objects is "refuse"')
        try:
            data = pickle.dumps(value, protocol=5)
        except Exception as error:
            raise CannotSend(f"{name} has no compact form, and pickle says: {error}") from None
        return [PICKLE, data] if len(data) <= INLINE else [PICKLE, self._blob(data)]

    def forget_shared(self) -> None:
        """Begin a new block for small arrays: the last one was taken back."""
        self._shared = None

    def message(self, message: tuple[Any, ...], capacity: int) -> bytes:
        """Return a message that fits a mailbox. Its last item is the numbers of its blocks."""
        data = marshal.dumps((*message, [block.number for block in self._sender.sent]))
        if len(data) <= capacity:
            return data
        return marshal.dumps(self._blob(data))  # a tuple of three numbers: where the message is


class Decoder:
    """Reads the values of one message. `copies_parts`: an array that shares its block with others is copied."""

    def __init__(self, find: Callable[[int], Block], held: Held, copies_parts: bool) -> None:
        self._find, self._held, self._copies_parts = find, held, copies_parts
        self._holds: dict[int, Hold] = {}

    def message(self, data: Any) -> Any:
        message = marshal.loads(data)
        if isinstance(message, tuple) and type(message[0]) is int:
            message = marshal.loads(self._bytes(*message))
        for number in message[-1]:  # also of those that the reader does not come to
            self._hold(number)
        return message[:-1]

    def request(self, encoded: list[Any]) -> dict[str, Any]:
        values = [value if type(value) is not list else self.value(value) for value in encoded[1::2]]
        return dict(zip(encoded[::2], values, strict=True))

    def value(self, value: Any) -> Any:
        if type(value) is not list:
            return value
        tag = value[0]
        if tag == PLAIN:
            return value[1]
        if tag == ARRAY:
            return self._array(*value[1:])
        if tag == LIST:
            return [self.value(each) for each in value[1]]
        if tag == TUPLE:
            return tuple(self.value(each) for each in value[1])
        if tag == DICT:
            return dict(zip(map(self.value, value[1]), map(self.value, value[2]), strict=True))
        if tag == SCALAR:
            return np.frombuffer(value[2], _dtype_of(value[1]))[0]
        if tag == BYTES:
            return self._bytes(*value[1:])
        if tag == TEXT:
            return self._bytes(*value[1:]).decode("utf-8", "surrogatepass")
        return pickle.loads(value[1] if type(value[1]) is bytes else self._bytes(*value[1]))

    def _array(self, was: int, name: str, shape: tuple[int, ...], content: Any, torch_dtype: str = "") -> Any:
        dtype = _dtype_of(name)
        if type(content) is bytes:
            array = np.frombuffer(bytearray(content), dtype).reshape(shape)
        else:
            array = self._in_block(*content).view(dtype).reshape(shape)
        if was == NUMPY:
            return array
        if was == HAMI:
            return _tensor_pipe()({"data": array})["result"]
        torch = importlib.import_module("torch")
        tensor = torch.from_numpy(array)
        return tensor.view(getattr(torch, torch_dtype)) if torch_dtype else tensor

    def _in_block(self, number: int, offset: int, size: int, is_own: bool) -> np.ndarray:
        hold = self._hold(number)
        block = self._find(number)
        array = np.asarray(block.view(offset, size, hold))
        keeps = (is_own or not self._copies_parts) and self._held.is_low
        return array if keeps else array.copy()

    def _bytes(self, number: int, offset: int, size: int) -> bytes:
        hold = self._hold(number)
        return np.asarray(self._find(number).view(offset, size, hold)).tobytes()

    def _hold(self, number: int) -> Hold:
        if number not in self._holds:
            self._holds[number] = Hold(self._find(number), self._held)
        return self._holds[number]


def _shown(key: Any) -> str:
    if type(key) is str:
        return f'"{key[:MOST_SHOWN]}"'
    return str(key) if type(key) is int else type(key).__name__


def _is_plain(values: Any) -> bool:
    """Whether marshal writes all of these and reads the same back."""
    return set(map(type, values)) <= SCALARS


@functools.lru_cache(256)
def _dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype whose bytes say everything; "" of another."""
    if dtype.kind in _DTYPE_KINDS and dtype.type.__module__ == "numpy":
        return str(dtype.str)
    return f"ml_dtypes.{dtype.name}" if dtype.type.__module__ == "ml_dtypes" else ""


@functools.lru_cache(256)
def _dtype_of(name: str) -> np.dtype[Any]:
    package, _, short = name.rpartition(".")
    return np.dtype(getattr(importlib.import_module(package), short)) if package == "ml_dtypes" else np.dtype(name)


@functools.cache
def _tensor_pipe() -> hami.Pipe:
    return hami.pipe("hami-process::ProcessTensor")


os.register_at_fork(after_in_child=_tensor_pipe.cache_clear)
