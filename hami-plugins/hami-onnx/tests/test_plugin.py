"""The package as a plugin: its entry points match its backends, and registering them imports no heavy library."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import hami

from hami_onnx import plugin
from hami_onnx._runtime import find_library


class Registry:
    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.libraries: dict[Path, dict[str, str]] = {}

    def add(self, name: str, target: str) -> None:
        self.found[name] = target

    def add_library(self, path: Path, defaults: dict[str, str]) -> None:
        self.libraries[path] = defaults


def test_every_declared_name_is_registered_and_is_a_backend():
    registry = Registry()
    plugin.hami_register(registry)
    declared = {point.name for point in entry_points(group="hami.backends") if point.value == "hami_onnx.plugin"}
    assert {name for name, found in hami.backends(load=True).items() if found.owner == "hami-onnx"} == declared
    assert declared - set(registry.found) == {"OnnxSession", "OnnxTensor"}
    ((library, defaults),) = registry.libraries.items()
    assert library.is_file()
    assert defaults == {"onnxruntime": str(find_library())}
    for name, target in registry.found.items():
        module, _, attribute = target.partition(":")
        backend = getattr(import_module(module), attribute)
        assert issubclass(backend, hami.Backend)
        assert backend.__name__ == name


def test_the_entry_module_imports_no_onnxruntime_and_no_numpy():
    code = "import sys, hami_onnx.plugin; print(sorted({'onnxruntime', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_report_names_the_version_of_onnxruntime_and_its_providers():
    report = plugin.hami_report()
    assert "cpu" in report["onnxruntime providers"].split(", ")
    assert report["onnxruntime"].count(".") == 2


def test_the_backends_are_imported_by_a_python_without_ctypes():
    """Python is built without it where libffi is missing, or the library is absent on the machine."""
    code = 'import sys; sys.modules["_ctypes"] = None; import hami_onnx.load_onnx, hami_onnx.onnx_model'
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
