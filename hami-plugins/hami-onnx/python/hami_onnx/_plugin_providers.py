"""Execution providers that are packages of their own: found by their files, so their code does not run before use."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import hami

# Lines of RECORD. The folder of the package onnxruntime has the providers that are part of the runtime.
_LIBRARY = re.compile(
    r'^"?(?!onnxruntime/)((?:[^,"\n]*/)?lib[^,"/\n]*onnx[^,"/\n]*\.so[.0-9]*)"?,', re.IGNORECASE | re.MULTILINE
)
_ENTRY = b"CreateEpFactories"  # the function that ONNX Runtime calls
KINDS = ("cpu", "gpu", "npu")


class PluginProvider(NamedTuple):
    """An installed library of an execution provider."""

    name: str  # for the key `provider`
    package: str
    version: str
    library: str  # its path

    def registered(self, full_names: dict[str, str]) -> str:
        """Return the name with which the library is registered, which some providers report as their own."""
        return full_names.get(self.name, self.name)


class Device(NamedTuple):
    """What a provider offers on this machine."""

    provider: str  # its own name for it
    vendor: str
    kind: str  # cpu, gpu or npu
    hardware: str

    def __str__(self) -> str:
        return f"{self.provider} on {self.kind} ({self.hardware})"


@cache
def installed_providers() -> tuple[PluginProvider, ...]:
    """Return the providers of the installed packages, by name."""
    found = {each.name: each for package in metadata.distributions() for each in _providers_of(package)}
    return tuple(found[name] for name in sorted(found))


def _providers_of(package: metadata.Distribution) -> Iterator[PluginProvider]:
    try:
        files = _LIBRARY.findall(package.read_text("RECORD") or "")
    except (OSError, ValueError):  # damaged
        return
    stems = {}
    for file in sorted(files, key=len, reverse=True):  # libx.so and libx.so.1 are the same library
        path = Path(str(package.locate_file(file)))
        if _is_provider(path):
            stems[path.name.partition(".so")[0]] = path
    package_name = package.metadata["Name"]
    name = re.sub(r"^onnxruntime-(ep-)?", "", re.sub(r"[-_.]+", "-", package_name).lower())
    for stem, path in stems.items():
        own = name if len(stems) == 1 else f"{name}-{stem.removeprefix('lib')}"
        yield PluginProvider(own, package_name, package.version, str(path.resolve()))


def _is_provider(path: Path) -> bool:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(_ENTRY) >= 0
    except (OSError, ValueError):  # missing, or empty
        return False


def devices_of(provider: PluginProvider, full_names: dict[str, str]) -> list[Device]:
    """Register a provider's library, and return its devices; none if this machine has no hardware for it.

    Raises:
        hami.PluginError: ONNX Runtime cannot use the library.
    """
    with hami.pipe({"backend": "hami-onnx::OnnxDevices"}) as pipe:
        found: list[dict[str, Any]] = pipe({"data": [provider.registered(full_names), provider.library]})["result"]
    return [Device(**each) for each in found]
