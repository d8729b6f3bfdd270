"""The command `hami info`: prints what the machine, the container and the installed engines offer. It never fails."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import hami
from hami.cli import json_of, print_table, printable
from hami.packages import devices

from hami_tools import machine

# Distributions of the engines, and the module that each of them contains.
ENGINES = {
    "onnxruntime": "onnxruntime",
    "onnxruntime-gpu": "onnxruntime",
    "openvino": "openvino",
    "tensorrt": "tensorrt",
    "tensorrt-rtx": "tensorrt_rtx",
    "torch": "torch",
}
GIB = 1 << 30

Facts = dict[str, Any]


def info(arguments: argparse.Namespace) -> int:
    """Print the facts, grouped by topic."""
    found = {topic: _safely(facts) for topic, facts in TOPICS.items()}
    if arguments.json:
        print(json_of(found))
        return 0
    rows = [[f"{topic}: {name}", _shown(value)] for topic, facts in found.items() for name, value in facts.items()]
    print_table(rows)
    return 0


def _safely(facts: Callable[[], Iterator[tuple[str, Any]]]) -> Facts:
    """Collect facts; an error is a fact too."""
    found: Facts = {}
    try:
        for name, value in facts():
            found[name] = value
    except Exception as error:  # a damaged driver or package may raise anything
        found["error"] = f"{type(error).__name__}: {printable(str(error))}"
    return found


def _shown(value: Any) -> str:
    return " ".join(printable(str(value)).split())


def _software() -> Iterator[tuple[str, Any]]:
    yield "hami-core", _version("hami-core")
    yield "python", f"{platform.python_version()} {platform.python_implementation()}"
    yield "gil", "yes" if getattr(sys, "_is_gil_enabled", lambda: True)() else "no"
    yield "system", f"{platform.system()} {platform.release()} {platform.machine()}"
    yield "libc", " ".join(platform.libc_ver()).strip() or "unknown"


def _cpu() -> Iterator[tuple[str, Any]]:
    yield "model", _cpu_model()
    yield "present", os.cpu_count() or 1
    yield "allowed", machine.allowed_cpus()
    quota = machine.cpu_quota()
    yield "container limit", "none" if quota is None else quota
    yield "usable", machine.cpus()
    yield "load", " ".join(f"{value:.2f}" for value in os.getloadavg())


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or "unknown"


def _memory() -> Iterator[tuple[str, Any]]:
    amounts = {}
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        amounts[name] = int(value.split()[0]) * 1024
    yield "total GiB", round(amounts["MemTotal"] / GIB, 1)
    yield "available GiB", round(amounts["MemAvailable"] / GIB, 1)
    limit = machine.memory_limit()
    yield "container limit", "none" if limit is None else f"{limit / GIB:.1f} GiB"


def _engines() -> Iterator[tuple[str, Any]]:
    for distribution, module in ENGINES.items():
        version = _version(distribution)
        if version is not None:
            usable = importlib.util.find_spec(module) is not None
            yield distribution, version if usable else f"{version}, but the module {module} is missing"
    for plugin in sorted({plugin.distribution for plugin in hami.plugins() if plugin.distribution}):
        yield plugin, _version(plugin)
    yield from devices()


def _gpus() -> Iterator[tuple[str, Any]]:
    try:
        import pynvml
    except ImportError:
        driver = Path("/proc/driver/nvidia/version")
        if driver.is_file():
            yield "driver", driver.read_text(encoding="utf-8", errors="replace").splitlines()[0]
            yield "note", 'more with nvidia-ml-py: pip install "hami-tools[gpu]"'
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield "none", str(error)
        return
    try:
        yield "driver", _text(pynvml.nvmlSystemGetDriverVersion())
        cuda = int(pynvml.nvmlSystemGetCudaDriverVersion())
        yield "CUDA of the driver", f"{cuda // 1000}.{cuda % 1000 // 10}"
        for index in range(int(pynvml.nvmlDeviceGetCount())):
            device = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(device)
            name = _text(pynvml.nvmlDeviceGetName(device))
            yield str(index), f"{name}, {memory.free / GIB:.1f} of {memory.total / GIB:.1f} GiB free"
    finally:
        pynvml.nvmlShutdown()


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


TOPICS: dict[str, Callable[[], Iterator[tuple[str, Any]]]] = {
    "software": _software,
    "cpu": _cpu,
    "memory": _memory,
    "gpu": _gpus,
    "engine": _engines,
}
