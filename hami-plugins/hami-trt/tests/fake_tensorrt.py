"""A fake of TensorRT's runtime for machines without it. It has the same API and rules; NumPy computes, in CPU memory.

It cannot read real engines, and the real library can reject calls that it accepts. `misuse` lists violations of rules
that would crash the real library or give wrong results.
"""

from __future__ import annotations

import ctypes
import enum
import json
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

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

TYPES = {DataType.FLOAT: "<f4", DataType.HALF: "<f2", DataType.INT64: "<i8", DataType.BOOL: "|b1"}

ExecutionContextAllocationStrategy = enum.Enum(
    "ExecutionContextAllocationStrategy", ["STATIC", "ON_PROFILE_CHANGE", "USER_MANAGED"]
)
CONTEXT_BYTES = 1000  # of memory that an execution context needs

Shape = Sequence[int]
Tensors = dict[str, Any]


class Program:
    """What an engine computes: the output tensors, and the shapes of the outputs for those of the inputs."""

    def __init__(self, run: Callable[[Tensors], Tensors], shapes: Callable[[Mapping[str, Shape]], Mapping[str, Shape]]):
        self.run = run
        self.shapes = shapes


PROGRAMS = {
    "double": Program(lambda given: {"y": given["x"] * 2}, lambda given: {"y": given["x"]}),
    # The result is the number of rows that ran together.
    "rows": Program(
        lambda given: {"y": given["x"][:, :1] * 0 + len(given["x"])},
        lambda given: {"y": (given["x"][0], 1)},
    ),
    "centered": Program(lambda given: {"y": given["x"] - given["x"].mean(0)}, lambda given: {"y": given["x"]}),
    "centered above 1e6": Program(  # which no test of rows tries
        lambda given: {"y": given["x"] - given["x"].mean(0) * (abs(given["x"]).max(initial=0) > 1e6)},
        lambda given: {"y": given["x"]},
    ),
    "sum and difference": Program(
        lambda given: {"sum": given["a"] + given["b"], "difference": given["a"] - given["b"]},
        lambda given: {"sum": given["a"], "difference": given["a"]},
    ),
    "squared": Program(  # as many columns as rows: large inputs exceed any memory
        lambda given: {"y": given["x"][:1, :1] * 0}, lambda given: {"y": (given["x"][0],) * 2}
    ),
    "transposed": Program(lambda given: {"y": given["x"].T}, lambda given: {"y": (given["x"][1], given["x"][0])}),
    "nonzero": Program(lambda given: {}, lambda given: {"y": (-1, len(given["x"]))}),
}


def tensor(mode: str, dtype: str = "FLOAT", shape: Shape = (-1, 2), **more: str) -> dict[str, Any]:
    """Describe an input or output for `serialized`; -1 is a dynamic axis. `more`: location, format, aliased."""
    return {"mode": mode, "dtype": dtype, "shape": list(shape), "location": "DEVICE", "format": "LINEAR", **more}


def serialized(
    tensors: Mapping[str, dict[str, Any]] | None = None,
    profiles: Sequence[Mapping[str, Sequence[Shape]]] = ({"x": [(1, 2), (2, 2), (4, 2)]},),
    program: str = "double",
    version: str = "10.9.0",
    **more: Any,
) -> bytes:
    """Return a serialized engine. By default y = 2 * x for 1 to 4 rows of two columns."""
    tensors = tensors or {"x": tensor("INPUT"), "y": tensor("OUTPUT")}
    text = {"version": version, "tensors": tensors, "profiles": profiles, "program": program, **more}
    body = json.dumps(text).encode()
    return MAGIC + len(body).to_bytes(8, "little") + body


class Fake:
    """The module `tensorrt` of one test. With `shares_profiles = False` it behaves as early versions of TensorRT.

    `driver` is the fake driver, if the test has it: on a stream that captures, a run becomes part of the graph.
    """

    def __init__(self, version: str = "10.9.0", driver: Any = None) -> None:
        self.__version__ = version
        self.driver = driver
        self.recorded: list[Any] = []  # functions that graphs call
        self.submitted: list[int] = []  # the stream of each run; those of graphs do not count
        self.shares_profiles = True
        self.misuse: list[str] = []
        self.engines: weakref.WeakSet[ICudaEngine] = weakref.WeakSet()
        self.contexts: weakref.WeakSet[IExecutionContext] = weakref.WeakSet()
        self.failures: dict[str, str] = {}  # call that fails: message that it logs
        self.ILogger = ILogger
        self.TensorIOMode = TensorIOMode
        self.TensorFormat = TensorFormat
        self.TensorLocation = TensorLocation
        self.DataType = DataType
        self.ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy

    @property
    def runs(self) -> int:
        return len(self.submitted)

    def Runtime(self, logger: ILogger) -> Runtime:
        if self.fails("Runtime", logger):
            raise TypeError("pybind11::init(): factory function returned nullptr")
        return Runtime(self, logger)

    def compute(self, context: IExecutionContext, stream_handle: int) -> None:
        """Run the program of a context. The memory of the fake driver is that of the CPU."""
        run = context.bound(in_cpu_memory)
        function = ctypes.CFUNCTYPE(None)(run)
        if self.driver is not None and self.driver.fake_record(ctypes.c_size_t(stream_handle), function):
            self.recorded.append(function)
            context.is_captured = True
        else:
            self.submit(run, stream_handle)

    def submit(self, work: Callable[[], None], stream_handle: int) -> None:
        """Run work on a stream of the fake driver, at once unless the driver is late."""
        if self.driver is None:
            work()
            return
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: work())
        self.recorded.append(function)
        self.driver.fake_submit(ctypes.c_void_p(stream_handle), function, None)

    def fails(self, call: str, logger: ILogger) -> bool:
        if call in self.failures:
            logger.log(Severity.ERROR, self.failures[call])
        return call in self.failures


class Runtime:
    def __init__(self, fake: Fake, logger: ILogger) -> None:
        self.fake = fake
        self.logger = logger

    def deserialize_cuda_engine(self, blob: bytes) -> ICudaEngine | None:
        magic, size, body = blob[: len(MAGIC)], blob[len(MAGIC) : len(MAGIC) + 8], blob[len(MAGIC) + 8 :]
        reason = None
        if magic != MAGIC:
            reason = "Serialization assertion header.magicTag == kEXPECTED_MAGIC_TAG failed."
        elif len(body) != int.from_bytes(size, "little"):
            reason = "Serialization assertion plan.header.size == blobSize failed."
        elif (built_by := json.loads(body)["version"]) != self.fake.__version__:
            reason = (
                "The engine plan file is not compatible with this version of TensorRT, expecting library version "
                f"{self.fake.__version__} got {built_by}, please rebuild."
            )
        if reason:
            self.logger.log(Severity.ERROR, reason)
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
        self.used_profiles: dict[int, int] = {}  # profile: number of contexts that use it
        self.num_io_tensors = len(self.tensors)
        self.num_optimization_profiles = len(self.profiles)
        self.device_memory_size_v2 = CONTEXT_BYTES
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

    def create_execution_context(
        self, strategy: ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy.STATIC
    ) -> IExecutionContext | None:
        if self.fake.fails("create_execution_context", self.logger):
            return None
        return IExecutionContext(self, has_memory=strategy is not ExecutionContextAllocationStrategy.USER_MANAGED)

    def create_execution_context_without_device_memory(self) -> IExecutionContext:
        return IExecutionContext(self, has_memory=False)


class IExecutionContext:
    def __init__(self, engine: ICudaEngine, has_memory: bool = True) -> None:
        self.fake = engine.fake
        self.device_memory = int(has_memory)
        self.is_captured = False  # a graph depends on its state
        self._engine = weakref.ref(engine)  # the caller must keep the engine alive
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
            engine.used_profiles[self._profile] -= 1

    @property
    def program(self) -> Program:
        return self._live_engine.program

    def _change(self, what: str) -> None:
        if self.is_captured:
            self.fake.misuse.append(f"{what} of a context that was captured")

    @property
    def _live_engine(self) -> ICudaEngine:
        engine = self._engine()
        assert engine is not None, "the engine was freed"
        return engine

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        engine = self._live_engine
        if engine.used_profiles.get(profile_index) and not self.fake.shares_profiles:
            engine.logger.log(Severity.ERROR, f"Profile {profile_index} has been chosen for another IExecutionContext.")
            raise RuntimeError("Error in set optimization profile async.")  # the bindings never return False
        assert 0 <= profile_index < engine.num_optimization_profiles
        engine.used_profiles[profile_index] = engine.used_profiles.get(profile_index, 0) + 1
        self._profile, self._shapes = profile_index, {}
        context, misuse = weakref.ref(self), self.fake.misuse

        def change() -> None:
            if context() is None:
                misuse.append("a context was freed before it had changed its profile")

        self.fake.submit(change, stream_handle)
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self._change("shape")
        if self._profile is None:
            self.fake.misuse.append("a shape was set before the profile")
            return False
        smallest, _, largest = self._live_engine.get_tensor_profile_shape(name, self._profile)
        inside = len(shape) == len(smallest) and all(
            low <= size <= high for low, size, high in zip(smallest, shape, largest, strict=True)
        )
        if inside:
            self._shapes[name] = tuple(shape)
        else:
            self.fake.misuse.append(f"shape {shape} of {name} is outside the profile")
        return inside

    def infer_shapes(self) -> list[str]:
        if self.fake.fails("infer_shapes", self._live_engine.logger):
            raise RuntimeError("shape inference failed")
        return [name for name in self._named(TensorIOMode.INPUT) if name not in self._shapes]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple({**self._shapes, **self._live_engine.program.shapes(self._shapes)}[name])

    def set_tensor_address(self, name: str, memory: int) -> bool:
        if self.fake.fails("set_tensor_address", self._live_engine.logger):
            return False
        self._change("address")
        if memory % 256:
            self.fake.misuse.append(f"the address of {name} is not aligned")
        self._addresses[name] = memory
        return True

    def execute_async_v3(self, stream_handle: int) -> bool:
        if not self._busy.acquire(blocking=False):
            self.fake.misuse.append("two threads ran one execution context at once")
            return False
        try:
            return self._run(stream_handle)
        finally:
            self._busy.release()

    def _run(self, stream_handle: int) -> bool:
        engine = self._live_engine
        if self.fake.fails("execute_async_v3", engine.logger):
            return False
        if missing := {name for name in engine.tensors if not self._addresses.get(name)}:  # the library rejects null
            self.fake.misuse.append(f"no address was set for {sorted(missing)}")
            return False
        if not self.device_memory or (self.device_memory > 1 and self.device_memory % 256):
            self.fake.misuse.append("a context ran without memory, or with memory that is not aligned")
        self.fake.submitted.append(stream_handle)
        self.fake.compute(self, stream_handle)
        self._addresses.clear()  # the memory can be reused from now on
        return True

    def _named(self, mode: TensorIOMode) -> list[str]:
        return [name for name in self._live_engine.tensors if self._live_engine.get_tensor_mode(name) is mode]

    def bound(self, at: Callable[[tuple[int, ...], str, int], Any]) -> Callable[[], None]:
        """Return the run on what `at` returns for the shape, type and address of each tensor, as they are now."""
        given, outputs = self.arrays(at)
        program = self.program

        def run() -> None:
            for name, result in program.run(given).items():
                outputs[name][...] = result

        return run

    def arrays(self, at: Callable[[tuple[int, ...], str, int], Any]) -> tuple[Tensors, Tensors]:
        """Return what `at` returns for the shape, type and address of each input, and of each output."""
        engine = self._live_engine

        def array(name: str) -> Any:
            return at(self.get_tensor_shape(name), TYPES[engine.get_tensor_dtype(name)], self._addresses[name])

        inputs, outputs = (self._named(mode) for mode in (TensorIOMode.INPUT, TensorIOMode.OUTPUT))
        return {name: array(name) for name in inputs}, {name: array(name) for name in outputs}


def in_cpu_memory(shape: tuple[int, ...], dtype: str, address: int) -> Any:
    """Return an array over memory of the CPU."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)
