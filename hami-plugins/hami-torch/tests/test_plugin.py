"""The package as a plugin: registered names, lazy imports, and errors without torch."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points, version

import hami
import torch
from hami_build.testing import check_backend

from hami_torch import plugin

OWNED_BY_HAMI_CUDA = {"CpuTensor", "GpuTensor", "StreamGuard", "StreamPool", "SyncTensor"}


class Registry:
    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def add(self, name: str, target: str) -> None:
        self.found[name] = target


def run_script(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_entry_point_is_registered_and_is_a_backend():
    registry = Registry()
    plugin.hami_register(registry)
    entry_names = {point.name for point in entry_points(group="hami.backends") if point.value == "hami_torch.plugin"}
    assert set(registry.found) == entry_names | OWNED_BY_HAMI_CUDA
    for name, target in registry.found.items():
        module, _, attribute = target.partition(":")
        backend = getattr(import_module(module), attribute)
        assert issubclass(backend, hami.Backend)
        assert backend.__name__ == name


def test_the_entry_module_imports_neither_torch_nor_numpy():
    code = "import sys, hami_torch.plugin; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    assert run_script(code) == "[]\n"


def test_the_report_names_torch_and_its_devices():
    report = plugin.hami_report()
    assert report["torch"] == torch.__version__
    assert report["torch devices"].split(", ")[0] == "cpu"


WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
import tempfile
import hami
from hami_torch import plugin

file = tempfile.NamedTemporaryFile(suffix=".pt2")

print(sorted(name for name, info in hami.backends().items() if info.owner == "hami-torch"))
try:
    hami.pipe({"backend": "TorchModel", "model": file.name})
except hami.PluginError as error:
    print(str(error).splitlines()[0])
print(plugin.hami_report())
print({record.distribution: record.error for record in hami.plugins(load=True)}["hami-torch"])
"""


def test_without_torch_backends_are_listed_and_their_use_names_the_missing_package():
    names, error, report, listed = run_script(WITHOUT_TORCH).splitlines()
    assert "'TorchModel'" in names
    missing = (
        "torch is not installed; hami-torch needs torch 2.3 or newer, of the build that fits your CUDA driver: "
        "pip install torch"
    )
    provider = f"hami-torch {version('hami-torch')}"
    assert error.endswith(f": {missing}")
    assert provider in error
    assert report == str({"torch": missing})
    assert listed == missing


def test_a_torch_that_is_too_old_is_rejected_with_its_version():
    code = (
        "import torch; torch.__version__ = '2.2.1+cpu'\n"
        "try: import hami_torch._torch\n"
        "except ImportError as error: print(error)"
    )
    assert run_script(code) == "torch 2.2.1+cpu is installed; hami-torch needs torch 2.3 or newer\n"


def test_the_backends_pass_the_checks_of_hami_testing():
    check_backend("GpuTensor", {"device": "cpu"}, {"data": torch.ones(1, 2)})
    check_backend("CpuTensor", {}, {"data": torch.ones(1, 2)})
    check_backend(
        "TorchModel",
        {"device": "cpu", "factory": "helpers:Double", "row_shape": [2], "max": 8},
        {"data": torch.ones(1, 2)},
    )
    check_backend("SyncTensor[Identity]", {"device": "cpu"}, {"data": torch.ones(1, 2)})
