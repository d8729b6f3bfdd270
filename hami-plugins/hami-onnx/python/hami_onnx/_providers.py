"""Execution providers of ONNX Runtime: their short names, which are installed, and how to install the others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import hami

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
    "cann": "CANNExecutionProvider",
    "dnnl": "DnnlExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "azure": "AzureExecutionProvider",
}
_SHORT_NAMES = {full: short for short, full in _FULL_NAMES.items()}
_LIBRARY_NAME = re.compile(r"\.(so(\.[0-9.]+)?|dylib|dll)$", re.IGNORECASE)
_PACKAGES = {
    "cuda": "onnxruntime-gpu",
    "tensorrt": "onnxruntime-gpu",
    "openvino": "onnxruntime-openvino",
    "migraphx": "onnxruntime-migraphx",
    "directml": "onnxruntime-directml",
    "qnn": "onnxruntime-qnn",
    "cann": "onnxruntime-cann",
}


def available_providers() -> list[str]:
    """Return the providers of the installed onnxruntime: the short name of each, or its full name if it has none."""
    import onnxruntime

    names: list[str] = onnxruntime.get_available_providers()
    return [_SHORT_NAMES.get(name, name) for name in names]


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
            f"use one of {', '.join(_FULL_NAMES)}, or a full name such as CUDAExecutionProvider"
        )
    package = _PACKAGES.get(short or "")
    remedy = (
        f"run: pip uninstall onnxruntime && pip install {package}"
        if package
        else f"install an onnxruntime that was built with {name}"
    )
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
