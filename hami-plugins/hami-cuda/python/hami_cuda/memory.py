"""Device memory for backends in Python: on the stream of their instance, like that of the native backends.

stream = InstanceStream(options, device, "MyTensor")  # in `init`
with stream:                                           # in `forward`
    image = stream.read(item["data"])
    scores = stream.empty("float32", (4, 1000))
    launch(image.address, scores.address, stream.handle)
    item["result"] = scores.tensor
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import hami
from hami_tensor import Device

from hami_cuda.device import as_current

_RESOURCE_EXHAUSTED = 8  # a code of hami/abi.h
_CPU, _CUDA = 1, 2  # device types of DLPack
_ALIGNMENT = 256  # bytes, as cuMemAlloc
_VERSIONED, _LEGACY = b"dltensor_versioned", b"dltensor"

# Names of types by code and bits of DLPack.
_TYPES = {
    (0, 8): "int8",
    (0, 16): "int16",
    (0, 32): "int32",
    (0, 64): "int64",
    (1, 8): "uint8",
    (1, 16): "uint16",
    (1, 32): "uint32",
    (1, 64): "uint64",
    (2, 16): "float16",
    (2, 32): "float32",
    (2, 64): "float64",
    (4, 16): "bfloat16",
    (5, 64): "complex64",
    (5, 128): "complex128",
    (6, 8): "bool",
    (10, 8): "float8_e4m3fn",
    (12, 8): "float8_e5m2",
}
_CODES = {name: code for code, name in _TYPES.items()}


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned"""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


class _Legacy(ctypes.Structure):
    """DLManagedTensor, of DLPack before 1.0"""

    _fields_ = (("tensor", _DLTensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Held(ctypes.Structure):
    _fields_ = (("managed", ctypes.c_void_p), ("is_versioned", ctypes.c_int))


_INT, _I64, _ADDRESS = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
_TENSOR, _MADE, _NUMBER = ctypes.POINTER(_DLTensor), ctypes.POINTER(_ADDRESS), ctypes.POINTER(_I64)
# Of hami_cuda::PythonFunctions in src/python_functions.hpp: the types of their arguments.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "open": (_INT, _NUMBER),
    "close": (_INT, _I64),
    "allocate": (_INT, _I64, _TENSOR, _MADE),
    "copy": (_INT, _I64, _TENSOR, _MADE),
    "hold": (_INT, _I64, ctypes.POINTER(_Held), _INT),
    "wait": (_INT, _I64),
    "trim": (_INT, _I64),
    "copy_to": (_INT, _I64, _TENSOR, ctypes.c_uint64),
    "begin_capture": (_INT, _I64),
    "end_capture": (_INT, _I64, _MADE),
    "launch": (_INT, _I64, _ADDRESS),
    "destroy": (_INT, _ADDRESS),
    "open_model": (_INT, _TENSOR, _INT, _INT, _I64, _NUMBER),
    "close_model": (_INT, _I64),
    "enter_model": (_INT, _I64, _I64, _NUMBER),
    "leave_model": (_INT, _I64, _I64),
    "add_graph": (_INT, _I64, _ADDRESS, _I64, _TENSOR),
}


@functools.cache
def _functions() -> Any:
    return hami.native.functions(
        "hami-cuda::CudaFunctions",
        error=ctypes.CFUNCTYPE(ctypes.c_char_p),
        **{name: ctypes.CFUNCTYPE(_INT, *arguments) for name, arguments in _FUNCTIONS.items()},
        order=_ADDRESS,
    )


_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
_USED = {_VERSIONED: b"used_dltensor_versioned", _LEGACY: b"used_dltensor"}  # capsules keep a pointer to their name


class Block(NamedTuple):
    """New memory: the tensor over it, and its address."""

    tensor: hami.Tensor
    address: int


class Reading:
    """A tensor on the device that the work of this batch reads; it is kept until that work is done.

    Attributes:
        dtype: A name such as "float32".
        shape: The length of each axis.
    """

    def __init__(self, stream: InstanceStream, managed: int, described: _DLTensor) -> None:
        self._stream = stream
        self._managed = managed
        self._described = described
        self.dtype = _TYPES.get((described.code, described.bits), "an unknown type")
        self.shape = tuple(described.shape[: described.ndim])

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"

    @property
    def address(self) -> int:
        """The address of the elements in row-major order, aligned to 256 bytes; those of a copy where necessary."""
        address: int = (self._described.data or 0) + self._described.byte_offset
        if address and address % _ALIGNMENT == 0 and self._is_contiguous():
            return address
        return self._stream._copy(self._described)

    def copy_to(self, address: int) -> None:
        """Copy the elements in row-major order to memory on the device, in the order of the stream."""
        self._stream._copy_to(self._described, address)

    def _is_contiguous(self) -> bool:
        expected = 1
        for size, stride in zip(self.shape[::-1], self._strides()[::-1], strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    def _strides(self) -> Sequence[int]:
        described = self._described
        if described.strides:
            given: list[int] = described.strides[: described.ndim]
            return given
        strides = [1]
        for size in self.shape[:0:-1]:
            strides.insert(0, strides[0] * size)
        return strides[: described.ndim]


class Graph:
    """Work on the device that was captured, and runs again with one launch; see `InstanceStream.capture`."""

    def __init__(self, stream: InstanceStream, handle: int) -> None:
        self._stream = stream
        self._handle: int | None = handle

    def launch(self) -> None:
        """Run the work on the stream.

        Raises:
            hami.RequestError: The driver cannot launch it.
        """
        self._stream._launch(self._handle or 0)

    def close(self) -> None:
        """Free the graph, whose last launch must be done."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._stream._destroy(handle)


class InstanceStream:
    """The stream of an instance of a node on a CUDA device, which its native backends use too.

    As a context manager it makes the device that of the thread. At the end it keeps what was read until the work that
    was submitted meanwhile is done.

    Attributes:
        handle: The CUstream as a number.
        device: The device.
    """

    def __init__(self, options: Any, device: Device, owner: str) -> None:
        """Take the stream from the options of the instance; without one, open it and put it there.

        Args:
            options: The argument of `init`.
            device: The CUDA device.
            owner: The name of the backend, for errors.

        Raises:
            hami.Error: CUDA does not work in this process.
        """
        self.device = device
        self._owner = owner
        self._functions = _functions()
        option = f"stream.{device}"
        self.handle: int = options.get(option, 0)
        self._is_own = self.handle == 0
        if self._is_own:
            handle = ctypes.c_int64()
            self._check(self._functions.open(device.index, ctypes.byref(handle)))
            options[option] = self.handle = handle.value
        self._kept: list[_Held] = []
        self._scope = contextlib.ExitStack()

    def __enter__(self) -> InstanceStream:
        self._scope.enter_context(as_current(self.device))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._kept:
                kept, self._kept = self._kept, []
                self._check(self._functions.hold(*self._place, (_Held * len(kept))(*kept), len(kept)))
        finally:
            self._scope.close()

    def empty(self, dtype: str, shape: Sequence[int]) -> Block:
        """Allocate a tensor in the order of the stream; its elements are not set.

        Args:
            dtype: A name such as "float32".
            shape: The length of each axis.

        Raises:
            MemoryError: The device, or the limit of its memory, is too small for it.
        """
        code, bits = _CODES[dtype]
        sizes = (ctypes.c_int64 * len(shape))(*shape)
        like = _DLTensor(ndim=len(shape), code=code, bits=bits, lanes=1, shape=sizes)
        managed = ctypes.c_void_p()
        self._check(self._functions.allocate(*self._place, ctypes.byref(like), ctypes.byref(managed)))
        address: int = _Versioned.from_address(managed.value or 0).tensor.data
        return Block(hami.Tensor.adopt(managed.value or 0, self._functions.order or 0), address)

    def read(self, value: Any) -> Reading:
        """Order a tensor with the stream, so that work on the stream can read it.

        Args:
            value: A hami.Tensor, or another object with DLPack, on the device of this stream.

        Raises:
            hami.DataTypeError: It is not a tensor, or it is elsewhere.
        """
        if not hasattr(value, "__dlpack__"):
            raise hami.DataTypeError(
                f"{self._owner} takes a tensor on {self.device}, or another object with DLPack, "
                f"got {type(value).__name__}"
            )
        kind, index = map(int, value.__dlpack_device__())
        if (kind, index) != (_CUDA, self.device.index):
            place = f"cuda:{index}" if kind == _CUDA else "the CPU" if kind == _CPU else f"device type {kind} of DLPack"
            raise hami.DataTypeError(
                f"{self._owner} takes a tensor on {self.device}, got one on {place}; put GpuTensor before it"
            )
        capsule = self._export(value)
        name = _VERSIONED if _is_valid(capsule, _VERSIONED) else _LEGACY
        managed = _pointer_of(capsule, name)
        layout = (_Versioned if name == _VERSIONED else _Legacy).from_address(managed)
        _rename(capsule, _USED[name])
        self._kept.append(_Held(managed, name == _VERSIONED))
        return Reading(self, managed, layout.tensor)

    def copy(self, source: Block, shape: Sequence[int]) -> Block:
        """Copy the start of a block to a new tensor of its type and of this shape, in the order of the stream."""
        made = self.empty(source.tensor.dtype, shape)
        sizes = (ctypes.c_int64 * len(shape))(*shape)
        code, bits = _CODES[source.tensor.dtype]
        described = _DLTensor(source.address, _CUDA, self.device.index, len(shape), code, bits, 1, sizes)
        self._copy_to(described, made.address)
        return made

    def capture(self, submit: Callable[[int], None]) -> Graph:
        """Capture work, so that one launch runs it again.

        The work is submitted to a stream of its own, which no other thread uses: first as usual, so that libraries can
        prepare it, then to be captured. It may use fixed memory only, and no memory of the stream. Blocks until the
        work of the stream and the first run are done.

        Args:
            submit: Submits the work to the stream whose handle it gets.

        Raises:
            hami.RequestError: The driver cannot capture the work.
        """
        self.wait()
        handle = ctypes.c_int64()
        self._check(self._functions.open(self.device.index, ctypes.byref(handle)))
        place = self.device.index, handle.value
        try:
            submit(handle.value)
            self._check(self._functions.wait(*place))
            graph = ctypes.c_void_p()
            self._check(self._functions.begin_capture(*place))
            try:
                submit(handle.value)
            except BaseException:
                if not self._functions.end_capture(*place, ctypes.byref(graph)):
                    self._destroy(graph.value or 0)
                raise
            self._check(self._functions.end_capture(*place, ctypes.byref(graph)))
            return Graph(self, graph.value or 0)
        finally:
            self._functions.wait(*place)  # if `submit` failed, some of its work may run: its memory is still in use
            self._functions.close(*place)

    def wait(self) -> None:
        """Block until the work that the stream has now is done."""
        self._check(self._functions.wait(*self._place))

    def close(self) -> None:
        """Wait for the work on the stream, and close it if this object opened it."""
        if not self.handle:
            return
        with contextlib.suppress(hami.Error):  # of a process in which CUDA does not work any more
            self.wait()
        if self._is_own:
            self._functions.close(*self._place)
        self.handle = 0

    def trim(self) -> None:
        """Return memory that was freed, and is kept for later, to the device, so that other libraries can use it."""
        self._check(self._functions.trim(*self._place))

    @property
    def _place(self) -> tuple[int, int]:
        return self.device.index, self.handle

    def _export(self, value: Any) -> Any:
        try:
            return value.__dlpack__(stream=self.handle, max_version=(1, 0))
        except TypeError:  # of a producer before DLPack 1.0
            return value.__dlpack__(stream=self.handle)

    def _copy(self, described: _DLTensor) -> int:
        managed = ctypes.c_void_p()
        self._check(self._functions.copy(*self._place, ctypes.byref(described), ctypes.byref(managed)))
        copied = _Versioned.from_address(managed.value or 0)
        self._kept.append(_Held(managed.value, True))
        address: int = copied.tensor.data
        return address

    def _copy_to(self, described: _DLTensor, address: int) -> None:
        self._check(self._functions.copy_to(*self._place, ctypes.byref(described), address))

    def _launch(self, graph: int) -> None:
        self._check(self._functions.launch(*self._place, graph))

    def _destroy(self, graph: int) -> None:
        self._check(self._functions.destroy(self.device.index, graph))

    def _check(self, code: int) -> None:
        _check(self._functions, code, self._owner)


def _check(functions: Any, code: int, owner: str) -> None:
    if not code:
        return
    text = f"{owner}: {functions.error().decode()}"
    if code == _RESOURCE_EXHAUSTED:
        raise out_of_memory(text)
    raise hami.RequestError(text)


def out_of_memory(text: str) -> MemoryError:
    """Return the exception of a batch that found no memory on the device; `text` says which allocation failed."""
    return MemoryError(
        f"{text}; the batch failed and its memory was freed. Lower `max` or `instance_num`, or use a smaller dtype"
    )
