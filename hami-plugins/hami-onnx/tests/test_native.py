"""The native library: how it finds ONNX Runtime's, the models that it runs, and the memory of results."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
from pathlib import Path

import hami
import numpy as np
import pytest
from conftest import save
from onnx import TensorProto, helper

import hami_onnx
from hami_onnx import _runtime

FLOAT = TensorProto.FLOAT
OWN_LIBRARY = Path(hami_onnx.__file__).with_name("onnx_tensor.so")


@pytest.fixture
def package(monkeypatch, tmp_path):
    """Return a folder `capi` of a package onnxruntime that find_library finds."""
    (tmp_path / "onnxruntime" / "capi").mkdir(parents=True)
    (tmp_path / "onnxruntime" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    _runtime.find_library.cache_clear()
    yield tmp_path / "onnxruntime" / "capi"
    _runtime.find_library.cache_clear()


def test_links_to_the_library_are_not_a_second_version(package):
    (package / "libonnxruntime.so.1.32.0").touch()
    (package / "libonnxruntime.so.1").symlink_to("libonnxruntime.so.1.32.0")
    (package / "libonnxruntime.so").symlink_to("libonnxruntime.so.1.32.0")
    assert _runtime.find_library() == package / "libonnxruntime.so.1.32.0"
    assert _runtime.version() == "1.32.0"


def test_two_versions_in_one_folder_are_named(package):
    (package / "libonnxruntime.so.1.20.1").touch()
    (package / "libonnxruntime.so.1.32.0").touch()
    with pytest.raises(hami.PluginError) as error:
        _runtime.find_library()
    assert str(error.value) == (
        f"the onnxruntime packages 1.20.1 and 1.32.0 are both in {package}; run: pip uninstall -y onnxruntime "
        "onnxruntime-gpu && pip install onnxruntime"
    )


def test_a_package_without_the_library_is_a_plugin_error(package):
    with pytest.raises(hami.PluginError) as error:
        _runtime.find_library()
    assert f"has no library libonnxruntime.so.* (looked in {package})" in str(error.value)


def test_a_missing_package_is_a_plugin_error(monkeypatch):
    monkeypatch.setattr(_runtime, "find_spec", lambda name: None)
    _runtime.find_library.cache_clear()
    with pytest.raises(hami.PluginError, match="onnxruntime is not installed; run: pip install onnxruntime"):
        _runtime.find_library()
    _runtime.find_library.cache_clear()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"not a library", "cannot load ONNX Runtime's library: "), (None, "has no function OrtGetApiBase")],
)
def test_a_library_that_is_not_that_of_onnxruntime_is_a_plugin_error(models, tmp_path, content, reason):
    library = OWN_LIBRARY if content is None else tmp_path / "libonnxruntime.so.1.30.0"
    if content is not None:
        library.write_bytes(content)
    config = {"backend": "OnnxTensor", "model": str(models.double()), "onnxruntime": str(library)}
    with pytest.raises(hami.ConfigError, match="loads native code"):
        hami.pipe(config)
    hami.native.allow_library(str(library))
    with pytest.raises(hami.PluginError) as error:
        hami.pipe(config)
    assert reason in str(error.value)


def test_a_library_at_an_allowed_path_runs_models(pipe, models, tmp_path):
    library = tmp_path / "libonnxruntime.so"
    library.symlink_to(_runtime.find_library())
    hami.native.allow_library(str(library))
    running = pipe(model=str(models.double()), onnxruntime=str(library))
    assert running({"data": np.ones((1, 2), np.float32)})["result"].tolist() == [[2, 2]]


def test_a_model_of_numbers_runs_without_the_package_onnxruntime(models):
    code = (
        "import sys, hami, numpy\n"
        f"with hami.pipe({{'backend': 'OnnxTensor', 'model': {str(models.double())!r}}}) as pipe:\n"
        "    print(pipe({'data': numpy.ones((1, 2), numpy.float32)})['result'].tolist())\n"
        "print('onnxruntime' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[[2.0, 2.0]]\nFalse\n"


@pytest.mark.parametrize("rows", [1, 5000])
def test_a_result_never_shares_the_memory_of_the_data(pipe, tmp_path, rows):
    """The output of a model may be its input."""
    port = (FLOAT, ["n", 4])
    path = save(tmp_path / "same.onnx", [helper.make_node("Identity", ["x"], ["y"])], {"x": port}, {"y": port})
    running = pipe(model=str(path), max=4)
    data = np.ones((rows, 4), np.float32)
    results = [running({"data": data})["result"] for _ in range(2)]
    hami.to_numpy(results[0])[:] = 9
    assert (data == 1).all()
    assert (hami.to_numpy(results[1]) == 1).all()


@pytest.mark.parametrize("size", [4, 50_000])
def test_a_result_never_shares_the_memory_of_the_weights(pipe, tmp_path, size):
    node = helper.make_node("Identity", ["table"], ["y"])
    table = {"table": np.ones((size, 1), np.float32)}
    path = save(tmp_path / "table.onnx", [node], {"x": (FLOAT, ["n", 1])}, {"y": (FLOAT, ["n", 1])}, table)
    running = pipe(model=str(path), batched=True)
    request = {"data": np.ones((2, 1), np.float32)}
    hami.to_numpy(running(dict(request))["result"])[:] = 9
    assert (hami.to_numpy(running(dict(request))["result"]) == 1).all()


def test_requests_whose_callers_have_left_do_not_disturb_the_others(pipe, models):
    running = pipe(model=str(models.double()), max=8)
    requests = [{"data": np.full((1, 2), i, np.float32)} for i in range(64)]
    futures = [running.submit(request) for request in requests]
    for future in futures[::2]:
        future.cancel()
    concurrent.futures.wait(futures)
    assert [future.result()["result"].tolist() for future in futures[1::2]] == [[[2 * i] * 2] for i in range(1, 64, 2)]


def test_brackets_are_refused(models):
    with pytest.raises(hami.ConfigError, match=r"OnnxTensor: the model is not open: .* remove the brackets"):
        hami.pipe({"backend": "OnnxTensor[Identity]", "model": str(models.double())})


def test_an_input_that_is_not_aligned_is_read(pipe, models):
    memory = np.zeros(4 * 2 + 1, np.uint8)[1:].view(np.float32).reshape(1, 2)
    memory[:] = 3
    assert pipe(model=str(models.double()))({"data": memory})["result"].tolist() == [[6, 6]]
