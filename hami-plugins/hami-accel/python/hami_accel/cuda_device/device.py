"""CudaDevice: work of PyTorch on a GPU, launched piece by piece, so that urgent tasks start at the next border."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import hami
import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from hami_accel.cuda_device.module import Piece, TorchModel, group, model_of
from hami_accel.device import Buffers, Call, Capabilities, Device, DeviceModel, LoadOptions, model_number
from hami_accel.errors import DeviceError, InputError
from hami_accel.specs import TensorSpec
from hami_accel.task import level_of

_log = logging.getLogger("hami_accel")

_WARM_UPS = 2  # runs before the times are measured: the first ones load kernels and choose algorithms
_RUNS = 3  # that are measured; the median counts
_SPIN_S = 200e-6  # a wait polls without a pause for this long, which covers a short piece
_DLPACK_CUDA = 2  # kDLCUDA of DLPack
_PAUSE_S = 50e-6  # between two polls afterwards


class CudaDevice(Device):
    """A GPU of NVIDIA.

    A GPU executes what is queued on its streams. The engine queues one piece of a task, and the next one when the
    first has ended, so an urgent task waits for one piece at most. A piece that runs cannot be aborted. Each level of
    priority has streams of its own, with the stream priorities of CUDA.

    Args:
        index: number of the GPU.
        cores: pieces that run at the same time, on streams of their own. They share the GPU; more than 1 raises
            the throughput of small models, and an urgent task then shares the GPU with pieces that run.
    """

    name = "cuda"

    def __init__(self, *, index: int = 0, cores: int = 1) -> None:
        if cores < 1:
            raise hami.ConfigError(f"cuda: cores must be at least 1, got {cores}")
        if not torch.cuda.is_available():
            raise hami.ConfigError(f"cuda: torch {torch.__version__} finds no GPU of NVIDIA; use another device")
        if not 0 <= index < torch.cuda.device_count():
            raise hami.ConfigError(f"cuda: index must be 0 to {torch.cuda.device_count() - 1}, got {index}")
        self.index, self.place = index, torch.device("cuda", index)
        lowest, highest = torch.cuda.Stream.priority_range()
        self.capabilities = Capabilities(cores=cores, segments=True, priority_levels=lowest - highest + 1)
        with torch.cuda.device(index):
            self._streams = [
                [torch.cuda.Stream(index, priority=max(lowest - level, highest)) for level in range(3)]
                for _ in range(cores)
            ]

    def stream(self, core: int, priority: int) -> Any:
        """Return the stream of a core for tasks of a priority: the lowest for ordinary ones, then one per level."""
        return self._streams[core][level_of(priority)]

    def describe(self) -> dict[str, Any]:
        return {
            "gpu": torch.cuda.get_device_name(self.index),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "green_contexts": "in this torch, not used" if hasattr(torch.cuda, "GreenContext") else "not in this torch",
        }

    def load(self, source: Any, options: LoadOptions) -> DeviceModel:
        model = model_of(source, options)
        model_number(options.select, [model.name], self.name)
        return _Model(self, model, options.max_time_per_fc * 1e-6)


class _Model(DeviceModel):
    selected = 0

    def __init__(self, device: CudaDevice, model: TorchModel, limit_s: float) -> None:
        self.name, self.names = model.name, [model.name]
        self.device = device
        pieces = model.list_pieces()
        for piece in pieces:
            if isinstance(piece, torch.nn.Module):
                piece.to(device.place)
        arrays = {name: np.asarray(array) for name, array in model.inputs.items()}
        self.inputs = [TensorSpec(name, array.dtype, array.shape) for name, array in arrays.items()]
        try:
            with self.entered(device.stream(0, 0)):
                seconds, outputs = _measure(pieces, self._upload(arrays))
                results = [tensor.cpu().numpy() for tensor in outputs]
        except Exception as error:  # a piece may raise anything
            raise hami.ConfigError(f"cuda: cannot run {self.name} once on its example inputs: {error}") from error
        names = list(model.outputs) or [f"output_{number}" for number in range(len(results))]
        if len(names) != len(results):
            raise hami.ConfigError(f"cuda: {self.name} has {len(results)} outputs, got the names {names}")
        self.outputs = [TensorSpec(name, one.dtype, one.shape) for name, one in zip(names, results, strict=True)]
        groups = group(seconds, limit_s)
        self.groups = [[pieces[number] for number in numbers] for numbers in groups]
        self.seconds = [sum(seconds[number] for number in numbers) for numbers in groups]
        self.segments, self.expected_s = len(groups), sum(seconds)
        longest = max(seconds)
        if limit_s and longest > limit_s:
            _log.warning(
                "%s: a piece takes %.0f us, more than the %g us of max_time_per_fc; only a torch.nn.Sequential or a "
                "list of pieces is cut",
                *(self.name, longest * 1e6, limit_s * 1e6),
            )

    def entered(self, stream: Any) -> _Entered:
        """Return a context in which the work of this thread is on a stream, without gradients."""
        return _Entered(self.device.index, stream)

    def submit(self, buffers: Buffers, segment: int, core: int, priority: int) -> Call:
        stream = self.device.stream(core, priority)
        last = segment == self.segments - 1
        try:
            with self.entered(stream):
                if segment == 0:
                    if buffers.bound:  # after what the caller has queued on the default stream
                        stream.wait_stream(torch.cuda.default_stream(self.device.index))
                    buffers.state = self._upload(buffers.inputs)
                for piece in self.groups[segment]:
                    buffers.state = _as_tuple(piece(*buffers.state))
                event = torch.cuda.Event()
                event.record(stream)
        except Exception as error:  # CUDA's errors, and those of the module
            raise _device_error(error, self.name) from error
        return _Call(self, buffers, stream, event, last)

    def _upload(self, arrays: Any) -> tuple[Any, ...]:
        """Return the inputs on the GPU, copied on the current stream if they are on the host."""
        return tuple(self._on_device(arrays[spec.name]) for spec in self.inputs)

    def _on_device(self, array: Any) -> Any:
        if not isinstance(array, np.ndarray):
            return array
        writable = np.require(array, requirements=["C", "W"])  # which from_numpy needs
        return torch.from_numpy(writable).to(self.device.place)

    def import_buffer(self, buffer: Any, spec: TensorSpec) -> Any:
        """Return a tensor that shares the memory of a buffer on this GPU."""
        place = buffer.__dlpack_device__() if hasattr(buffer, "__dlpack_device__") else (0, 0)
        if place[0] != _DLPACK_CUDA:
            return None
        tensor = torch.from_dlpack(buffer)
        dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
        if (
            place[1] != self.device.index
            or (dtype, shape) != (spec.dtype.name, spec.shape)
            or not tensor.is_contiguous()
        ):
            raise InputError(
                f'{self.name}: "{spec.name}" takes contiguous {spec} on GPU {self.device.index}, got {dtype} '
                f"{list(shape)} on GPU {place[1]}{'' if tensor.is_contiguous() else ', not contiguous'}"
            )
        return tensor

    def report(self) -> dict[str, Any]:
        return {"pieces": self.segments, "piece_us": [round(one * 1e6, 1) for one in self.seconds]}

    def close(self) -> None:
        self.groups = []


class _Entered:
    """The contexts of torch for one piece; cheaper than an ExitStack."""

    def __init__(self, index: int, stream: Any) -> None:
        self._contexts = (torch.cuda.device(index), torch.cuda.stream(stream), torch.inference_mode())

    def __enter__(self) -> None:
        for context in self._contexts:
            context.__enter__()

    def __exit__(self, *exception: Any) -> None:
        for context in reversed(self._contexts):
            context.__exit__(*exception)


class _Call(Call):
    def __init__(self, model: _Model, buffers: Buffers, stream: Any, event: Any, last: bool) -> None:
        self._model, self._buffers, self._stream, self._event, self._last = model, buffers, stream, event, last

    def query(self) -> bool:
        return bool(self._event.query())

    def wait(self, timeout: float | None) -> bool:
        try:
            if not self._wait_event(timeout):
                return False
            if self._last:
                self._download()
        except DeviceError:
            raise
        except Exception as error:
            raise _device_error(error, self._model.name) from error
        return True

    def _wait_event(self, timeout: float | None) -> bool:
        """Wait for the piece. CUDA has no wait with a limit, so a limited one polls."""
        if timeout is None:
            self._event.synchronize()
            return True
        began = time.monotonic()
        while not self._event.query():
            waited = time.monotonic() - began
            if waited > timeout:
                return False
            time.sleep(0 if waited < _SPIN_S else _PAUSE_S)
        return True

    def _download(self) -> None:
        model, buffers = self._model, self._buffers
        state, buffers.state = buffers.state, None
        with model.entered(self._stream):
            for spec, tensor in zip(model.outputs, state, strict=True):
                target = buffers.outputs[spec.name]
                if isinstance(target, np.ndarray):
                    array = tensor.cpu().numpy()
                    spec.check(array, model.name)
                    np.copyto(target, array)
                else:
                    target.copy_(tensor)
            self._stream.synchronize()


def _measure(pieces: Sequence[Piece], inputs: tuple[Any, ...]) -> tuple[list[float], tuple[Any, ...]]:
    """Return the seconds of each piece, and the outputs of the last one."""
    times: list[list[float]] = []
    state = inputs
    for _ in range(_WARM_UPS + _RUNS):
        state, row = inputs, []
        for piece in pieces:
            torch.cuda.current_stream().synchronize()
            began = time.perf_counter()
            state = _as_tuple(piece(*state))
            torch.cuda.current_stream().synchronize()
            row.append(time.perf_counter() - began)
        times.append(row)
    return [sorted(column)[_RUNS // 2] for column in zip(*times[_WARM_UPS:], strict=True)], state


def _as_tuple(state: Any) -> tuple[Any, ...]:
    return tuple(state) if isinstance(state, (tuple, list)) else (state,)


def _device_error(error: Exception, model: str) -> DeviceError:
    """Keep the number of CUDA's error, which newer versions of torch attach."""
    code = getattr(error, "error_code", None)
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return DeviceError(f"{model}: CUDA: {reason}", code if isinstance(code, int) else -1)
