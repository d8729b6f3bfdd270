"""Execution providers that are packages of their own: how they are found and chosen, and the errors about bad ones."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from types import SimpleNamespace

import hami
import numpy as np
import pytest
from conftest import save
from onnx import TensorProto, helper

from hami_onnx import _plugin_providers
from hami_onnx._plugin_providers import installed_providers
from hami_onnx._providers import choose_providers, plugin_devices, proof_rules

LIBRARY = b"no library, but it has the text CreateEpFactories"


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """packages(name, {file: content}) installs a package; no other one is found in this test."""
    folder = tmp_path / "site"
    folder.mkdir()
    only = SimpleNamespace(distributions=lambda: metadata.distributions(path=[str(folder)]))
    monkeypatch.setattr(_plugin_providers, "metadata", only)

    def install(name, files):
        info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))
        for file, content in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        installed_providers.cache_clear()
        return folder

    yield install
    installed_providers.cache_clear()


def test_a_provider_is_found_by_the_files_of_its_package(packages):
    folder = packages(
        "onnxruntime-ep-acme",
        {
            "onnxruntime_ep_acme/__init__.py": b"raise RuntimeError('imported')",
            "onnxruntime_ep_acme/libonnxruntime_acme.so": LIBRARY,
            "onnxruntime_ep_acme/libonnxruntime_acme.so.1.0": LIBRARY,
            "onnxruntime_ep_acme/libacme_onnx_frontend.so": b"another library",
        },
    )
    assert installed_providers() == (
        ("acme", "onnxruntime-ep-acme", "1.0", str(folder / "onnxruntime_ep_acme" / "libonnxruntime_acme.so")),
    )


def test_two_providers_of_one_package_have_names_of_their_own(packages):
    packages("acme-onnx", {"acme/libonnx_one.so": LIBRARY, "acme/libonnx_two.so": LIBRARY})
    assert [each.name for each in installed_providers()] == ["acme-onnx-onnx_one", "acme-onnx-onnx_two"]


def test_the_providers_of_the_runtime_are_not_packages_of_their_own(packages):
    packages("onnxruntime-old", {"onnxruntime/capi/libonnxruntime_providers_old.so": LIBRARY})
    assert installed_providers() == ()


@pytest.mark.parametrize("provider", ["broken", "onnxruntime-ep-broken", ["broken", "cpu"]])
def test_a_library_that_cannot_be_registered_says_what_to_write(packages, models, provider):
    folder = packages("onnxruntime-ep-broken", {"broken/libonnxruntime_broken.so": LIBRARY})
    for _ in range(2):
        with pytest.raises(hami.PluginError) as error:
            hami.pipe({"backend": "OnnxTensor", "model": str(models.double()), "provider": provider})
        text = str(error.value)
        assert (
            f'OnnxTensor: the execution provider in "{folder}/broken/libonnxruntime_broken.so" cannot be used' in text
        )
        assert 'or write provider = "cpu"' in text
    assert "cannot be used with onnxruntime" in plugin_devices()["broken (onnxruntime-ep-broken 1.0)"]


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        (["cpu", "broken"], '"cpu" takes every operator, so it must be the last "provider", got cpu, broken'),
        ([], '"provider" must name an execution provider, such as "cpu", got an empty list'),
        ("broken:tpu", 'provider "broken:tpu" must end with :cpu, :gpu or :npu, or have no colon'),
        (["broken", "azure"], '"provider" names azure of the package onnxruntime beside providers that are packages'),
        ("openvino", "run: pip install onnxruntime-ep-openvino"),
        ("acme", "azure, broken, or a full name"),
    ],
)
def test_a_choice_that_cannot_be_made_is_a_config_error(packages, provider, message):
    packages("onnxruntime-ep-broken", {"broken/libonnxruntime_broken.so": LIBRARY})
    with pytest.raises(hami.ConfigError) as error:
        choose_providers(provider, [], "OnnxTensor")
    assert message in str(error.value)


def test_the_cpu_may_be_named_last():
    assert choose_providers(["CPU"], [], "OnnxTensor") == choose_providers("cpu", [], "OnnxTensor")


def test_without_the_cpu_another_provider_is_needed(models):
    with pytest.raises(hami.ConfigError, match="cpu_fallback = false needs an execution provider other than the CPU"):
        hami.pipe({"backend": "OnnxTensor", "model": str(models.double()), "cpu_fallback": False})


def test_a_proof_is_about_the_kernels_of_the_runtime_only():
    """Other engines compute some operators differently, across the rows of a batch."""
    assert [proof_rules(name) for name in ("cpu", ["cuda", "cpu"], "CPUExecutionProvider")] == ["onnx"] * 3
    assert [proof_rules(name) for name in ("openvino", ["tensorrt", "cpu"], "nxrt-ep-cpu")] == [None] * 3


@pytest.mark.skipif(find_spec("nxrt_ep_cpu") is None, reason="needs nxrt-ep-cpu, a pre-release")
def test_a_provider_of_a_package_runs_a_model(pipe, tmp_path):
    port = (TensorProto.FLOAT, ["n", 2])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    path = save(tmp_path / "dense.onnx", nodes, {"x": port}, {"y": port}, {"w": np.eye(2, dtype=np.float32)})
    for provider in ("nxrt-ep-cpu", "cpu_ep", ["nxrt-ep-cpu:cpu", "cpu"]):
        running = pipe(model=str(path), provider=provider, cpu_fallback=False)
        assert running({"data": np.float32([[-1, 2]])})["result"].tolist() == [[0, 2]]
    assert _plugin_providers.devices_of(installed_providers()[0], {})[0].provider == "cpu_ep"
