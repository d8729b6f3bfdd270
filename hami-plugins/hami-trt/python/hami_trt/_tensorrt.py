"""The one place that imports TensorRT or TensorRT-RTX, and that knows how their versions differ."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import hami

# How each library is asked for, the modules that may hold it, and what installs it; the first one found is taken.
LIBRARIES = {
    "tensorrt": (("tensorrt", "tensorrt_bindings"), "tensorrt-cu13"),
    "tensorrt-rtx": (("tensorrt_rtx", "tensorrt_rtx_bindings"), "tensorrt-rtx-cu13"),
}


class Library:
    """TensorRT or TensorRT-RTX, as installed: `name` is how it is asked for, `module` what was imported."""

    def __init__(self, name: str, module: ModuleType | Any) -> None:
        self.name = name
        self.module = module
        self.version = str(module.__version__)
        self.logger = _logger(module)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def find_library(name: str | None, owner: str) -> Library:
    """Return the library that parameter `library` names, or the one that is installed, TensorRT first."""
    reasons = []
    for wanted in LIBRARIES if name is None else (name,):
        modules, _ = LIBRARIES[wanted]
        for module in modules:
            try:
                return Library(wanted, importlib.import_module(module))
            except ImportError as error:
                if error.name == module:
                    continue
                reasons.append(f"{wanted}: {error}")
    raise hami.ConfigError(f"{owner}: no TensorRT is installed")


def _logger(module: Any) -> Any:
    """What the library says goes to Python's logging, "hami.trt"."""
    log = logging.getLogger("hami.trt")
    levels = {
        module.ILogger.Severity.INTERNAL_ERROR: logging.CRITICAL,
        module.ILogger.Severity.ERROR: logging.ERROR,
        module.ILogger.Severity.WARNING: logging.WARNING,
        module.ILogger.Severity.INFO: logging.INFO,
        module.ILogger.Severity.VERBOSE: logging.DEBUG,
    }

    class Logger(module.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            module.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            with contextlib.suppress(Exception):  # nothing may be raised into the library
                log.log(levels[severity], message)

    return Logger()


def _names(enumeration: Any) -> Iterator[str]:
    return iter(getattr(enumeration, "__members__", ()))
