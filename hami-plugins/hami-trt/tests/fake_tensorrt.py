"""A fake of TensorRT's runtime, for machines without it: the same names and rules; torch computes, on CPU or GPU.

Not TensorRT: it reads no real engine, and what it lets pass the real one may refuse. It notes in `misuse` where it was
used against the rules of the real one, which would crash or compute nonsense there.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import json
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

MAGIC = b"fake-engine\n"


class Severity(enum.IntEnum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class ILogger:
    Severity = Severity

    def log(self, severity: Severity, message: str) -> None:
        raise NotImplementedError


TensorIOMode = enum.Enum("TensorIOMode", ["NONE", "INPUT", "OUTPUT"])
TensorFormat = enum.Enum("TensorFormat", ["LINEAR", "CHW32"])
TensorLocation = enum.Enum("TensorLocation", ["DEVICE", "HOST"])
DataType = enum.Enum("DataType", ["FLOAT", "HALF", "BF16", "INT8", "INT32", "INT64", "UINT8", "BOOL", "FP8", "INT4"])

_TORCH = {
    DataType.FLOAT: (torch.float32, "<f4"),
    DataType.HALF: (torch.float16, "<f2"),
    DataType.INT64: (torch.int64, "<i8"),
    DataType.BOOL: (torch.bool, "|b1"),
}

Shape = Sequence[int]
Tensors = dict[str, torch.Tensor]


class Program:
    """What an engine computes: `shapes` of the outputs for those of the inputs, and the values."""

    def __init__(self, run: Callable[[Tensors], Tensors], shapes: Callable[[Mapping[str, Shape]], Mapping[str, Shape]]):
        self.run = run
        self.shapes = shapes


PROGRAMS = {
    "double": Program(lambda given: {"y": given["x"] * 2}, lambda given: {"y": given["x"]}),
    # How many rows ran together, and with which profile: the test reads it off.
    "rows": Program(
        lambda given: {"y": torch.full_like(given["x"][:, :1], len(given["x"]))},
        lambda given: {"y": (given["x"][0], 1)},
    ),
    "sum and difference": Program(
        lambda given: {"sum": given["a"] + given["b"], "difference": given["a"] - given["b"]},
        lambda given: {"sum": given["a"], "difference": given["a"]},
    ),
    "squared": Program(  # so many columns as rows: soon too much for any memory
        lambda given: {"y": torch.zeros(1, device=given["x"].device)}, lambda given: {"y": (given["x"][0],) * 2}
    ),
    "turned": Program(lambda given: {"y": given["x"].T}, lambda given: {"y": (given["x"][1], given["x"][0])}),
    "nonzero": Program(lambda given: {"y": given["x"].nonzero()}, lambda given: {"y": (-1, len(given["x"]))}),
}


def tensor(mode: str, dtype: str = "FLOAT", shape: Shape = (-1, 2), **more: str) -> dict[str, Any]:
    """Describe an input or output for `serialized`; -1 is a free axis. `more`: location, format, aliased."""
    return {"mode": mode, "dtype": dtype, "shape": list(shape), "location": "DEVICE", "format": "LINEAR", **more}


def serialized(
    tensors: Mapping[str, dict[str, Any]] | None = None,
    profiles: Sequence[Mapping[str, Sequence[Shape]]] = ({"x": [(1, 2), (2, 2), (4, 2)]},),
    program: str = "double",
    version: str = "10.9.0",
    **more: Any,
) -> bytes:
    """Return the bytes of an engine: by default `x`, 1 to 4 rows of two, is doubled to `y`."""
    tensors = tensors or {"x": tensor("INPUT"), "y": tensor("OUTPUT")}
    text = {"version": version, "tensors": tensors, "profiles": profiles, "program": program, **more}
    body = json.dumps(text).encode()
    return MAGIC + len(body).to_bytes(8, "little") + body


class Fake:
    """A module `tensorrt` of its own for each test; it may be set not to share profiles, as early versions did not."""

    def __init__(self, version: str = "10.9.0", *, on_gpu: bool = False) -> None:
        self.__version__ = version
        self.on_gpu = on_gpu
        self.shares_profiles = True
        self.misuse: list[str] = []
        self.engines: weakref.WeakSet[ICudaEngine] = weakref.WeakSet()
        self.contexts: weakref.WeakSet[IExecutionContext] = weakref.WeakSet()
        self.refuse: dict[str, str] = {}  # call -> what it logs while it fails
        self.ILogger = ILogger
        self.TensorIOMode = TensorIOMode
        self.TensorFormat = TensorFormat
        self.TensorLocation = TensorLocation
        self.DataType = DataType

    def Runtime(self, logger: ILogger) -> Runtime:
        if self.refuses("Runtime", logger):
            raise TypeError("pybind11::init(): factory function returned nullptr")
        return Runtime(self, logger)

    def refuses(self, call: str, logger: ILogger) -> bool:
        if call in self.refuse:
            logger.log(Severity.ERROR, self.refuse[call])
        return call in self.refuse


class Runtime:
    def __init__(self, fake: Fake, logger: ILogger) -> None:
        self.fake = fake
        self.logger = logger

    def deserialize_cuda_engine(self, blob: bytes) -> ICudaEngine | None:
        magic, size, body = blob[: len(MAGIC)], blob[len(MAGIC) : len(MAGIC) + 8], blob[len(MAGIC) + 8 :]
        why = None
        if magic != MAGIC:
            why = "Serialization assertion header.magicTag == kEXPECTED_MAGIC_TAG failed."
        elif len(body) != int.from_bytes(size, "little"):
            why = "Serialization assertion plan.header.size == blobSize failed."
        elif (made_by := json.loads(body)["version"]) != self.fake.__version__:
            why = (
                "The engine plan file is not compatible with this version of TensorRT, expecting library version "
                f"{self.fake.__version__} got {made_by}, please rebuild."
            )
        if why:
            self.logger.log(Severity.ERROR, why)
            self.logger.log(Severity.ERROR, "another error that follows from it")
            return None
        return ICudaEngine(self.fake, self.logger, json.loads(body))


class ICudaEngine:
    def __init__(self, fake: Fake, logger: ILogger, text: dict[str, Any]) -> None:
        self.fake = fake
        self.logger = logger
        self.tensors = text["tensors"]
        self.profiles = text["profiles"]
        self.program = PROGRAMS[text["program"]]
        self.taken: dict[int, int] = {}  # profile -> how many contexts have it
        self.num_io_tensors = len(self.tensors)
        self.num_optimization_profiles = len(self.profiles)
        fake.engines.add(self)

    def get_tensor_name(self, index: int) -> str:
        return list(self.tensors)[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode[self.tensors[name]["mode"]]

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[self.tensors[name]["dtype"]]

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation[self.tensors[name]["location"]]

    def get_tensor_format(self, name: str) -> TensorFormat:
        return TensorFormat[self.tensors[name]["format"]]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name]["shape"])

    def get_aliased_input_tensor(self, name: str) -> str | None:
        return self.tensors[name].get("aliased")

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[tuple[int, ...]]:
        return [tuple(shape) for shape in self.profiles[profile_index][name]]

    def create_execution_context(self) -> IExecutionContext | None:
        return None if self.fake.refuses("create_execution_context", self.logger) else IExecutionContext(self)


class IExecutionContext:
    def __init__(self, engine: ICudaEngine) -> None:
        self.fake = engine.fake
        self._engine = weakref.ref(engine)  # its user has to see to it that it lives
        self._profile: int | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._busy = threading.Lock()
        self.fake.contexts.add(self)

    def __del__(self) -> None:
        engine = self._engine()
        if engine is None:
            self.fake.misuse.append("an engine was freed before its execution context")
        elif self._profile is not None:
            engine.taken[self._profile] -= 1

    @property
    def _of(self) -> ICudaEngine:
        engine = self._engine()
        assert engine is not None, "the engine is gone"
        return engine

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        engine = self._of
        if engine.taken.get(profile_index) and not self.fake.shares_profiles:
            engine.logger.log(Severity.ERROR, f"Profile {profile_index} has been chosen for another IExecutionContext.")
            raise RuntimeError("Error in set optimization profile async.")  # the bindings never return False
        assert 0 <= profile_index < engine.num_optimization_profiles
        engine.taken[profile_index] = engine.taken.get(profile_index, 0) + 1
        self._profile, self._shapes = profile_index, {}
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        if self._profile is None:
            self.fake.misuse.append("a shape was set before the profile")
            return False
        least, _, most = self._of.get_tensor_profile_shape(name, self._profile)
        fits = len(shape) == len(least) and all(a <= b <= c for a, b, c in zip(least, shape, most, strict=True))
        if fits:
            self._shapes[name] = tuple(shape)
        else:
            self.fake.misuse.append(f"shape {shape} of {name} is outside the profile")
        return fits

    def infer_shapes(self) -> list[str]:
        if self.fake.refuses("infer_shapes", self._of.logger):
            raise RuntimeError("shape inference failed")
        return [name for name in self._named(TensorIOMode.INPUT) if name not in self._shapes]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple({**self._shapes, **self._of.program.shapes(self._shapes)}[name])

    def set_tensor_address(self, name: str, memory: int) -> bool:
        if self.fake.refuses("set_tensor_address", self._of.logger):
            return False
        if memory % (256 if self.fake.on_gpu else 64):  # torch's memory on the CPU is aligned to 64
            self.fake.misuse.append(f"the address of {name} is not aligned")
        self._addresses[name] = memory
        return True

    def execute_async_v3(self, stream_handle: int) -> bool:
        if not self._busy.acquire(blocking=False):
            self.fake.misuse.append("two threads ran one execution context at once")
            return False
        try:
            with self._on(stream_handle):
                return self._run()
        finally:
            self._busy.release()

    def _run(self) -> bool:
        engine = self._of
        if self.fake.refuses("execute_async_v3", engine.logger):
            return False
        if missing := {name for name in engine.tensors if not self._addresses.get(name)}:  # null is none
            self.fake.misuse.append(f"no address was set for {sorted(missing)}")
            return False
        given = {name: self._at(name) for name in self._named(TensorIOMode.INPUT)}
        for name, result in engine.program.run(given).items():
            self._at(name).copy_(result)
        self._addresses.clear()  # of memory that may be another's from now on
        return True

    def _on(self, stream_handle: int) -> contextlib.AbstractContextManager[Any]:
        if not self.fake.on_gpu:
            return contextlib.nullcontext()
        default = torch.cuda.default_stream()
        return torch.cuda.stream(torch.cuda.ExternalStream(stream_handle) if stream_handle else default)

    def _named(self, mode: TensorIOMode) -> list[str]:
        return [name for name in self._of.tensors if self._of.get_tensor_mode(name) is mode]

    def _at(self, name: str) -> torch.Tensor:
        (dtype, code), shape = _TORCH[self._of.get_tensor_dtype(name)], self.get_tensor_shape(name)
        address = self._addresses[name]
        if self.fake.on_gpu:
            return torch.as_tensor(OnGpu(shape, code, address), device="cuda")
        if not torch.Size(shape).numel():
            return torch.empty(shape, dtype=dtype)
        memory = (ctypes.c_char * (torch.Size(shape).numel() * dtype.itemsize)).from_address(address)
        return torch.frombuffer(memory, dtype=dtype).reshape(shape)


class OnGpu:
    """Memory of the GPU that torch views as a tensor."""

    def __init__(self, shape: tuple[int, ...], code: str, address: int) -> None:
        self.__cuda_array_interface__ = {"shape": shape, "typestr": code, "data": (address, False), "version": 2}
