"""Onnx2Tensorrt and LoadTensorrtEngine with engines of the real TensorRT-RTX.

Running an engine needs a GPU. Here `open_engine` only records its arguments.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import hami
import models
import numpy as np
import pytest
from building import RTX, needs_rtx, options, prepare_engine
from fake_tensorrt import Fake, serialized
from hami_tensor import Device

from hami_trt import _engine_loader, _gpu, load_tensorrt_engine, onnx2tensorrt
from hami_trt._cache import StoredEngine, read, sidecar_path, write
from hami_trt._engine import open_engine
from hami_trt._engine_loader import EngineLoader
from hami_trt._prepare import PreparedEngine
from hami_trt._recipe import Gpu, incompatibility
from hami_trt._tensorrt import Library

L4 = Gpu("NVIDIA L4", "8.9")


class OpenedEngine:
    def __init__(self, blob, library, device, recipe, owner):
        self.blob, self.library, self.recipe, self.owner = blob, library, recipe, owner


class Runner(hami.Backend):
    """Replaces TensorrtInferTensor: its result is the engine in the options."""

    thread = "serialized"

    def init(self, options):
        self._engine = options["tensorrt_engine"]

    def forward(self, batch):
        for item in batch:
            item["result"] = self._engine


@pytest.fixture
def machine(monkeypatch, driver):
    """Make the backends see an L4 and TensorRT-RTX. Returns the list of opened engines."""
    opened = []

    def open_engine(*given):
        opened.append(OpenedEngine(*given))
        return opened[-1]

    monkeypatch.setattr(_gpu, "gpu_of", lambda device: L4)
    for module in (onnx2tensorrt, load_tensorrt_engine):
        monkeypatch.setattr(module, "open_engine", open_engine)
        monkeypatch.setattr(module, "gpu_of", lambda device: L4)
    hami.register("TestRunner")(Runner)
    return opened


def opened_by(backend, **config):
    node = {"backend": f"IoC[{backend},TestRunner;TestRunner]", "library": "tensorrt-rtx", **config}
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
def test_instances_of_a_node_share_one_engine_with_a_profile_for_each(machine, model):
    opened_by("Onnx2Tensorrt", model=str(model), max=4, instance_num=3)
    assert len(machine) == 1
    assert machine[0].recipe["profiles"] == 3


@needs_rtx
def test_an_engine_of_hami_compile_is_not_built_again(machine, model, tmp_path):
    cache = tmp_path / "model.trt"
    prepared = prepare_engine(options(model, max="4"), cache)
    before = cache.stat().st_ino
    engine = opened_by("Onnx2Tensorrt", model=str(model), max=4, **{"model::cache": str(cache)})
    assert engine.blob == prepared.engine.blob
    assert cache.stat().st_ino == before


@needs_rtx
def test_any_change_of_model_or_options_builds_the_engine_again(machine, model, tmp_path):
    cache = tmp_path / "model.trt"
    given = {"model": str(model), "model::cache": str(cache)}
    recipes = []
    for change in ({"max": 4}, {"max": 4}, {"max": 8}, {"max": 8, "precision": "tf32"}):
        opened_by("Onnx2Tensorrt", **given, **change)
        recipes.append(read(cache).recipe)
    assert recipes[0] == recipes[1]
    assert [recipe["max"] for recipe in recipes] == ["4", "4", "8", "8"]
    models.convolution(model, seed=1)
    opened_by("Onnx2Tensorrt", **given, max=8, precision="tf32")
    assert read(cache).recipe["model"] != recipes[-1]["model"]


@needs_rtx
def test_tensorrt_tensor_builds_caches_and_runs_an_onnx_model(machine, tmp_path, monkeypatch):
    """The real library builds the engine; the fake one, with the same profiles, runs it."""
    library = Library("tensorrt", Fake())

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
    }
    cached = []
    for _ in range(2):
        with hami.pipe(config) as opened, hami.pipe("hami-cuda::CpuTensor") as back:
            requests = opened([{"data": np.full((1, 2), value, np.float32)} for value in range(6)])
            requests = [back({"data": request["result"]}) for request in requests]
            assert [request["result"].tolist() for request in requests] == [[[2.0 * v] * 2] for v in range(6)]
        cached.append({path.name: path.stat().st_ino for path in (tmp_path / "engines").glob("*.trt")})
    assert len(cached[0]) == 1
    assert cached[0] == cached[1]
    assert library.module.misuse == []
    with pytest.raises(hami.ConfigError, match='max is 8; the backend of node "default" takes at most 4'):
        hami.pipe({**config, "Onnx2Tensorrt.max": 4, "max": 8})


@needs_rtx
@pytest.mark.parametrize("backend", ["LoadTensorrtEngine", "Onnx2Tensorrt"])
def test_requests_pass_unchanged(machine, model, tmp_path, backend):
    prepare_engine(options(model), tmp_path / "model.trt")
    path = model if backend == "Onnx2Tensorrt" else tmp_path / "model.trt"
    with hami.pipe({"backend": backend, "model": str(path), "library": "tensorrt-rtx"}) as pipe:
        assert pipe({"data": [1, 2]})["result"] == [1, 2]


@needs_rtx
def test_an_engine_file_is_opened_with_its_recipe(machine, model, tmp_path):
    path = tmp_path / "model.trt"
    built = prepare_engine(options(model, max="4"), path).engine
    engine = opened_by("LoadTensorrtEngine", model=str(path))
    assert (engine.blob, engine.recipe) == (built.blob, built.recipe)


@needs_rtx
def test_an_engine_of_another_program_is_accepted(machine, model, tmp_path):
    path = tmp_path / "model.trt"
    prepare_engine(options(model), path)
    sidecar_path(path).unlink()
    assert opened_by("LoadTensorrtEngine", model=str(path)).recipe is None


def change_recipe(path, **recipe):
    content = json.loads(sidecar_path(path).read_text())
    sidecar_path(path).write_text(json.dumps({**content, "recipe": {**content["recipe"], **recipe}}))


@needs_rtx
@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (
            lambda path: path.write_bytes(path.read_bytes()[:1000]),
            'it has 1000 bytes, but "model.trt.json" says SIZE: it is truncated or another file; '
            "build the engine again",
        ),
        (
            lambda path: path.write_bytes(b"w" + path.read_bytes()[1:]),
            'its content does not match "model.trt.json": it is damaged or another file; build the engine again',
        ),
        (
            lambda path: change_recipe(path, version="1.2.0.54"),
            "it was built by tensorrt-rtx 1.2.0.54, and this machine has LIBRARY; "
            "build the engine again on this machine",
        ),
        (
            lambda path: change_recipe(path, library="tensorrt", version="10.3.0"),
            "it was built by tensorrt 10.3.0, and this machine has LIBRARY; build the engine again on this machine",
        ),
        (
            lambda path: change_recipe(path, gpu=["12.0", "8.6"]),
            "it was built for compute capability 12.0, 8.6, and this machine has NVIDIA L4 (compute capability 8.9); "
            "build the engine again on this machine",
        ),
        (lambda path: (path.write_bytes(b""), sidecar_path(path).unlink()), "it is empty; build the engine again"),
    ],
)
def test_a_damaged_or_incompatible_engine_is_rejected(machine, model, tmp_path, harm, reason):
    path = tmp_path / "model.trt"
    prepare_engine(options(model), path)
    size = path.stat().st_size
    harm(path)
    with pytest.raises(hami.ConfigError) as caught:
        opened_by("LoadTensorrtEngine", model=str(path))
    error = str(caught.value).splitlines()[0].replace(str(RTX), "LIBRARY").replace(f"says {size}", "says SIZE")
    assert error == f'LoadTensorrtEngine: cannot use "{path}": {reason}'
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
def test_the_library_rejects_a_damaged_engine_without_a_sidecar(driver, model, tmp_path, monkeypatch, change, reason):
    for module in (_gpu, load_tensorrt_engine):
        monkeypatch.setattr(module, "gpu_of", lambda device: L4)
    path = tmp_path / "model.trt"
    path.write_bytes(change(prepare_engine(options(model), None).engine.blob))
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe({"backend": "LoadTensorrtEngine", "model": str(path), "library": "tensorrt-rtx"})
    expected = f'LoadTensorrtEngine: "{path}": {RTX} cannot load this engine ({path.stat().st_size} bytes): '
    assert str(caught.value).startswith(expected)
    assert reason in str(caught.value)


@needs_rtx
def test_a_missing_engine_is_an_error(machine, tmp_path):
    path = tmp_path / "none.trt"
    with pytest.raises(hami.ConfigError) as caught:
        opened_by("LoadTensorrtEngine", model=str(path))
    assert (
        str(caught.value).splitlines()[0]
        == f'parameter "model" of LoadTensorrtEngine: file "{path}" does not exist (looked for {path})'
    )


class InstalledLibrary:
    """Name and version of a library."""

    def __init__(self, name: str, version: str) -> None:
        self.name, self.version = name, version

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def test_an_engine_with_code_for_the_cpu_is_loaded_from_an_allowed_file_only(monkeypatch, tmp_path):
    opened = []
    library = InstalledLibrary("tensorrt", "10.3.0")
    monkeypatch.setattr(EngineLoader, "find_library_and_device", lambda self: (library, Device("cuda:0")))
    monkeypatch.setattr(load_tensorrt_engine, "open_engine", lambda *given: opened.append(given))
    monkeypatch.setattr(load_tensorrt_engine, "gpu_of", lambda device: L4)
    path = tmp_path / "portable.trt"
    recipe = {"library": "tensorrt", "version": "10.3.0", "gpu": "any", "version_compatible": True}
    write(path, StoredEngine(b"engine", recipe, {}))
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe({"backend": "LoadTensorrtEngine", "model": str(path)})
    text = str(caught.value)
    assert text.startswith("model of LoadTensorrtEngine, a version compatible engine, loads native code, which a ")
    assert f'allow "{path}" by HAMI_ALLOWED_LIBRARIES in the environment' in text
    assert opened == []
    hami.native.allow_library(path)
    hami.pipe({"backend": "LoadTensorrtEngine", "model": str(path)}).close()
    assert len(opened) == 1


def test_a_library_with_layers_is_loaded_if_it_is_allowed(monkeypatch, tmp_path):
    monkeypatch.setattr(_engine_loader, "find_library", lambda name, owner: InstalledLibrary("tensorrt", "10.3.0"))
    monkeypatch.setattr(_engine_loader, "find_device", lambda library, device, owner: Device("cuda:0"))
    monkeypatch.setattr(load_tensorrt_engine, "open_engine", lambda *given: None)
    monkeypatch.setattr(load_tensorrt_engine, "gpu_of", lambda device: L4)
    engine, layers, broken = tmp_path / "engine.trt", tmp_path / "layers.so", tmp_path / "broken.so"
    write(engine, StoredEngine(b"engine", {"library": "tensorrt", "version": "10.3.0", "gpu": "any"}, {}))
    shutil.copy(importlib.util.find_spec("_ctypes").origin, layers)
    broken.write_bytes(b"")
    node = {"backend": "LoadTensorrtEngine", "model": str(engine), "plugin_library": str(layers)}
    with pytest.raises(hami.ConfigError, match="plugin_library of LoadTensorrtEngine loads native code"):
        hami.pipe(node)
    assert str(layers) not in Path("/proc/self/maps").read_text()
    hami.native.allow_library(tmp_path)
    hami.pipe(node).close()
    assert str(layers) in Path("/proc/self/maps").read_text()
    monkeypatch.chdir(tmp_path)
    hami.pipe({**node, "plugin_library": "layers.so"}).close()  # of this folder, and not of those of the loader
    with pytest.raises(hami.ConfigError, match=r"plugin_library cannot be loaded: .*broken\.so"):
        hami.pipe({**node, "plugin_library": str(broken)})


@needs_rtx  # it has no such engines, so the cache is a fake
@pytest.mark.parametrize("built", [True, False])
def test_a_cached_engine_with_code_for_the_cpu_needs_permission(machine, model, tmp_path, monkeypatch, built):
    path = tmp_path / "cache" / "engine.trt"
    prepared = PreparedEngine(StoredEngine(b"engine", {}, {}), path, built)
    monkeypatch.setattr(onnx2tensorrt, "prepare_engine", lambda *given: prepared)
    given = {"model": str(model), "model::cache": str(path.parent), "version_compatible": True}
    if not built:
        text = "model::cache of Onnx2Tensorrt, with version_compatible = true, loads native code"
        with pytest.raises(hami.ConfigError, match=text):
            opened_by("Onnx2Tensorrt", **given)
        assert machine == []
        hami.native.allow_library(path.parent)
    assert opened_by("Onnx2Tensorrt", **given).blob == b"engine"


H100 = Gpu("NVIDIA H100", "9.0")
H200 = Gpu("NVIDIA H200", "9.0")
T4 = Gpu("NVIDIA T4", "7.5")


@pytest.mark.parametrize(
    ("recipe", "version", "gpu", "reason"),
    [
        ({"gpu": str(H100)}, "10.3.0", H100, None),
        ({"gpu": str(H100)}, "10.4.0", H100, "it was built by tensorrt 10.3.0, and this machine has tensorrt 10.4.0"),
        ({"gpu": str(H100), "version_compatible": True}, "10.4.0", H100, None),
        (
            {"gpu": str(H100), "version_compatible": True},
            "11.0.0",
            H100,
            "it was built by tensorrt 10.3.0, and this machine has tensorrt 11.0.0",
        ),
        ({"gpu": str(H100)}, "10.3.0", H200, f"it was built for {H100}, and this machine has {H200}"),
        ({"gpu": ["9.0"]}, "10.3.0", H200, None),
        ({"gpu": ["9.0"]}, "10.3.0", L4, f"it was built for compute capability 9.0, and this machine has {L4}"),
        ({"gpu": "ampere_plus"}, "10.3.0", H200, None),
        ({"gpu": "ampere_plus"}, "10.3.0", T4, f"it was built for ampere_plus, and this machine has {T4}"),
        ({"gpu": "any"}, "10.3.0", T4, None),
    ],
)
def test_an_engine_runs_only_with_its_library_and_gpu(recipe, version, gpu, reason):
    built = {"library": "tensorrt", "version": "10.3.0", **recipe}
    assert incompatibility(built, InstalledLibrary("tensorrt", version), gpu) == reason
