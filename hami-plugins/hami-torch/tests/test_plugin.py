"""The package as a plugin: what it promises is what it has, looking it up costs nothing, and torch may be missing."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points

import hami
import hami.testing
import torch

from hami_torch import plugin

SHARED = {"CatTensor", "ContiguousTensor", "FixTensor", "NormalizeTensor", "SplitTensor"}


class Registry:
    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def add(self, name: str, target: str) -> None:
        self.found[name] = target


def run_script(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_promised_name_is_registered_and_is_a_backend():
    registry = Registry()
    plugin.hami_register(registry)
    promised = {point.name for point in entry_points(group="hami.backends") if point.value == "hami_torch.plugin"}
    assert set(registry.found) == promised | SHARED
    for name, target in registry.found.items():
        module, _, attribute = target.partition(":")
        backend = getattr(import_module(module), attribute)
        assert issubclass(backend, hami.Backend)
        assert backend.__name__ == name


def test_names_that_others_have_stay_theirs_and_ours_are_asked_for_by_package(pipe):
    data = torch.ones(2, 2).T
    with hami.pipe("ContiguousTensor") as core:
        assert isinstance(core({"data": data})["result"], hami.Tensor)
    assert isinstance(pipe("hami-torch::ContiguousTensor")({"data": data})["result"], torch.Tensor)
    with hami.pipe(
        {"providers": {"ContiguousTensor": "hami-torch"}, "node": {"backend": "ContiguousTensor", "device": "cpu"}}
    ) as ours:
        assert isinstance(ours({"data": data})["result"], torch.Tensor)


def test_the_entry_module_imports_no_torch_and_no_numpy():
    code = "import sys, hami_torch.plugin; print(sorted({'torch', 'numpy', 'PIL'} & set(sys.modules)))"
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
import hami
from hami_torch import plugin

print(sorted(name for name, info in hami.backends().items() if info.owner == "hami-torch"))
try:
    hami.pipe({"backend": "TorchModel", "model": "m.pt2"})
except hami.PluginError as error:
    print(str(error).splitlines()[0])
print(plugin.hami_report())
"""


def test_without_torch_the_backends_are_listed_and_using_one_says_what_is_missing():
    names, told, report = run_script(WITHOUT_TORCH).splitlines()
    assert "'TorchModel'" in names
    missing = (
        "torch is not installed; hami-torch needs torch 2.3 or newer, of the build that fits your CUDA driver: "
        "pip install torch"
    )
    assert told == f'backend "TorchModel" is provided by hami-torch 0.1.0, which failed to load: {missing}'
    assert report == str({"torch": missing})


def test_a_torch_that_is_too_old_is_named():
    code = (
        "import torch; torch.__version__ = '2.2.1+cpu'\n"
        "try: import hami_torch._torch\n"
        "except ImportError as error: print(error)"
    )
    assert run_script(code) == "torch 2.2.1+cpu is installed; hami-torch needs torch 2.3 or newer\n"


def test_the_backends_keep_the_rules_of_any_pipe():
    hami.testing.check_backend("GpuTensor", {"device": "cpu"}, {"data": torch.ones(1, 2)})
    hami.testing.check_backend("CpuTensor", {}, {"data": torch.ones(1, 2)})
    hami.testing.check_backend(
        "ResizeTensor", {"device": "cpu", "width": 4, "height": 4}, {"data": torch.ones(1, 3, 8, 8)}
    )
    hami.testing.check_backend(
        "TorchModel", {"device": "cpu", "factory": "helpers:Double", "max": 8}, {"data": torch.ones(1, 2)}
    )
    hami.testing.check_backend("SyncTensor[Identity]", {"device": "cpu"}, {"data": torch.ones(1, 2)})
