"""Execution providers: short names, what is installed, and what to say about one that is not."""

from __future__ import annotations

from collections.abc import Iterable

import hami
import onnxruntime

_SHORT = {
    "cpu": "CPUExecutionProvider",
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
_LONG = {name: short for short, name in _SHORT.items()}
_PACKAGES = {
    "cuda": "onnxruntime-gpu",
    "tensorrt": "onnxruntime-gpu",
    "openvino": "onnxruntime-openvino",
    "migraphx": "onnxruntime-migraphx",
    "directml": "onnxruntime-directml",
    "qnn": "onnxruntime-qnn",
    "cann": "onnxruntime-cann",
}


def available() -> list[str]:
    """Return the providers of the installed onnxruntime, by short name where there is one."""
    return [_LONG.get(name, name) for name in onnxruntime.get_available_providers()]


def full_name(provider: str, owner: str) -> str:
    """Return onnxruntime's name of a provider that is installed; `owner` is the backend that asks."""
    name = _SHORT.get(provider.strip().lower(), provider.strip())
    if name in onnxruntime.get_available_providers():
        return name
    short = _LONG.get(name)
    if short is None and name not in onnxruntime.get_all_providers():
        raise hami.ConfigError(
            f'{owner}: "{provider}" is no execution provider of onnxruntime; '
            f"there are {', '.join(_SHORT)}, and the full names as CUDAExecutionProvider"
        )
    package = _PACKAGES.get(short or "")
    remedy = (
        f"pip uninstall onnxruntime && pip install {package}"
        if package
        else f"install an onnxruntime that was built with {name}"
    )
    raise hami.ConfigError(
        f'{owner}: provider "{provider}" ({name}) is not in the installed onnxruntime {onnxruntime.__version__}, '
        f"which has {', '.join(available())}; use one of these, or: {remedy}"
    )


def check_used(session: onnxruntime.InferenceSession, name: str, model: str, owner: str) -> None:
    """Refuse a session that onnxruntime quietly moved to another provider than the one asked for."""
    used = session.get_providers()
    if used[:1] != [name]:
        raise hami.ConfigError(
            f'{owner}: provider {name} could not be started for "{model}", onnxruntime fell back to {", ".join(used)}; '
            "its log above says what is missing (driver or libraries of the device)"
        )


def parse_options(options: Iterable[str], owner: str) -> dict[str, str]:
    """Read provider options, each written key=value."""
    parsed = {}
    for option in options:
        key, equals, value = str(option).partition("=")
        if not equals or not key.strip():
            raise hami.ConfigError(f'{owner}: "provider_options" are written key=value, got {option!r}')
        parsed[key.strip()] = value.strip()
    return parsed
