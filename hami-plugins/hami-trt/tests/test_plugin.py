"""The package as a plugin: its names, and its errors if TensorRT or a GPU is missing."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points, requires, version

import hami
import pytest
from fake_tensorrt import Fake
from hami_tensor import Device
from helpers import message

from hami_trt import _gpu, _tensorrt, plugin
from hami_trt._gpu import find_device


class Registry:
    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.generated: dict[str, str] = {}

    def add(self, name: str, target: str) -> None:
        self.found[name] = target

    def generate(self, name: str, expression: str) -> None:
        self.generated[name] = expression


def run_script(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_entry_point_is_registered_and_is_a_backend():
    registry = Registry()
    plugin.hami_register(registry)
    declared = {point.name for point in entry_points(group="hami.backends") if point.value == "hami_trt.plugin"}
    assert {*registry.found, *registry.generated} == declared
    for name, target in registry.found.items():
        module, _, attribute = target.partition(":")
        backend = getattr(import_module(module), attribute)
        assert issubclass(backend, hami.Backend)
        assert backend.__name__ == name


def test_tensorrt_tensor_is_a_generated_name_of_this_package():
    with pytest.raises(hami.ConfigError, match="selects by the suffix of `model`, which is missing"):
        hami.pipe("TensorrtTensor")
    info = hami.backends()["TensorrtTensor"]
    assert info.owner == "hami-trt"
    assert info.doc == f"Stands for {plugin.TENSORRT_TENSOR}."


def test_the_entry_module_imports_neither_torch_nor_tensorrt():
    code = (
        "import sys, hami_trt.plugin\n"
        "print([name for name in sys.modules if name.partition('_')[0] in ('torch', 'numpy', 'tensorrt')])"
    )
    assert run_script(code) == "[]\n"


WITHOUT = """
import sys

sys.modules.update(dict.fromkeys({missing!r}))
import tempfile
import hami
from hami_trt import plugin

file = tempfile.NamedTemporaryFile(suffix=".trt")
print(sorted(name for name, info in hami.backends().items() if info.owner == "hami-trt"))
try:
    hami.pipe({{"backend": {backend!r}, "model": file.name}})
except hami.Error as error:
    print(str(error).splitlines()[0])
print(plugin.hami_report())
print({{record.distribution: record.error for record in hami.plugins(load=True)}}["hami-trt"])
"""
NAMES = "['LoadTensorrtEngine', 'Onnx2Tensorrt', 'TensorrtInferTensor', 'TensorrtTensor']"
LIBRARY_MODULES = [module for library in _tensorrt.LIBRARIES.values() for module in library.modules]


def failed_to_load(backend: str, missing: str) -> str:
    return f'backend "{backend}" is provided by hami-trt {version("hami-trt")}, which failed to load: {missing}'


@pytest.mark.parametrize("backend", ["TensorrtInferTensor", "LoadTensorrtEngine", "Onnx2Tensorrt"])
def test_without_tensorrt_the_error_and_the_list_of_plugins_have_one_command(backend):
    """The backends are listed, and a missing library is reported before a missing GPU."""
    names, error, report, listed = run_script(WITHOUT.format(missing=LIBRARY_MODULES, backend=backend)).splitlines()
    assert names == NAMES
    found = run_script("from hami_trt import _tensorrt, plugin; print(_tensorrt.cuda_version(), plugin.hami_report())")
    extra = "cu12" if found.startswith("(12, ") else "cu13"
    missing = f'TensorRT is not installed: pip install "hami-trt[{extra}]"'
    assert error == failed_to_load(backend, missing)
    assert listed == missing
    assert report == str(
        {
            "tensorrt": 'not installed: pip install "hami-trt[cu13]"',
            "tensorrt-rtx": 'not installed: pip install "hami-trt[rtx]"',
            "GPUs": re.search("'GPUs': '(.*)'}", found)[1],
        }
    )


def test_nothing_of_the_package_imports_torch():
    code = """
import sys
sys.modules["torch"] = None  # importing it is an error
import hami
from hami_trt import _compile, _tensorrt
_tensorrt.require_library = lambda: None
from hami_trt import _backends
print([name for name in _backends.__all__])
"""
    assert run_script(code) == "['LoadTensorrtEngine', 'Onnx2Tensorrt', 'TensorrtInferTensor']\n"


@pytest.mark.parametrize(
    ("cuda", "extra"), [((11, 8), "cu12"), ((12, 8), "cu12"), ((13, 0), "cu13"), ((14, 1), "cu13"), (None, "cu13")]
)
def test_the_command_fits_the_driver(monkeypatch, without_libraries, cuda, extra):
    monkeypatch.setattr(_tensorrt, "cuda_version", lambda: cuda)
    with pytest.raises(ImportError) as raised:
        without_libraries()
    assert str(raised.value) == f'TensorRT is not installed: pip install "hami-trt[{extra}]"'


def test_a_missing_library_that_a_parameter_names_is_an_error(monkeypatch):
    for module in LIBRARY_MODULES:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(_tensorrt, "_load", _tensorrt._load.__wrapped__)  # without the cache of loaded libraries
    for name, text in {
        "tensorrt-rtx": 'tensorrt-rtx, which is not installed: pip install "hami-trt[rtx]"',
        None: 'tensorrt or tensorrt-rtx, which is not installed: pip install "hami-trt[cu13]" or '
        'pip install "hami-trt[rtx]"',
    }.items():
        with pytest.raises(hami.ConfigError) as raised:
            _tensorrt.find_library(name, "hami compile")
        assert str(raised.value) == f"hami compile needs {text}"


def test_each_extra_names_packages_that_have_its_library():
    """On PyPI, tensorrt-cu12 starts with 10.0.1 and tensorrt-cu13 with 10.13. 9.3 has other names, on another index."""
    declared = [requirement.split(";") for requirement in requires("hami-trt") if "extra" in requirement]
    extras: dict[str, set[str]] = {}
    for requirement, marker in declared:
        extras.setdefault(re.search("['\"](.*)['\"]", marker)[1], set()).add(requirement.strip())
    del extras["test"]
    assert extras == {
        "cu12": {"tensorrt-cu12>=10.0.1"},
        "cu13": {"tensorrt-cu13>=10.13"},
        "trt93": {"tensorrt-bindings==9.3.0.post12.dev1", "tensorrt-libs==9.3.0.post12.dev1"},
        "rtx": {"tensorrt-rtx-cu13>=1.2"},
    }
    assert {library.extra for library in _tensorrt.LIBRARIES.values()} <= extras.keys()


def test_the_report_has_the_library_and_the_gpus_it_supports(fake, monkeypatch):
    monkeypatch.setattr(_tensorrt, "_load", lambda name: _tensorrt.Library(name, fake))
    fake.ComputeCapability = CAPABILITIES
    report = plugin.hami_report()
    assert report["tensorrt-rtx"] == "10.9.0, on compute capability 7.5, 8.9, 12.0"
    assert report["GPUs"] == "Fake GPU 0 (compute capability 9.0)"
    monkeypatch.setattr(_gpu, "devices", list)
    assert plugin.hami_report()["GPUs"] == "none that the NVIDIA driver sees"


class CAPABILITIES:
    __members__ = dict.fromkeys(("NONE", "CURRENT", "SM75", "SM89", "SM120"), 0)


@pytest.fixture
def gpu(driver, monkeypatch):
    """gpu(9, 0) gives the GPU of the fake driver that compute capability."""
    return lambda *capability: monkeypatch.setattr(_gpu, "compute_capability", lambda device: capability)


@pytest.fixture
def rtx():
    module = Fake("1.7.1")
    module.ComputeCapability = CAPABILITIES
    return _tensorrt.Library("tensorrt-rtx", module)


def test_a_gpu_that_the_library_does_not_support_is_an_error(gpu, rtx):
    gpu(9, 0)
    with pytest.raises(hami.ConfigError) as raised:
        find_device(rtx, "cuda", "Onnx2Tensorrt")
    assert str(raised.value) == (
        "Onnx2Tensorrt: tensorrt-rtx 1.7.1 does not run on Fake GPU 0 (compute capability 9.0); it runs on compute "
        'capability 7.5, 8.9, 12.0; use TensorRT on this GPU: pip install "hami-trt[cu13]"'
    )


def test_a_supported_gpu_is_used(gpu, rtx):
    gpu(8, 9)
    assert find_device(rtx, "cuda", "Onnx2Tensorrt") == Device("cuda:0")
    gpu(9, 0)
    assert find_device(_tensorrt.Library("tensorrt", Fake()), "cuda:0", "Onnx2Tensorrt") == Device("cuda:0")


def test_without_a_gpu_the_error_does_not_suggest_the_cpu(monkeypatch, tmp_path):
    model = tmp_path / "m.trt"
    model.touch()
    monkeypatch.setattr(_tensorrt, "_load", lambda name: _tensorrt.Library(name, Fake()))
    monkeypatch.setattr("hami_cuda.device.devices", list)
    for found, missing in (
        (None, "is not installed, or not visible in this container; install a driver for CUDA 11.8 or newer"),
        ((12, 8), "finds no GPU; check that CUDA_VISIBLE_DEVICES does not hide it"),
    ):
        monkeypatch.setattr("hami_cuda.device.cuda_version", lambda found=found: found)
        with pytest.raises(hami.ConfigError) as raised:
            hami.pipe({"backend": "TensorrtTensor", "model": model})
        assert message(raised) == (f'LoadTensorrtEngine: device "cuda:0" is not available: the NVIDIA driver {missing}')
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe({"backend": "TensorrtTensor", "model": model, "device": "cpu"})
    assert message(raised) == 'LoadTensorrtEngine: "device" must be cuda, cuda:N or N, got "cpu"'


def test_loader_and_runner_must_use_the_same_device(pipe, engine, monkeypatch):
    @hami.register
    class MovesTheEngine(hami.Backend):
        def init(self, options):
            monkeypatch.setattr(options["tensorrt_engine"], "device", Device("cuda:1"))

        def forward(self, batch):
            """Never runs."""

    with pytest.raises(hami.ConfigError) as raised:
        pipe("IoC[LoadTensorrtEngine,MovesTheEngine,TensorrtInferTensor;TensorrtInferTensor]", model=engine())
    assert message(raised) == (
        "TensorrtInferTensor: device is cuda:0, but the engine is on cuda:1; set device once, in the node"
    )
