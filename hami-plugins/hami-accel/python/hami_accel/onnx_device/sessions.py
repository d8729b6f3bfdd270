"""Sessions of ONNX Runtime: how they are opened, timed and run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hami
import numpy as np
import onnx
import onnxruntime
from onnxruntime import InferenceSession, OrtValue

from hami_accel.errors import DeviceError

_CODE = re.compile(r"\[ONNXRuntimeError\] : (\d+) :")
_TIMED_RUNS = 3  # the least of three is close to the time without other programs


class Piece:
    """One session, with the names of the tensors that it takes from, adds to, and drops from the state of a task."""

    def __init__(self, session: InferenceSession, last_uses: Sequence[str] = ()) -> None:
        self.session = session
        self.last_uses = last_uses  # tensors that no later piece reads
        self.inputs = [value.name for value in session.get_inputs()]
        self.outputs = [value.name for value in session.get_outputs()]

    def run(self, state: dict[str, OrtValue], options: onnxruntime.RunOptions) -> None:
        """Add the outputs to the state. If it raises, the state is unchanged."""
        feeds = {name: state[name] for name in self.inputs}
        results = self.session.run_with_ort_values(self.outputs, feeds, options)
        state.update(zip(self.outputs, results, strict=True))
        for name in self.last_uses:
            state.pop(name, None)


_allocator_lock = threading.Lock()
_allocator_shared = False


def _reset_after_fork() -> None:
    """Replace the lock, which a thread of the parent may hold."""
    global _allocator_lock
    _allocator_lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)


def piece_options(threads: int) -> onnxruntime.SessionOptions:
    """Return the settings of the pieces of a model that is cut: they share one arena of memory.

    With an arena each, every piece writes its output to memory that is not in the caches, which cost 4 % of the
    throughput of the model in tests/bench/accel.md.
    """
    global _allocator_shared
    with _allocator_lock:
        if not _allocator_shared:
            kind, memory = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, onnxruntime.OrtMemType.DEFAULT
            place = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, memory)
            with contextlib.suppress(Exception):  # the program has registered one, which serves as well
                onnxruntime.create_and_register_allocator(place, None)
            _allocator_shared = True
    settings = options(threads)
    settings.add_session_config_entry("session.use_env_allocators", "1")
    return settings


def options(threads: int) -> onnxruntime.SessionOptions:
    """Return the settings of all sessions: a pool of `threads` threads that sleep when idle."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.add_session_config_entry("session.inter_op.allow_spinning", "0")
    settings.log_severity_level = 4  # errors are raised
    return settings


def open_session(
    model: onnx.ModelProto | str | bytes, settings: onnxruntime.SessionOptions, file: str
) -> InferenceSession:
    """Open a model. Raises hami.ConfigError with the name of the file."""
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    try:
        return InferenceSession(source, settings, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common base class but Exception
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise hami.ConfigError(f'onnx: onnxruntime {onnxruntime.__version__} cannot load "{file}": {reason}') from error


def optimized(model: onnx.ModelProto, file: str, threads: int) -> onnx.ModelProto:
    """Return the model with constants folded and local functions inlined, in standard operators."""
    settings = options(threads)
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory(prefix="hami-accel-") as folder:
        settings.optimized_model_filepath = os.path.join(folder, "optimized.onnx")
        open_session(model, settings, file)
        return onnx.load(settings.optimized_model_filepath)


def node_seconds(model: onnx.ModelProto, feeds: Mapping[str, Any], threads: int, file: str) -> list[float]:
    """Return the time of each node without fusion, from the profiler. The names of the nodes are unique."""
    settings = options(threads)
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.enable_profiling = True
    with tempfile.TemporaryDirectory(prefix="hami-accel-") as folder:
        settings.profile_file_prefix = os.path.join(folder, "profile")
        session = open_session(model, settings, file)
        for _ in range(_TIMED_RUNS):
            session.run(None, dict(feeds))
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    times: dict[str, list[float]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            times.setdefault(event["name"].removesuffix("_kernel_time"), []).append(event["dur"] * 1e-6)
    return [min(times.get(node.name, [0.0])) for node in model.graph.node]


def time_pieces(pieces: Sequence[Piece], feeds: Mapping[str, Any]) -> tuple[list[float], dict[str, OrtValue]]:
    """Run all pieces one after the other some times; return the least time of each, and the state after the last."""
    least = [float("inf")] * len(pieces)
    state: dict[str, OrtValue] = {}
    for _ in range(_TIMED_RUNS):
        state = {name: OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
        for number, piece in enumerate(pieces):
            began = time.perf_counter()
            piece.run(state, onnxruntime.RunOptions())
            least[number] = min(least[number], time.perf_counter() - began)
    return least, state


def time_session(session: Any, outputs: Sequence[str], feeds: Mapping[str, Any]) -> float:
    """Return the least time of some runs of a whole model."""
    least = float("inf")
    for _ in range(_TIMED_RUNS):
        began = time.perf_counter()
        session.run(outputs, feeds, onnxruntime.RunOptions())
        least = min(least, time.perf_counter() - began)
    return least


def device_error(error: Exception, name: str) -> DeviceError:
    """Return an error of ONNX Runtime with its status code."""
    code = _CODE.search(str(error))
    return DeviceError(f"{name}: {str(error).strip()}", int(code[1]) if code else -1)


def dtype_of(value: Any, file: str) -> np.dtype[Any]:
    """Return the NumPy type of a port of a session. Raises hami.ConfigError if it has none."""
    names = {"float": "float32", "double": "float64"}
    match = re.fullmatch(r"tensor\((\w+)\)", value.type)
    try:
        return np.dtype(names.get(match[1], match[1] if match[1] != "string" else value.type) if match else value.type)
    except TypeError:
        raise hami.ConfigError(
            f'onnx: "{value.name}" of "{file}" has the type {value.type}, but accelerators take tensors of numbers'
        ) from None
