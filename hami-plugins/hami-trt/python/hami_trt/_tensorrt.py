"""Imports TensorRT or TensorRT-RTX, and contains all differences between them and between their versions.

A feature is detected by its name in the library, never by the version number.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import hami
from hami_cuda.device import cuda_version

_log = logging.getLogger("hami.trt")


class LibraryPackage(NamedTuple):
    """Where a library is: the modules that can contain it, and the extra of hami-trt that installs it."""

    modules: tuple[str, ...]
    extra: str

    @property
    def command(self) -> str:
        """The command that installs the library."""
        return f'pip install "hami-trt[{self.extra}]"'


LIBRARIES = {
    "tensorrt": LibraryPackage(("tensorrt", "tensorrt_bindings"), "cu13"),
    "tensorrt-rtx": LibraryPackage(("tensorrt_rtx", "tensorrt_rtx_bindings"), "rtx"),
}
HARDWARE_COMPATIBILITY = ("ampere_plus", "same_compute_capability")  # members of HardwareCompatibilityLevel
_PRECISION_FLAGS = {"fp16": "FP16", "bf16": "BF16", "int8": "INT8"}  # members of BuilderFlag
_MAX_ERRORS = 8  # errors of one call to collect; only the first is shown


class Library:
    """The installed TensorRT or TensorRT-RTX.

    There is one object of each per process, because TensorRT accepts one logger. The messages of the library go to the
    Python logger "hami.trt".

    Attributes:
        name: "tensorrt" or "tensorrt-rtx".
        module: the imported module.
    """

    def __init__(self, name: str, module: Any) -> None:
        self.name = name
        self.module = module
        self.version = str(module.__version__)
        self._local = threading.local()  # `errors`: the errors of the current collect_errors() block of a thread
        self.logger = _make_logger(module, self._on_message)
        if hasattr(module, "init_libnvinfer_plugins"):  # models and engines can contain layers of TensorRT's plugins
            module.init_libnvinfer_plugins(self.logger, "")

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def _on_message(self, level: int, message: str) -> None:
        errors: deque[str] | None = getattr(self._local, "errors", None)
        if level >= logging.ERROR and errors is not None:
            errors.append(message)
            level = logging.DEBUG  # an exception will contain it
        _log.log(level, "%s", message)

    @contextlib.contextmanager
    def collect_errors(self) -> Iterator[deque[str]]:
        """Collect the errors that the library logs on this thread, to put them into an exception."""
        errors: deque[str] = deque(maxlen=_MAX_ERRORS)
        self._local.errors = errors
        try:
            yield errors
        finally:
            del self._local.errors

    def deserialize(self, blob: bytes, *, host_code: bool) -> tuple[Any, Any, str]:
        """Load a serialized engine for the current device.

        Args:
            blob: the serialized engine.
            host_code: allow the engine to contain code for the CPU, as a version compatible engine does. Such an engine
                must come from a trusted source: see hami.native.check_library.

        Returns:
            The engine (None if the library rejects it), the runtime that the engine needs, and the reason.
        """
        with self.collect_errors() as errors:
            try:
                runtime = self.module.Runtime(self.logger)
            except TypeError:  # the bindings raise it when the library returns no runtime
                return None, None, first_error(errors)
            if host_code:
                runtime.engine_host_code_allowed = True
            engine = runtime.deserialize_cuda_engine(blob)
        return engine, runtime, first_error(errors)

    def create_context(self, engine: Any, memory: int | None) -> Any:
        """Create an execution context, or return None if the library cannot.

        Args:
            engine: the engine of the library.
            memory: the address of device memory of `context_bytes`; None: the library allocates it.
        """
        if memory is None:
            return engine.create_execution_context()
        strategies = getattr(self.module, "ExecutionContextAllocationStrategy", None)
        context = (
            engine.create_execution_context_without_device_memory()  # before TensorRT 10
            if strategies is None
            else engine.create_execution_context(strategies.USER_MANAGED)
        )
        if context is not None:
            context.device_memory = memory
        return context

    def context_bytes(self, engine: Any) -> int:
        """Return how much device memory an execution context needs."""
        name = "device_memory_size_v2" if hasattr(engine, "device_memory_size_v2") else "device_memory_size"
        return int(getattr(engine, name))

    def is_input(self, engine: Any, name: str) -> bool:
        return bool(engine.get_tensor_mode(name) == self.module.TensorIOMode.INPUT)

    def is_row_major(self, engine: Any, name: str) -> bool:
        """Return whether a tensor is in row-major order, without vectors of channels."""
        return bool(engine.get_tensor_format(name) == self.module.TensorFormat.LINEAR)

    def is_on_host(self, engine: Any, name: str) -> bool:
        """Return whether the CPU reads the values of a tensor, because they are a shape."""
        return bool(engine.get_tensor_location(name) == self.module.TensorLocation.HOST)

    def is_in_place(self, engine: Any, name: str) -> bool:
        """Return whether an output overwrites an input. Engines before TensorRT 10.15 have no such outputs."""
        aliased = getattr(engine, "get_aliased_input_tensor", None)
        return aliased is not None and aliased(name) is not None

    def _enum_member(self, enumeration: str, member: str) -> Any:
        """Return a member of an enumeration; None if this library does not have it."""
        return getattr(getattr(self.module, enumeration, None), member, None)

    def has_precision_flag(self, precision: str) -> bool:
        """Return whether a build can use another precision than the model; every TensorRT before 11 can."""
        return self._enum_member("BuilderFlag", _PRECISION_FLAGS[precision]) is not None

    def chooses_layer_types(self, precision: str | None) -> bool:
        """Return whether a build with this precision chooses the type of each layer itself."""
        return precision in _PRECISION_FLAGS and self.has_precision_flag(precision)

    def fix_layer_type(self, layer: Any, dtype: Any, config: Any) -> None:
        """Make a layer compute in a type. Valid only in a build that chooses the types of layers."""
        config.set_flag(self.module.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)
        layer.precision = dtype
        layer.set_output_type(0, dtype)

    def new_network(self, builder: Any, precision: str | None) -> Any:
        """Create an empty network. It keeps the types of the model unless the precision is set by a flag."""
        flags = 0
        names = ["EXPLICIT_BATCH"]  # later versions have no other kind of network, and no flag for it
        if not self.chooses_layer_types(precision):
            names.append("STRONGLY_TYPED")
        for name in names:
            flag = self._enum_member("NetworkDefinitionCreationFlag", name)
            flags |= 0 if flag is None else 1 << int(flag)
        return builder.create_network(flags)

    def parse_without_plugins(self, parser: Any) -> None:
        """Parse instance normalization as standard layers, which portable engines need; the default since 10."""
        flag = self._enum_member("OnnxParserFlag", "NATIVE_INSTANCENORM")
        if flag is not None:
            parser.set_flag(flag)

    def share_profiles(self, config: Any) -> None:
        """Let several execution contexts use one profile. Versions without this setting always allow it."""
        feature = self._enum_member("PreviewFeature", "PROFILE_SHARING_0806")
        if feature is not None:
            config.set_preview_feature(feature, True)

    def set_precision(self, config: Any, precision: str | None) -> None:
        """Set the precision of a build, as far as it is a setting and not given by the types of the model."""
        if precision in ("fp32", "tf32"):
            switch = config.set_flag if precision == "tf32" else config.clear_flag
            switch(self.module.BuilderFlag.TF32)
        elif precision is not None and self.has_precision_flag(precision):
            config.set_flag(self._enum_member("BuilderFlag", _PRECISION_FLAGS[precision]))

    def set_hardware_compatible(self, config: Any, level: str, owner: str) -> None:
        member = self._enum_member("HardwareCompatibilityLevel", level.upper())
        if member is None or self.builds_for_any_gpu:  # TensorRT-RTX has the setting, but ignores it
            remedy = (
                "; name the GPUs with compute_capability, or leave out both to build for all"
                if self.builds_for_any_gpu
                else ""
            )
            raise hami.ConfigError(f'{owner}: {self} does not support hardware_compatible = "{level}"{remedy}')
        config.hardware_compatibility_level = member

    @property
    def builds_for_any_gpu(self) -> bool:
        """Whether a build needs no GPU and is for named GPUs, as with TensorRT-RTX; else it is for the GPU at hand."""
        return hasattr(self.module, "ComputeCapability")

    @property
    def has_timing_cache(self) -> bool:
        """Whether builds measure layers, so that a timing cache is useful. TensorRT-RTX has one by name only."""
        return not self.builds_for_any_gpu

    def compute_capabilities(self) -> dict[str, Any]:
        """Return the compute capabilities that builds can name: "8.9" and its enumeration member."""
        members = getattr(getattr(self.module, "ComputeCapability", None), "__members__", {})
        digits = {name[2:]: member for name, member in members.items() if name[:2] == "SM" and name[2:].isdigit()}
        return {f"{number[:-1]}.{number[-1]}": member for number, member in digits.items()}

    def set_compute_capabilities(self, config: Any, names: Sequence[str]) -> None:
        known = self.compute_capabilities()
        config.num_compute_capabilities = len(names)
        for index, name in enumerate(names):
            config.set_compute_capability(known[name], index)

    def check_compute_capabilities(self, names: Sequence[str], owner: str) -> None:
        known = self.compute_capabilities()
        if names and not known:
            raise hami.ConfigError(
                f'{owner}: {self} builds only for the GPU of this machine and does not support "compute_capability"; '
                "tensorrt-rtx does"
            )
        for name in names:
            if name not in known:
                raise hami.ConfigError(
                    f'{owner}: {self} cannot build for compute capability "{name}"; supported are {", ".join(known)}'
                )

    def node_of_error(self, error: Any) -> tuple[str, str]:
        """Return operator and name of the node that an ONNX parser error is about; "" if the library has none."""
        getters = (getattr(error, attribute, None) for attribute in ("node_operator", "node_name"))
        operator, name = (getter() if getter is not None else "" for getter in getters)
        return operator, name


def first_error(errors: Iterable[str]) -> str:
    """Return the first error; the later ones follow from it."""
    return next(iter(errors), 'it reports no reason; see the log "hami.trt"').strip()


def require_library() -> None:
    """Raise ImportError with the command that installs a library, if none is installed; import none."""
    if any(_is_installed(module) for library in LIBRARIES.values() for module in library.modules):
        return
    library = LIBRARIES["tensorrt"]
    version = cuda_version()
    if version and version < (13, 0):  # the driver does not run libraries of CUDA 13
        library = library._replace(extra="cu12")
    raise ImportError(f"TensorRT is not installed: {library.command}")


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def find_library(name: str | None, owner: str) -> Library:
    """Return the library that parameter `library` names, or the installed one, TensorRT first.

    Raises:
        hami.ConfigError: it is not installed, or it is installed but cannot be loaded.
    """
    candidates = list(LIBRARIES) if name is None else [name]
    failures = []
    for candidate in candidates:
        try:
            return _load(candidate)
        except ModuleNotFoundError:
            continue
        except ImportError as error:  # its Python part is installed, but a library that it loads is missing
            failures.append(f"{candidate} is installed but cannot be loaded: {error}")
    if failures:
        raise hami.ConfigError(f"{owner}: {'; '.join(failures)}")
    remedy = " or ".join(LIBRARIES[candidate].command for candidate in candidates)
    raise hami.ConfigError(f"{owner} needs {' or '.join(candidates)}, which is not installed: {remedy}")


def describe_library(name: str) -> str:
    """Return the version of a library and the GPUs it runs on, or what is missing, in one line."""
    try:
        library = _load(name)
    except ModuleNotFoundError:
        return f"not installed: {LIBRARIES[name].command}"
    except ImportError as error:
        return f"installed, but cannot be loaded: {error}"
    supported = ", ".join(library.compute_capabilities())
    return f"{library.version}, on compute capability {supported}" if supported else library.version


@functools.cache
def _load(name: str) -> Library:
    modules = LIBRARIES[name].modules
    for module in modules:
        try:
            return Library(name, importlib.import_module(module))
        except ModuleNotFoundError as error:
            if error.name != module:
                raise ImportError(str(error)) from error
    raise ModuleNotFoundError(f"no module named {' or '.join(modules)}", name=modules[0])


def _make_logger(module: Any, on_message: Callable[[int, str], None]) -> Any:
    severity = module.ILogger.Severity
    levels = {
        severity.INTERNAL_ERROR: logging.CRITICAL,
        severity.ERROR: logging.ERROR,
        severity.WARNING: logging.WARNING,
        severity.INFO: logging.INFO,
        severity.VERBOSE: logging.DEBUG,
    }

    class Logger(module.ILogger):  # type: ignore[misc]
        def log(self, severity: Any, message: str) -> None:
            with contextlib.suppress(Exception):  # an exception must not reach the library
                on_message(levels[severity], message)

    return Logger()
