"""The package as a plugin: its entry points match its backends, and registering them imports no heavy library."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from unittest.mock import Mock

import hami
from hami.__main__ import main

from hami_onnx import plugin
from hami_onnx._runtime import find_library


def test_every_declared_name_is_a_backend_of_this_package():
    declared = {point.name for point in entry_points(group="hami.backends") if point.value == "hami_onnx.plugin"}
    assert {name for name, found in hami.backends(load=True).items() if found.owner == "hami-onnx"} == declared


def test_the_library_is_registered_with_the_path_of_onnxruntime():
    registry = Mock()
    plugin.hami_register(registry)
    ((library, defaults),) = (call.args for call in registry.add_library.call_args_list)
    assert library.is_file()
    assert defaults == {"onnxruntime": str(find_library())}


def test_the_entry_module_imports_no_onnxruntime_and_no_numpy():
    code = "import sys, hami_onnx.plugin; print(sorted({'onnxruntime', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_report_names_the_version_of_onnxruntime_and_its_providers():
    report = plugin.hami_report()
    assert "cpu" in report["onnxruntime providers"].split(", ")
    assert report["onnxruntime"].count(".") == 2


def test_info_and_plugins_list_the_devices_of_providers(monkeypatch, capsys):
    monkeypatch.setattr(
        "hami_onnx._providers.plugin_devices", lambda: {"acme (onnxruntime-ep-acme 1.0)": "acme on npu"}
    )
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["engine"]["acme (onnxruntime-ep-acme 1.0)"] == "acme on npu"
    main(["plugins", "--load"])
    assert "device acme (onnxruntime-ep-acme 1.0): acme on npu" in capsys.readouterr().out


def test_the_backends_are_imported_by_a_python_without_ctypes():
    """Python is built without it where libffi is missing, or the library is absent on the machine."""
    code = 'import sys; sys.modules["_ctypes"] = None; import hami_onnx.load_onnx, hami_onnx.onnx_model'
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
