"""Execution providers: their names, which are installed, how to install the others, and which a model asks for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import hami

from hami_onnx._plugin_providers import KINDS, PluginProvider, devices_of, installed_providers

if TYPE_CHECKING:
    import onnxruntime

CPU = "CPUExecutionProvider"

_FULL_NAMES = {
    "cpu": CPU,
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "tensorrt-rtx": "NvTensorRTRTXExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
    "qnn": "QNNExecutionProvider",
    "webgpu": "WebGpuExecutionProvider",
    "cann": "CANNExecutionProvider",
    "dnnl": "DnnlExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "azure": "AzureExecutionProvider",
}
_ONNX_KERNELS = ("cpu", "cuda", "cpuexecutionprovider", "cudaexecutionprovider")  # ONNX Runtime's own
_SHORT_NAMES = {full: short for short, full in _FULL_NAMES.items()}
_LIBRARY_NAME = re.compile(r"\.(so(\.[0-9.]+)?|dylib|dll)$", re.IGNORECASE)
_PACKAGES = {
    "cuda": "onnxruntime-gpu",
    "tensorrt": "onnxruntime-gpu",
    "migraphx": "onnxruntime-migraphx",
    "directml": "onnxruntime-directml",
    "cann": "onnxruntime-cann",
}
_PLUGIN_PACKAGES = {  # beside onnxruntime
    "openvino": "onnxruntime-ep-openvino",
    "qnn": "onnxruntime-qnn",
    "tensorrt-rtx": "onnxruntime-ep-nv-tensorrt-rtx",
    "webgpu": "onnxruntime-ep-webgpu",
}


def available_providers() -> list[str]:
    """Return the providers of the installed onnxruntime: the short name of each, or its full name if it has none."""
    import onnxruntime

    names: list[str] = onnxruntime.get_available_providers()
    return [_SHORT_NAMES.get(name, name) for name in names]


def proof_rules(provider: str | Sequence[str]) -> str | None:
    """Return the rules by which a proof judges a model; None: another engine runs it, so that a test decides."""
    names = [provider] if isinstance(provider, str) else provider
    return "onnx" if all(name.strip().lower() in _ONNX_KERNELS for name in names) else None


class Chosen(NamedTuple):
    """The providers that a model asks for, the first one preferred. The CPU is always behind them."""

    names: tuple[str, ...]  # of the runtime, in full; empty if `plugins` are not
    plugins: tuple[str, ...]  # as the native library takes them; src/plugin_providers.hpp explains the lines
    options: dict[str, str]  # of the first provider
    is_native: bool  # the native library can use them
    parameters: dict[str, object]  # of a backend that opens the model with them

    @property
    def key(self) -> tuple[object, ...]:
        return self.names, self.plugins, tuple(sorted(self.options.items()))


def choose_providers(provider: str | Sequence[str], options: Sequence[str], backend: str) -> Chosen:
    """Return the execution providers of the keys `provider` and `provider_options`.

    Raises:
        hami.ConfigError: a provider is not installed, or the keys contradict each other.
    """
    wanted = [name.strip() for name in ([provider] if isinstance(provider, str) else provider)]
    if not wanted:
        raise hami.ConfigError(
            f'{backend}: "provider" must name an execution provider, such as "cpu", got an empty list'
        )
    parsed = parse_provider_options(options, backend)
    if len(wanted) > 1 and wanted[-1].lower() in ("cpu", CPU.lower()):
        wanted.pop()  # the CPU runs what the others do not take
    if len(wanted) > 1 and any(name.lower() in ("cpu", CPU.lower()) for name in wanted):
        raise hami.ConfigError(
            f'{backend}: "cpu" takes every operator, so it must be the last "provider", got {", ".join(wanted)}'
        )
    found = [_plugin_of(name, backend) for name in wanted]
    plugins = [lines for lines in found if lines is not None]
    if not plugins:
        names = tuple(full_name(name, backend) for name in wanted)
        given: dict[str, object] = {
            "provider": names[0] if len(names) == 1 else list(names),
            "provider_options": list(options),
        }
        return Chosen(names, (), parsed, names == (CPU,), given)
    if len(plugins) < len(wanted):
        apart = ", ".join(name for name, lines in zip(wanted, found, strict=True) if lines is None)
        raise hami.ConfigError(
            f'{backend}: "provider" names {apart} of the package onnxruntime beside providers that are packages of '
            "their own; a model cannot use both, leave out one kind"
        )
    plugins[0] += [f"{key}={value}" for key, value in parsed.items()]
    return Chosen(
        (),
        tuple("\n".join(lines) for lines in plugins),
        parsed,
        True,
        {"provider": wanted, "provider_options": list(options)},
    )


def _plugin_of(name: str, backend: str) -> list[str] | None:
    """Return the lines for the native library, if a package of its own has this provider."""
    own, _, kind = name.partition(":")
    if kind and kind.lower() not in KINDS:
        raise hami.ConfigError(f'{backend}: provider "{name}" must end with :cpu, :gpu or :npu, or have no colon')
    installed = installed_providers()
    short = _SHORT_NAMES.get(own, own).lower()
    if short == "cpu":
        return None
    for plugin in installed:
        if short in (plugin.name, plugin.package.lower()):
            return _lines(plugin, "", kind)
    if short in _FULL_NAMES:
        return None  # the runtime has it, or the error says what to install
    for plugin in installed:  # a provider's own name is known when its library is registered
        try:
            devices = devices_of(plugin, _FULL_NAMES)
        except hami.PluginError:
            continue  # another one may have the name
        for device in devices:
            if own.lower() == device.provider.lower():
                return _lines(plugin, device.provider, kind)
    return None


def _lines(plugin: PluginProvider, own: str, kind: str) -> list[str]:
    return [plugin.registered(_FULL_NAMES), plugin.library, own, kind.lower()]


def plugin_devices() -> dict[str, str]:
    """Return what each provider that is a package of its own offers on this machine, or why it cannot be used."""
    found = {}
    for plugin in installed_providers():
        try:
            devices = ", ".join(map(str, devices_of(plugin, _FULL_NAMES)))
            text = devices or "no device on this machine"
        except hami.Error as error:
            text = str(error).splitlines()[0]
        found[f"{plugin.name} ({plugin.package} {plugin.version})"] = text
    return found


def full_name(provider: str, backend: str) -> str:
    """Return the full name of a provider. Raises ConfigError if the installed onnxruntime does not have it."""
    name = _FULL_NAMES.get(provider.strip().lower(), provider.strip())
    if name == CPU:
        return name  # every build has it
    import onnxruntime

    if name in onnxruntime.get_available_providers():
        return name
    short = _SHORT_NAMES.get(name)
    if short is None and name not in onnxruntime.get_all_providers():
        raise hami.ConfigError(
            f'{backend}: "{provider}" is not an execution provider of onnxruntime; '
            f"use one of {', '.join(dict.fromkeys([*_FULL_NAMES, *(each.name for each in installed_providers())]))}, "
            "or a full name such as CUDAExecutionProvider"
        )
    package = _PACKAGES.get(short or "")
    plugin = _PLUGIN_PACKAGES.get(short or "")
    remedy = (
        f"run: pip install {plugin}"
        if plugin
        else f"run: pip uninstall onnxruntime && pip install {package}"
        if package
        else f"install an onnxruntime that was built with {name}"
    )
    if installed := ", ".join(each.name for each in installed_providers()):
        remedy = f"use one of the installed packages, {installed}, or {remedy}"
    raise hami.ConfigError(
        f'{backend}: provider "{provider}" ({name}) is not in the installed onnxruntime {onnxruntime.__version__}, '
        f"which has {', '.join(available_providers())}; use one of these, or {remedy}"
    )


def check_active_provider(session: onnxruntime.InferenceSession, name: str, model: str, backend: str) -> None:
    """Raise ConfigError if onnxruntime silently replaced the requested provider."""
    active = session.get_providers()
    if active[:1] != [name]:
        raise hami.ConfigError(
            f'{backend}: provider {name} could not be started for "{model}", onnxruntime fell back to '
            f"{', '.join(active)}; see its log above for the missing driver or library"
        )


def parse_provider_options(options: Iterable[str], backend: str) -> dict[str, str]:
    """Parse options that are written as key=value. Raises ConfigError for a library that is not allowed.

    Some providers load a library that an option names: `backend_path` of QNN, `trt_extra_plugin_lib_paths` of TensorRT.
    """
    parsed = {}
    for option in options:
        key, equals, value = str(option).partition("=")
        if not equals or not key.strip():
            raise hami.ConfigError(f'{backend}: "provider_options" must be written as key=value, got {option!r}')
        parsed[key.strip()] = value.strip()
        for library in libraries_in([value]):
            hami.native.check_library(library, f'{key.strip()} in "provider_options" of {backend}')
    return parsed


def libraries_in(values: Iterable[str]) -> list[str]:
    """Return the files with native code that values of options name."""
    parts = (part.strip() for value in values for part in re.split("[;,:]", value))
    return [part for part in parts if _LIBRARY_NAME.search(part) or _is_library(part)]


def _is_library(path: str) -> bool:
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except (OSError, ValueError):  # a path with a NUL character, or a file that only others may read
        return False
