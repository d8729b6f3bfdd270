"""What surrounds a build: the device it runs on, and the model that it is of; with a stand-in for the library."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from types import SimpleNamespace

import hami
import pytest
import torch

from hami_trt import _build, _engines
from hami_trt._onnx_files import hash_of
from hami_trt._options import Options


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x0a\x03old")
    return path


class Library:
    """Builds nothing, and notes which device is current when it is asked to."""

    logger = None

    def __init__(self, current) -> None:
        self.seen = []
        self._tell = lambda: self.seen.append(getattr(current, "index", 0))
        self.module = SimpleNamespace(Builder=self._builder)

    def _builder(self, logger):
        self._tell()
        return SimpleNamespace(build_serialized_network=lambda network, config: self._tell() or b"plan")

    @contextmanager
    def errors(self):
        yield []

    def new_network(self, builder, precision):
        return None

    def progress_monitor(self, progress):
        return None

    def check_compute_capabilities(self, given, owner):
        pass


def test_the_device_is_the_current_one_on_every_thread_of_a_build(model, monkeypatch):
    current = threading.local()  # as CUDA has it: of each thread

    @contextmanager
    def device(which):
        before, current.index = getattr(current, "index", 0), which.index
        yield
        current.index = before

    monkeypatch.setattr(torch.cuda, "device", device)
    for step in ("_parse", "_ranges", "_normalise", "_check_precision", "_configured"):
        monkeypatch.setattr(_build, step, lambda *given: None)
    library = Library(current)
    _build.build(Options(model=model, library=library, owner="Owner", device=torch.device("cuda", 1)))
    _build.build(Options(model=model, library=library, owner="Owner"))
    assert library.seen == [1, 1, 0, 0]


def test_a_model_that_is_replaced_meanwhile_is_not_taken_for_the_one_before(model, monkeypatch, tmp_path):
    options = Options(model=model, library=Library(None), owner="Owner")
    recipe = {"model": hash_of(model, "Owner")}
    monkeypatch.setattr(_engines, "build", lambda options: (b"engine", {}))
    model.write_bytes(b"\x0a\x03new")
    with pytest.raises(hami.ConfigError) as raised:
        _engines.engine_of(options, recipe, tmp_path / "cache")
    assert str(raised.value) == (
        f'Owner: "{model}" was replaced while its engine was built, which may be of either; start again'
    )
    assert not list((tmp_path / "cache").glob("*.trt"))


@pytest.mark.parametrize("wrong", [[[1, 2]], [None], ["x"], [float("nan")], [float("inf")]])
@pytest.mark.parametrize("name", ["mean", "std"])
def test_what_are_no_numbers_is_refused(model, name, wrong):
    with pytest.raises(hami.ConfigError) as raised:
        Options(model=model, library=Library(None), owner="Owner", **{name: wrong})
    assert str(raised.value) == f'Owner: "{name}" is a list of numbers, got {wrong}'


@pytest.mark.parametrize(
    ("given", "said"), [({}, 0), ({"version_compatible": True}, 1), ({"hardware_compatible": "ampere_plus"}, 1)]
)
def test_an_engine_for_elsewhere_is_parsed_without_plugins(model, given, said):
    parsers = []
    library = Library(None)
    library.avoid_plugins = parsers.append
    parser = SimpleNamespace(parse_from_file=lambda path: True, num_errors=0)
    library.module.OnnxParser = lambda network, logger: parser
    options = Options(model=model, library=library, owner="Owner", **given)
    _build._parse(SimpleNamespace(num_outputs=1), options)
    assert parsers == [parser] * said
