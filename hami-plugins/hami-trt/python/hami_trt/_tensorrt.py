"""The one place that imports TensorRT or TensorRT-RTX, and that knows how their versions differ.

A difference is asked of the library, whether it has a name, never read from its version.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

import hami

_log = logging.getLogger("hami.trt")

# How each library is asked for, the modules that may hold it, and the package that brings it.
LIBRARIES = {
    "tensorrt": (("tensorrt", "tensorrt_bindings"), "tensorrt-cu13"),
    "tensorrt-rtx": (("tensorrt_rtx", "tensorrt_rtx_bindings"), "tensorrt-rtx-cu13"),
}
COMPATIBILITY = ("ampere_plus", "same_compute_capability")  # of hardware; names of the library in lower case
_PRECISION_FLAGS = {"fp16": "FP16", "bf16": "BF16", "int8": "INT8"}


class Library:
    """TensorRT or TensorRT-RTX as installed: `name` is how it is asked for, `module` what was imported.

    The same object for all of a process: TensorRT takes one logger. What it says goes to Python's logging, "hami.trt".
    """

    devices = ("cuda",)  # the kinds of device that it runs on

    def __init__(self, name: str, module: ModuleType | Any) -> None:
        self.name = name
        self.module = module
        self.version = str(module.__version__)
        self._told = threading.local()  # errors: those of a block that collects them
        self.logger = _logger(module, self._hear)
        if hasattr(module, "init_libnvinfer_plugins"):  # models and engines may have layers of TensorRT's plugins
            module.init_libnvinfer_plugins(self.logger, "")

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def _hear(self, level: int, message: str) -> None:
        told = getattr(self._told, "errors", None)
        if level >= logging.ERROR and told is not None:
            told.append(message)
            level = logging.DEBUG  # an exception is going to tell it
        _log.log(level, "%s", message)

    @contextlib.contextmanager
    def errors(self) -> Iterator[deque[str]]:
        """Collect the errors that the library logs in this thread, for an exception to tell."""
        self._told.errors = told = deque(maxlen=8)
        try:
            yield told
        finally:
            del self._told.errors

    def deserialize(self, blob: Any, *, host_code: bool = False) -> tuple[Any, Any, str]:
        """Return the engine for the current device, or None, the runtime that it needs, and why it is None.

        `host_code`: the engine brings code of its own for the CPU, as a version compatible one does, and is trusted.
        """
        with self.errors() as told:
            try:
                runtime = self.module.Runtime(self.logger)
            except TypeError:  # what the bindings raise when the library gave no runtime
                return None, None, first_of(told)
            if host_code:
                runtime.engine_host_code_allowed = True
            engine = runtime.deserialize_cuda_engine(blob)
        return engine, runtime, first_of(told)

    def is_input(self, engine: Any, name: str) -> bool:
        return bool(engine.get_tensor_mode(name) == self.module.TensorIOMode.INPUT)

    def is_row_major(self, engine: Any, name: str) -> bool:
        """Whether a tensor lies in memory as torch has it, without vectors of channels."""
        return bool(engine.get_tensor_format(name) == self.module.TensorFormat.LINEAR)

    def is_on_host(self, engine: Any, name: str) -> bool:
        """Whether a tensor is one of shapes: its values are read by the CPU."""
        return bool(engine.get_tensor_location(name) == self.module.TensorLocation.HOST)

    def is_in_place(self, engine: Any, name: str) -> bool:
        """Whether an output has to lie where an input does, which is overwritten; before TensorRT 10.15 none has."""
        aliased = getattr(engine, "get_aliased_input_tensor", None)
        return aliased is not None and aliased(name) is not None

    def _member(self, enumeration: str, member: str) -> Any:
        """A member of an enumeration, None if this library does not have it."""
        return getattr(getattr(self.module, enumeration, None), member, None)

    def takes_precision(self, precision: str) -> bool:
        """Whether a build may compute in another precision than the model says, as all could before TensorRT 11."""
        return self._member("BuilderFlag", _PRECISION_FLAGS[precision]) is not None

    def chooses_types(self, precision: str | None) -> bool:
        """Whether a build with this precision chooses the types that it computes in, layer by layer."""
        return precision in _PRECISION_FLAGS and self.takes_precision(precision)

    def keep_type(self, layer: Any, dtype: Any, config: Any) -> None:
        """Have a layer compute in a type where the build chooses; a network of fixed types takes no such wish."""
        config.set_flag(self.module.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)
        layer.precision = dtype
        layer.set_output_type(0, dtype)

    def new_network(self, builder: Any, precision: str | None) -> Any:
        """Make an empty network: one that keeps to the types of the model unless it is told a precision."""
        flags = 0
        names = ["EXPLICIT_BATCH"]  # the only kind, and no flag any more, in later versions
        if not self.chooses_types(precision):
            names.append("STRONGLY_TYPED")
        for name in names:
            flag = self._member("NetworkDefinitionCreationFlag", name)
            flags |= 0 if flag is None else 1 << int(flag)
        return builder.create_network(flags)

    def avoid_plugins(self, parser: Any) -> None:
        """Have instance normalization parsed as layers that engines for elsewhere may have; the default since 10."""
        flag = self._member("OnnxParserFlag", "NATIVE_INSTANCENORM")
        if flag is not None:
            parser.set_flag(flag)

    def share_profiles(self, config: Any) -> None:
        """Let the instances of several pipes have one profile; versions before 10 have to be told, later ones do so."""
        feature = self._member("PreviewFeature", "PROFILE_SHARING_0806")
        if feature is not None:
            config.set_preview_feature(feature, True)

    def set_precision(self, config: Any, precision: str | None) -> None:
        """Tell a build its precision, as far as that is a setting and not the model's types."""
        if precision in ("fp32", "tf32"):
            switch = config.set_flag if precision == "tf32" else config.clear_flag
            switch(self.module.BuilderFlag.TF32)
        elif precision is not None and self.takes_precision(precision):
            config.set_flag(self._member("BuilderFlag", _PRECISION_FLAGS[precision]))

    def set_hardware_compatible(self, config: Any, level: str, owner: str) -> None:
        found = self._member("HardwareCompatibilityLevel", level.upper())
        if found is None or self.builds_for_any:  # TensorRT-RTX has the name, which does nothing
            remedy = "; say which GPUs by compute_capability, or leave both out: all" if self.builds_for_any else ""
            raise hami.ConfigError(f'{owner}: {self} has no hardware_compatible = "{level}"{remedy}')
        config.hardware_compatibility_level = found

    @property
    def builds_for_any(self) -> bool:
        """Whether engines are built for GPUs that are named, not for the one at hand; TensorRT-RTX does."""
        return hasattr(self.module, "ComputeCapability")

    @property
    def times_tactics(self) -> bool:
        """Whether builds measure, so that a timing cache is of use; TensorRT-RTX has it by name only."""
        return not self.builds_for_any

    def compute_capabilities(self) -> dict[str, Any]:
        """The compute capabilities that engines can be built for without having such a GPU: "8.9" and its member."""
        members = getattr(getattr(self.module, "ComputeCapability", None), "__members__", {})
        numbers = {name[2:]: member for name, member in members.items() if name[:2] == "SM" and name[2:].isdigit()}
        return {f"{digits[:-1]}.{digits[-1]}": member for digits, member in numbers.items()}

    def set_compute_capabilities(self, config: Any, wanted: Sequence[str]) -> None:
        known = self.compute_capabilities()
        config.num_compute_capabilities = len(wanted)
        for index, name in enumerate(wanted):
            config.set_compute_capability(known[name], index)

    def check_compute_capabilities(self, wanted: Sequence[str], owner: str) -> None:
        known = self.compute_capabilities()
        if wanted and not known:
            raise hami.ConfigError(
                f'{owner}: {self} builds for the GPU at hand only, not for a "compute_capability"; tensorrt-rtx does'
            )
        for name in wanted:
            if name not in known:
                raise hami.ConfigError(
                    f'{owner}: {self} cannot build for compute capability "{name}"; it can for {", ".join(known)}'
                )

    def progress_monitor(self, progress: Any) -> Any:
        """What tells `progress` how far a build is; None if this library tells nobody."""
        base = getattr(self.module, "IProgressMonitor", None)
        if base is None:
            return None

        class Monitor(base):  # type: ignore[misc, valid-type]
            def __init__(self) -> None:
                base.__init__(self)

            def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
                progress.start(phase_name, parent_phase, num_steps)

            def step_complete(self, phase_name: str, step: int) -> bool:
                progress.step(phase_name, step)
                return not progress.stopped.is_set()

            def phase_finish(self, phase_name: str) -> None:
                progress.finish(phase_name)

        return Monitor()

    def where(self, error: Any) -> tuple[str, str]:
        """Operator and name of the node that an error of the ONNX parser is about, as far as they are told."""
        told = (getattr(error, attribute, None) for attribute in ("node_operator", "node_name"))
        operator, name = (value() if value is not None else "" for value in told)
        return operator, name


def first_of(told: Iterable[str]) -> str:
    """Return the first thing that the library said went wrong, the others follow from it."""
    return next(iter(told), 'it gives no reason; what it said before is in the log "hami.trt"').strip()


def find_library(name: str | None, owner: str) -> Library:
    """Return the library that parameter `library` names, or the one that is installed, TensorRT first."""
    broken = []
    for wanted in LIBRARIES if name is None else (name,):
        try:
            return _load(wanted)
        except ModuleNotFoundError:
            continue
        except ImportError as error:  # its Python part is there, what it loads is not
            broken.append(f"{wanted} is installed but cannot be loaded: {error}")
    wanted = name or "tensorrt or tensorrt-rtx"
    remedy = " or ".join(f"pip install {LIBRARIES[each][1]}" for each in (LIBRARIES if name is None else (name,)))
    raise hami.ConfigError(
        f"{owner}: {'; '.join(broken)}" if broken else f"{owner} needs {wanted}, which is not installed: {remedy}"
    )


def summary(name: str) -> str:
    """Say in a line which version of a library is installed and what it runs on, or what is missing."""
    try:
        library = _load(name)
    except ModuleNotFoundError:
        return f"not installed: pip install {LIBRARIES[name][1]}"
    except ImportError as error:
        return f"installed, but cannot be loaded: {error}"
    served = ", ".join(library.compute_capabilities())
    return f"{library.version}, on compute capability {served}" if served else library.version


@functools.cache
def _load(name: str) -> Library:
    modules, _ = LIBRARIES[name]
    for place in modules:
        try:
            return Library(name, importlib.import_module(place))
        except ModuleNotFoundError as error:
            if error.name != place:
                raise ImportError(str(error)) from error
    raise ModuleNotFoundError(f"no module named {' or '.join(modules)}", name=modules[0])


def _logger(module: Any, hear: Any) -> Any:
    severity = module.ILogger.Severity
    levels = {
        severity.INTERNAL_ERROR: logging.CRITICAL,
        severity.ERROR: logging.ERROR,
        severity.WARNING: logging.WARNING,
        severity.INFO: logging.INFO,
        severity.VERBOSE: logging.DEBUG,
    }

    class Logger(module.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            module.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            with contextlib.suppress(Exception):  # nothing may be raised into the library
                hear(levels[severity], message)

    return Logger()
