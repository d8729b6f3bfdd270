"""The device of a build, its model and its options, with a mock of the library."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from types import SimpleNamespace

import hami
import models
import pytest
from hami_tensor import Device

from hami_trt import _build, _prepare
from hami_trt._build_options import BuildOptions
from hami_trt._onnx_files import hash_model


@pytest.fixture
def model(tmp_path):
    return models.convolution(tmp_path / "model.onnx")


class Library:
    """Builds nothing, and records which device is current during a build."""

    logger = None

    def __init__(self, current) -> None:
        self.devices = []
        self._record = lambda: self.devices.append(getattr(current, "index", 0))
        self.module = SimpleNamespace(Builder=self._builder)

    def _builder(self, logger):
        self._record()
        return SimpleNamespace(build_serialized_network=lambda network, config: self._record() or b"plan")

    @contextmanager
    def collect_errors(self):
        yield []

    def new_network(self, builder, precision):
        return None

    def progress_monitor(self, progress):
        return None

    def check_compute_capabilities(self, given, owner):
        pass


def test_the_device_is_current_on_every_thread_of_a_build(model, monkeypatch):
    current = threading.local()  # each thread has its own current device, as in CUDA

    @contextmanager
    def use_device(device):
        previous, current.index = getattr(current, "index", 0), device.index
        yield
        current.index = previous

    monkeypatch.setattr("hami_cuda.device.as_current", use_device)
    for step in ("_parse", "_profile_shapes", "_add_normalization", "_check_precision", "_builder_config"):
        monkeypatch.setattr(_build, step, lambda *given: None)
    library = Library(current)
    _build.build(BuildOptions(model=model, library=library, owner="Owner", device=Device("cuda:1")))
    _build.build(BuildOptions(model=model, library=library, owner="Owner"))
    assert library.devices == [1, 1, 0, 0]


def test_replacing_the_model_during_a_build_is_an_error(model, monkeypatch, tmp_path):
    options = BuildOptions(model=model, library=Library(None), owner="Owner")
    recipe = {"model": hash_model(model, "Owner")}
    monkeypatch.setattr(_prepare, "build", lambda options: (b"engine", {}))
    models.convolution(model, seed=1)
    with pytest.raises(hami.ConfigError) as raised:
        _prepare.prepare_engine(options, recipe, tmp_path / "cache")
    assert str(raised.value) == (f'Owner: "{model}" was replaced while its engine was built; build the engine again')
    assert not list((tmp_path / "cache").glob("*.trt"))


@pytest.mark.parametrize("wrong", [[[1, 2]], [None], ["x"], [float("nan")], [float("inf")]])
@pytest.mark.parametrize("name", ["mean", "std"])
def test_mean_and_std_must_be_numbers(model, name, wrong):
    with pytest.raises(hami.ConfigError) as raised:
        BuildOptions(model=model, library=Library(None), owner="Owner", **{name: wrong})
    assert str(raised.value) == f'Owner: "{name}" must be a list of finite numbers, got {wrong}'


@pytest.mark.parametrize(
    ("given", "count"), [({}, 0), ({"version_compatible": True}, 1), ({"hardware_compatible": "ampere_plus"}, 1)]
)
def test_a_portable_engine_is_parsed_without_plugins(model, given, count):
    parsers = []
    library = Library(None)
    library.parse_without_plugins = parsers.append
    parser = SimpleNamespace(parse_from_file=lambda path: True, num_errors=0)
    library.module.OnnxParser = lambda network, logger: parser
    options = BuildOptions(model=model, library=library, owner="Owner", **given)
    _build._parse(SimpleNamespace(num_outputs=1), options)
    assert parsers == [parser] * count
