"""Onnx2Tensorrt and LoadTensorrtEngine: engines of the real TensorRT-RTX go to what runs them, or are refused.

What runs them needs a GPU; here `open_engine` only notes what it was given.
"""

from __future__ import annotations

import json

import hami
import models
import pytest
import torch
from building import RTX, engine_of, needs_rtx, options
from fake_tensorrt import Fake, serialized

from hami_trt import load_tensorrt_engine, onnx2tensorrt
from hami_trt._cache import read, sidecar_of
from hami_trt._engine import open_engine
from hami_trt._recipe import Gpu, unfit
from hami_trt._tensorrt import Library

L4 = Gpu("NVIDIA L4", "8.9")


class Opened:
    def __init__(self, blob, library, device, recipe, owner):
        self.blob, self.library, self.recipe, self.owner = blob, library, recipe, owner


class Runner(hami.Backend):
    """Stands for TensorrtInferTensor: its result is the engine it was left."""

    thread = "any"

    def init(self, options):
        self._engine = options["tensorrt_engine"]

    def forward(self, batch):
        for item in batch:
            item["result"] = self._engine


@pytest.fixture
def machine(monkeypatch):
    """A machine with an L4 and TensorRT-RTX, as far as the backends see; the list of what was opened."""
    opened = []

    def open_engine(*given):
        opened.append(Opened(*given))
        return opened[-1]

    monkeypatch.setattr(RTX, "devices", ("cpu",), raising=False)
    for module in (onnx2tensorrt, load_tensorrt_engine):
        monkeypatch.setattr(module, "open_engine", open_engine)
        monkeypatch.setattr(module, "gpu_of", lambda device: L4)
    hami.register("TestRunner")(Runner)
    return opened


def opened_by(backend, **config):
    node = {"backend": f"IoC[{backend},TestRunner;TestRunner]", "library": "tensorrt-rtx", "device": "cpu", **config}
    with hami.pipe(node) as pipe:
        return pipe({"data": 1})["result"]


@pytest.fixture
def model(tmp_path):
    return models.convolution(tmp_path / "resnet18_-1x3x8x8.onnx")


@needs_rtx
def test_a_model_is_built_and_opened(machine, model):
    engine = opened_by("Onnx2Tensorrt", model=str(model), max=4)
    assert engine.blob.startswith(b"vtrt")
    assert engine.recipe["max"] == "4"
    assert engine.owner == "Onnx2Tensorrt"


@needs_rtx
def test_the_instances_of_a_node_share_one_engine_with_a_profile_for_each(machine, model):
    opened_by("Onnx2Tensorrt", model=str(model), max=4, instance_num=3)
    assert len(machine) == 1
    assert machine[0].recipe["profiles"] == 3


@needs_rtx
def test_an_engine_of_hami_compile_is_taken_as_it_is(machine, model, tmp_path):
    cache = tmp_path / "model.trt"
    ahead = engine_of(options(model, max="4"), cache)
    before = cache.stat().st_ino
    engine = opened_by("Onnx2Tensorrt", model=str(model), max=4, **{"model::cache": str(cache)})
    assert engine.blob == ahead.engine.blob
    assert cache.stat().st_ino == before


@needs_rtx
def test_the_cache_is_built_anew_where_anything_changed(machine, model, tmp_path):
    cache = tmp_path / "model.trt"
    given = {"model": str(model), "model::cache": str(cache)}
    files = []
    for change in ({"max": 4}, {"max": 4}, {"max": 8}, {"max": 8, "precision": "tf32"}):
        opened_by("Onnx2Tensorrt", **given, **change)
        files.append(read(cache).recipe)
    assert files[0] == files[1]
    assert [recipe["max"] for recipe in files] == ["4", "4", "8", "8"]
    models.convolution(model, seed=1)
    opened_by("Onnx2Tensorrt", **given, max=8, precision="tf32")
    assert read(cache).recipe["model"] != files[-1]["model"]


@needs_rtx
def test_from_a_model_to_results_as_one_name(machine, tmp_path, monkeypatch):
    """Built by the real library, with the profiles that the node asks for; run by the fake one, which has them too."""
    library = Library("tensorrt", Fake())
    library.devices = ("cpu",)

    def open_fake(blob, _, device, recipe, owner):
        assert blob.startswith(b"vtrt")
        shapes = {"x": [(1, 2), (2, 2), (int(recipe["max"]), 2)]}
        return open_engine(serialized(profiles=[shapes] * recipe["profiles"]), library, device, recipe, owner)

    monkeypatch.setattr(onnx2tensorrt, "open_engine", open_fake)
    config = {
        "backend": "SyncTensor[TensorrtTensor]",
        "model": str(models.double(tmp_path / "double_-1x2.onnx")),
        "model::cache": str(tmp_path / "engines"),
        "max": 4,
        "instance_num": 2,
        "library": "tensorrt-rtx",
        "device": "cpu",
    }
    kept = []
    for _ in range(2):
        with hami.pipe(config) as pipe:
            requests = pipe([{"data": torch.full((1, 2), float(value))} for value in range(6)])
            assert [request["result"].tolist() for request in requests] == [[[2.0 * v] * 2] for v in range(6)]
        kept.append({path.name: path.stat().st_ino for path in (tmp_path / "engines").glob("*.trt")})
    assert len(kept[0]) == 1
    assert kept[0] == kept[1]
    assert library.module.misuse == []
    with pytest.raises(hami.ConfigError, match='max is 8; the backend of node "default" takes at most 4'):
        hami.pipe({**config, "Onnx2Tensorrt.max": 4, "max": 8})


@needs_rtx
@pytest.mark.parametrize("backend", ["LoadTensorrtEngine", "Onnx2Tensorrt"])
def test_requests_pass_unchanged(machine, model, tmp_path, backend):
    engine_of(options(model), tmp_path / "model.trt")
    path = model if backend == "Onnx2Tensorrt" else tmp_path / "model.trt"
    with hami.pipe({"backend": backend, "model": str(path), "library": "tensorrt-rtx", "device": "cpu"}) as pipe:
        assert pipe({"data": [1, 2]})["result"] == [1, 2]


@needs_rtx
def test_an_engine_file_is_opened_with_its_recipe(machine, model, tmp_path):
    path = tmp_path / "model.trt"
    built = engine_of(options(model, max="4"), path).engine
    engine = opened_by("LoadTensorrtEngine", model=str(path))
    assert (engine.blob, engine.recipe) == (built.blob, built.recipe)


@needs_rtx
def test_an_engine_that_another_program_wrote_is_tried(machine, model, tmp_path):
    path = tmp_path / "model.trt"
    engine_of(options(model), path)
    sidecar_of(path).unlink()
    assert opened_by("LoadTensorrtEngine", model=str(path)).recipe is None


def tell(path, **recipe):
    told = json.loads(sidecar_of(path).read_text())
    sidecar_of(path).write_text(json.dumps({**told, "recipe": {**told["recipe"], **recipe}}))


@needs_rtx
@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (
            lambda path: path.write_bytes(path.read_bytes()[:1000]),
            'it has 1000 bytes, "model.trt.json" says SIZE: truncated, or another file; build it again',
        ),
        (
            lambda path: path.write_bytes(b"w" + path.read_bytes()[1:]),
            'its content is not what "model.trt.json" says: damaged, or another file; build it again',
        ),
        (
            lambda path: tell(path, version="1.2.0.54"),
            "it was built by tensorrt-rtx 1.2.0.54, here is LIBRARY; build it again, with what is here",
        ),
        (
            lambda path: tell(path, library="tensorrt", version="10.3.0"),
            "it was built by tensorrt 10.3.0, here is LIBRARY; build it again, with what is here",
        ),
        (
            lambda path: tell(path, gpu=["12.0", "8.6"]),
            "it was built for compute capability 12.0, 8.6, here is NVIDIA L4 (compute capability 8.9); "
            "build it again, with what is here",
        ),
        (lambda path: (path.write_bytes(b""), sidecar_of(path).unlink()), "it is empty; build it again"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(machine, model, tmp_path, harm, reason):
    path = tmp_path / "model.trt"
    engine_of(options(model), path)
    size = path.stat().st_size
    harm(path)
    with pytest.raises(hami.ConfigError) as caught:
        opened_by("LoadTensorrtEngine", model=str(path))
    told = str(caught.value).splitlines()[0].replace(str(RTX), "LIBRARY").replace(f"says {size}", "says SIZE")
    assert told == f'LoadTensorrtEngine: "{path}" is not loaded: {reason}'
    assert machine == []


@needs_rtx
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda blob: b"xxxx" + blob[4:], "Trying to load an engine created with incompatible serialization version"),
        (lambda blob: blob[:1000], "header.size == blobSize failed"),
        (lambda blob: blob[:20], "bufferSize >= minBufferSize failed"),
    ],
)
def test_what_no_file_vouches_for_the_library_itself_refuses(model, tmp_path, monkeypatch, change, reason):
    path = tmp_path / "model.trt"
    path.write_bytes(change(engine_of(options(model), None).engine.blob))
    monkeypatch.setattr(RTX, "devices", ("cpu",), raising=False)
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe({"backend": "LoadTensorrtEngine", "model": str(path), "library": "tensorrt-rtx", "device": "cpu"})
    told = f'LoadTensorrtEngine: "{path}": {RTX} cannot load this engine ({path.stat().st_size} bytes): '
    assert str(caught.value).startswith(told)
    assert reason in str(caught.value)


@needs_rtx
def test_an_engine_that_is_not_there_is_told(machine, tmp_path):
    path = tmp_path / "none.trt"
    with pytest.raises(hami.ConfigError) as caught:
        opened_by("LoadTensorrtEngine", model=str(path))
    assert str(caught.value).splitlines()[0] == f'LoadTensorrtEngine: there is no engine "{path}" (looked for {path})'


class Here:
    """A library by name and version."""

    def __init__(self, name: str, version: str) -> None:
        self.name, self.version = name, version

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


H100 = Gpu("NVIDIA H100", "9.0")
H200 = Gpu("NVIDIA H200", "9.0")
T4 = Gpu("NVIDIA T4", "7.5")


@pytest.mark.parametrize(
    ("recipe", "version", "gpu", "reason"),
    [
        ({"gpu": str(H100)}, "10.3.0", H100, None),
        ({"gpu": str(H100)}, "10.4.0", H100, "it was built by tensorrt 10.3.0, here is tensorrt 10.4.0"),
        ({"gpu": str(H100), "version_compatible": True}, "10.4.0", H100, None),
        (
            {"gpu": str(H100), "version_compatible": True},
            "11.0.0",
            H100,
            "it was built by tensorrt 10.3.0, here is tensorrt 11.0.0",
        ),
        ({"gpu": str(H100)}, "10.3.0", H200, f"it was built for {H100}, here is {H200}"),
        ({"gpu": ["9.0"]}, "10.3.0", H200, None),
        ({"gpu": ["9.0"]}, "10.3.0", L4, f"it was built for compute capability 9.0, here is {L4}"),
        ({"gpu": "ampere_plus"}, "10.3.0", H200, None),
        ({"gpu": "ampere_plus"}, "10.3.0", T4, f"it was built for ampere_plus, here is {T4}"),
        ({"gpu": "any"}, "10.3.0", T4, None),
    ],
)
def test_an_engine_fits_its_library_and_its_gpu(recipe, version, gpu, reason):
    made = {"library": "tensorrt", "version": "10.3.0", **recipe}
    assert unfit(made, Here("tensorrt", version), gpu) == reason
