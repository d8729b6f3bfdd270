"""OnnxDevice: any ONNX model on the CPU, as function-calls of a limited time, which can be aborted."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import hami
import numpy as np
import onnx
import onnxruntime
from hami_model_check.onnx import read_onnx
from onnxruntime import OrtValue

from hami_accel import cache
from hami_accel.device import Buffers, Call, Capabilities, Device, DeviceModel, LoadOptions
from hami_accel.errors import CallAborted
from hami_accel.onnx_device import sessions
from hami_accel.onnx_device.cut import choose_borders
from hami_accel.onnx_device.graph import Graph, set_shapes
from hami_accel.onnx_device.sessions import Piece
from hami_accel.specs import TensorSpec

_log = logging.getLogger("hami_accel")

_ROUNDS = 3  # of cutting again where a piece took longer than its nodes without fusion let expect

_SHORT_S = 1e-3  # run time below which the cost of one call counts


class OnnxDevice(Device):
    """ONNX Runtime on the CPU.

    Args:
        cores: how many function-calls run at the same time.
        threads: threads of each function-call; 0: all cores that this process may use, divided by `cores`.
        abort: whether a running function-call is aborted for a task of a higher level.
    """

    name = "onnx"

    def __init__(self, *, cores: int = 1, threads: int = 0, abort: bool = True) -> None:
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if cores < 1 or threads < 0:
            raise hami.ConfigError(f"onnx: cores must be at least 1 and threads at least 0, got {cores} and {threads}")
        self.threads = threads or max(1, usable // cores)
        self.capabilities = Capabilities(cores=cores, segments=True, abort=abort, zero_copy=True, quantised=True)

    def describe(self) -> dict[str, Any]:
        return {"onnxruntime": onnxruntime.__version__, "threads": self.threads}

    def load(self, source: Any, options: LoadOptions) -> DeviceModel:
        if not isinstance(source, (str, os.PathLike)):
            raise hami.ConfigError(f"onnx: takes the path of an ONNX file, got {type(source).__name__}")
        if options.select not in (0, os.path.basename(source)):
            raise hami.ConfigError(
                f'onnx: "{os.fspath(source)}" has one model, so select must be 0, got {options.select!r}'
            )
        return OnnxModel(self, os.fspath(source), options)


class OnnxModel(DeviceModel):
    """A model as a chain of sessions. The state of a task is the tensors that later sessions read."""

    selected = 0
    always_ends = True

    def __init__(self, device: OnnxDevice, file: str, options: LoadOptions) -> None:
        self.name = os.path.basename(file)
        self.names = [self.name]
        self._threads = device.threads
        try:
            found = read_onnx(file, backend="onnx")
            model = onnx.load(file)
        except OSError as error:
            raise hami.ConfigError(f'onnx: "{file}" cannot be read: {error.strerror}') from error
        probe = sessions.open_session(file, sessions.options(1), file)
        ports = {value.name: _fixed_shape(value, options, file) for value in probe.get_inputs()}
        dtypes = {value.name: sessions.dtype_of(value, file) for value in (*probe.get_inputs(), *probe.get_outputs())}
        self.output_names = [value.name for value in probe.get_outputs()]
        del probe
        set_shapes(model, list(ports.items()))
        self._feeds = {name: np.zeros(shape, dtypes[name]) for name, shape in ports.items()}
        self._graph = Graph(sessions.optimized(model, file, self._threads))
        external = [os.path.join(os.path.dirname(os.path.abspath(file)), name) for name in found.external_files]
        key = cache.content_key(
            [file, *external], onnxruntime.__version__, sorted(ports.items()), options.max_time_per_fc, self._threads
        )
        self.from_cache = self._load_cut(key, file)
        if not self.from_cache:
            self._make_cut(options.max_time_per_fc * 1e-6, key, file)
        self.segments = len(self.pieces)
        self._measure_ports(dtypes)
        del self._graph

    def _load_cut(self, key: str, file: str) -> bool:
        stored = cache.read(key)
        try:
            self.borders, self.seconds = list(stored["borders"]), list(stored["seconds"])
            if self.borders[-1] != len(self._graph.nodes) or len(self.borders) != len(self.seconds):
                return False
        except (TypeError, KeyError, IndexError):
            return False
        self.pieces = self._open(self.borders, file)
        return True

    def _make_cut(self, limit_s: float, key: str, file: str) -> None:
        count = len(self._graph.nodes)
        self.borders = [count]
        self.pieces = self._open(self.borders, file)
        self.seconds, _ = sessions.time_pieces(self.pieces, self._feeds)
        if limit_s and self.seconds[0] > limit_s:
            nodes = sessions.node_seconds(self._graph.model, self._feeds, self._threads, file)
            scale = self.seconds[0] / (sum(nodes) or 1.0)
            nodes = [seconds * scale for seconds in nodes]
            for _ in range(_ROUNDS):
                borders = choose_borders(nodes, self._graph.live_bytes(), limit_s)
                if borders == self.borders:
                    break
                self.borders, self.pieces = borders, self._open(borders, file)
                self.seconds, _ = sessions.time_pieces(self.pieces, self._feeds)
                if max(self.seconds) <= limit_s:
                    break
                nodes = _corrected(nodes, borders, self.seconds)
        if limit_s and len(self.pieces) == 1 and self.seconds[0] > limit_s:
            _log.warning(
                "%s: cannot be cut into function-calls of %g us, because no border has only tensors of known types; it "
                "runs as one function-call of %.0f us",
                *(self.name, limit_s * 1e6, self.seconds[0] * 1e6),
            )
        cache.write(key, {"borders": self.borders, "seconds": self.seconds})

    def _open(self, borders: Sequence[int], file: str) -> list[Piece]:
        settings = (sessions.piece_options if len(borders) > 1 else sessions.options)(self._threads)
        return [
            Piece(
                sessions.open_session(self._graph.piece(start, end), settings, file), self._graph.last_uses(start, end)
            )
            for start, end in zip([0, *borders[:-1]], borders, strict=True)
        ]

    def _measure_ports(self, dtypes: dict[str, np.dtype[Any]]) -> None:
        """Learn the shapes of the outputs, and the time of a task, from one run."""
        state = {name: OrtValue.ortvalue_from_numpy(array) for name, array in self._feeds.items()}
        for piece in self.pieces:
            piece.run(state, onnxruntime.RunOptions())
        shapes = {name: array.shape for name, array in self._feeds.items()}
        shapes |= {name: tuple(state[name].shape()) for name in self.output_names}
        specs = {
            name: TensorSpec(name, dtypes[name], shape, _layout(shape), self._graph.quantization(name))
            for name, shape in shapes.items()
        }
        self.inputs = [specs[name] for name in self._feeds]
        self.outputs = [specs[name] for name in self.output_names]
        self.live_bytes = [size or 0 for size in self._graph.live_bytes()]
        self.live_bytes = [self.live_bytes[end - 1] for end in self.borders]
        self.segment_s, self.expected_s = self.seconds, sum(self.seconds)
        if self.segments == 1 and self.expected_s < _SHORT_S:  # the pieces were timed with a state, which costs more
            self.expected_s = sessions.time_session(self.pieces[0].session, self.output_names, self._feeds)

    def allocate(self) -> Buffers:
        return _OnnxBuffers(self.inputs, self.outputs)

    def submit(self, buffers: Buffers, segment: int, core: int, priority: int) -> Call:
        return _OnnxCall(self, buffers, segment)

    def report(self) -> dict[str, Any]:
        return {
            "pieces": self.segments,
            "piece_us": [round(seconds * 1e6, 1) for seconds in self.seconds],
            "live_bytes": self.live_bytes,
            "cut_from_cache": self.from_cache,
        }

    def close(self) -> None:
        self.pieces = []


class _OnnxBuffers(Buffers):
    """Buffers whose outputs are new arrays of each task."""

    def take_outputs(self) -> dict[str, Any]:
        for name, bound in self.bound.items():
            if name in self.outputs and self.outputs[name] is not bound:
                np.copyto(bound, self.outputs[name])
                self.outputs[name] = bound
        return dict(self.outputs)


class _OnnxCall(Call):
    """A function-call that runs on the thread that waits for it."""

    def __init__(self, model: OnnxModel, buffers: Buffers, segment: int) -> None:
        self._model, self._buffers, self._segment = model, buffers, segment
        self._options = onnxruntime.RunOptions()
        self._options.log_severity_level = 4
        self._aborted = self._ended = False

    def query(self) -> bool:
        return self._ended

    def wait(self, timeout: float | None) -> bool:
        del timeout  # a function-call on the CPU always ends
        model, buffers = self._model, self._buffers
        try:
            if model.segments == 1:
                results: Any = model.pieces[0].session.run(model.output_names, buffers.inputs, self._options)
                buffers.outputs = dict(zip(model.output_names, results, strict=True))
                return True
            if self._segment == 0:
                buffers.state = {name: OrtValue.ortvalue_from_numpy(array) for name, array in buffers.inputs.items()}
            model.pieces[self._segment].run(buffers.state, self._options)
            if self._segment == model.segments - 1:
                buffers.outputs = {name: buffers.state[name].numpy() for name in model.output_names}
                buffers.state = None
        except Exception as error:  # onnxruntime's exceptions have no common base class but Exception
            if self._aborted:
                raise CallAborted from None
            raise sessions.device_error(error, model.name) from error
        finally:
            self._ended = True
        return True

    def abort(self) -> bool:
        self._aborted = True
        self._options.terminate = True
        return True


def _corrected(nodes: list[float], borders: Sequence[int], measured: Sequence[float]) -> list[float]:
    """Return the times of the nodes, scaled to the measured times of their pieces."""
    result = list(nodes)
    for start, end, seconds in zip([0, *borders[:-1]], borders, measured, strict=True):
        total = sum(nodes[start:end]) or 1.0
        result[start:end] = [one * seconds / total for one in nodes[start:end]]
    return result


def _fixed_shape(value: Any, options: LoadOptions, file: str) -> tuple[int, ...]:
    """Return the shape of an input: that of the options, or of the model, where a dynamic batch axis becomes 1."""
    declared = list(value.shape or [])
    given = options.shapes.get(value.name)
    if given is not None:
        fits = len(given) == len(declared) and all(
            not isinstance(axis, int) or axis == size for axis, size in zip(declared, given, strict=True)
        )
        if not fits or not all(isinstance(size, int) and size > 0 for size in given):
            raise hami.ConfigError(f'onnx: "{value.name}" of "{file}" has the shape {declared}, got {list(given)}')
        return tuple(given)
    if any(not isinstance(axis, int) for axis in declared[1:]):
        raise hami.ConfigError(
            f'onnx: "{value.name}" of "{file}" has the shape {declared}; accelerators need fixed shapes: pass, for '
            f"example, shapes={{{value.name!r}: {[axis if isinstance(axis, int) else 1 for axis in declared]}}}"
        )
    return tuple(axis if isinstance(axis, int) else 1 for axis in declared)


def _layout(shape: Sequence[int]) -> str:
    """Return the layout of images, which ONNX does not declare: channels are 1, 3 or 4."""
    if len(shape) != 4:
        return ""
    return "NCHW" if shape[1] in (1, 3, 4) else "NHWC" if shape[3] in (1, 3, 4) else ""
