"""Engines are built by the real TensorRT-RTX: what goes in decides what comes out, and what cannot be built is told."""

from __future__ import annotations

import logging

import hami
import models
import numpy as np
import pytest
from building import RTX, needs_rtx, options

from hami_trt import _build
from hami_trt._build import build
from hami_trt._shapes import Range

pytestmark = needs_rtx


def refused(model, **given):
    with pytest.raises(hami.ConfigError) as caught:
        build(options(model, **given))
    return (
        str(caught.value)
        .replace(str(RTX), "LIBRARY")
        .replace(str(model), "MODEL")
        .replace(f"({model.stat().st_size} bytes)", "(SIZE bytes)")
    )


@pytest.fixture
def model(tmp_path):
    return models.convolution(tmp_path / "model.onnx")


def networks(monkeypatch):
    """The networks that builds from now on are made of."""
    seen = []
    real = RTX.new_network
    monkeypatch.setattr(RTX, "new_network", lambda *given: seen.append(real(*given)) or seen[-1])
    return seen


def configurations(monkeypatch):
    """The configurations that builds from now on have."""
    seen = []
    real = _build._configured
    monkeypatch.setattr(_build, "_configured", lambda *given: seen.append(real(*given)) or seen[-1])
    return seen


def test_an_engine_is_built_without_a_gpu(model):
    engine, ranges = build(options(model, max="4"))
    assert engine.startswith(b"vtrt")
    assert ranges == {"x": Range((1, 3, 8, 8), (4, 3, 8, 8), (4, 3, 8, 8))}


def test_each_instance_has_a_profile(model, monkeypatch):
    seen = configurations(monkeypatch)
    build(options(model, max="4", profiles=3))
    assert seen[0].num_optimization_profiles == 3


def test_several_inputs_take_a_shape_each(tmp_path):
    model = models.two_inputs(tmp_path / "two.onnx")
    _, ranges = build(options(model, max="a: 4x4, b: 4x16", min="1x4,1x2"))
    assert ranges == {"a": Range((1, 4), (4, 4), (4, 4)), "b": Range((1, 2), (4, 16), (4, 16))}


def test_what_a_build_is_told_arrives_at_the_library(model, monkeypatch):
    seen = configurations(monkeypatch)
    build(
        options(
            model,
            workspace=1 << 24,
            optimization_level=1,
            compute_capability=["8.9", "12.0"],
            precision="fp32",
        )
    )
    (config,) = seen
    flags, module = RTX.module.BuilderFlag, RTX.module
    assert config.get_memory_pool_limit(module.MemoryPoolType.WORKSPACE) == 1 << 24
    assert config.builder_optimization_level == 1
    assert [config.get_compute_capability(index) for index in range(config.num_compute_capabilities)] == [
        module.ComputeCapability.SM89,
        module.ComputeCapability.SM120,
    ]
    assert not config.get_flag(flags.TF32)
    build(options(model, precision="tf32"))
    assert seen[1].get_flag(flags.TF32)


def test_an_engine_for_later_versions_is_asked_for_and_what_the_library_lacks_for_it_is_told(model, monkeypatch):
    seen = configurations(monkeypatch)
    told = refused(model, version_compatible=True)
    assert seen[0].get_flag(RTX.module.BuilderFlag.VERSION_COMPATIBLE)
    assert told.startswith('Owner: LIBRARY cannot build "MODEL": ')
    assert "libnvinfer_lean" in told  # the wheels are without it


def layers(network):
    """The layers, each as the class of its own kind, which the bindings do not give by themselves."""
    classes = {"CONSTANT": "IConstantLayer", "ELEMENTWISE": "IElementWiseLayer", "CAST": "ICastLayer"}
    found = [network.get_layer(index) for index in range(network.num_layers)]
    for layer in found:
        if layer.type.name in classes:
            layer.__class__ = getattr(RTX.module, classes[layer.type.name])
    return found


def test_mean_and_std_come_before_all_that_reads_the_input(model, monkeypatch):
    seen = networks(monkeypatch)
    plain, _ = build(options(model))
    merged, _ = build(options(model, mean=[1, 2, 3], std=[4]))
    before, after = (layers(network) for network in seen)
    kinds = RTX.module.LayerType
    added = after[len(before) :]
    assert [layer.type for layer in added] == [kinds.CONSTANT, kinds.ELEMENTWISE] * 2
    subtract, divide = added[1], added[3]
    assert subtract.op == RTX.module.ElementWiseOperation.SUB
    assert subtract.get_input(0).name == "x"
    assert divide.op == RTX.module.ElementWiseOperation.DIV
    assert divide.get_input(0).name == subtract.get_output(0).name
    assert np.array_equal(np.ravel(added[0].weights), [1, 2, 3])
    assert np.array_equal(np.ravel(added[2].weights), [4])
    assert tuple(added[0].shape) == (1, 3, 1, 1)
    assert readers_of("x", before) == ["conv"]
    assert readers_of("x", after) == [subtract.name]
    assert readers_of(divide.get_output(0).name, after) == ["conv"]
    assert plain != merged


def readers_of(name, layers):
    return [layer.name for layer in layers for at in range(layer.num_inputs) if layer.get_input(at).name == name]


def test_a_half_precision_input_is_normalised_in_single_precision(tmp_path, monkeypatch):
    seen = networks(monkeypatch)
    build(options(models.convolution(tmp_path / "half.onnx", dtype=np.float16), mean=[1, 2, 3]))
    types = RTX.module.DataType
    casts = [layer for layer in layers(seen[0]) if layer.type == RTX.module.LayerType.CAST]
    assert [layer.get_output(0).dtype for layer in casts] == [types.FLOAT, types.HALF]


def test_mean_and_std_stay_in_single_precision_where_the_build_chooses(model, monkeypatch):
    """TensorRT-RTX never chooses: what it would be told is noted here."""
    kept = []
    monkeypatch.setattr(RTX, "chooses_types", lambda precision: precision == "fp16")
    monkeypatch.setattr(RTX, "takes_precision", lambda precision: True)
    monkeypatch.setattr(RTX, "set_precision", lambda config, precision: None)
    monkeypatch.setattr(RTX, "keep_type", lambda layer, dtype, config: kept.append((layer.type, dtype)))
    build(options(model, mean=[1], std=[2]))
    assert kept == []
    build(options(model, mean=[1], std=[2], precision="fp16"))
    assert kept == [(RTX.module.LayerType.ELEMENTWISE, RTX.module.DataType.FLOAT)] * 2


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (
            models.convolution,
            {"mean": [1, 2]},
            'Owner: "mean" and "std" of 2 channels go to the one floating point input with so many on axis 1; '
            '0 of the inputs fit: "x" (-1, 3, 8, 8)',
        ),
        (
            models.two_inputs,
            {"mean": [1], "max": "a:4x4,b:4x4"},
            'Owner: "mean" and "std" of 1 channels go to the one floating point input with so many on axis 1; '
            '2 of the inputs fit: "a" (-1, 4), "b" (-1, -1)',
        ),
        (
            models.convolution,
            {"precision": "fp16"},
            'Owner: LIBRARY computes in the types of the model, and "MODEL" has nothing in fp16; '
            "export it in fp16, then leave `precision` out",
        ),
        (
            models.convolution,
            {"precision": "int8"},
            'Owner: precision "int8" takes a model with QuantizeLinear and DequantizeLinear nodes, "MODEL" has none; '
            "quantize it first",
        ),
        (
            models.convolution,
            {"hardware_compatible": "ampere_plus"},
            'Owner: LIBRARY has no hardware_compatible = "ampere_plus"; say which GPUs by compute_capability, '
            "or leave both out: all",
        ),
        (
            models.unsupported,
            {},
            'Owner: LIBRARY cannot read "MODEL" (SIZE bytes): operator Det of node "strange" (number 0) is not '
            "supported (UNSUPPORTED_NODE)",
        ),
        (
            lambda path: models.unsupported(path, "Turn", "acme.strange"),
            {},
            'Owner: LIBRARY cannot read "MODEL" (SIZE bytes): operator Turn of node "strange" (number 0) is not '
            "supported (INVALID_NODE)",
        ),
    ],
)
def test_what_cannot_be_built_is_told(tmp_path, make, given, message):
    assert refused(make(tmp_path / "model.onnx"), **given) == message


@pytest.mark.parametrize("content", [b"\x08\x09", b"\x3a\x00"])
def test_a_file_without_a_graph_is_told(tmp_path, content):
    model = tmp_path / "none.onnx"
    model.write_bytes(content)
    assert refused(model) == (
        'Owner: LIBRARY cannot read "MODEL" (SIZE bytes): it is truncated or is not an ONNX model'
    )


def test_precisions_that_the_model_has_are_built(tmp_path):
    build(options(models.convolution(tmp_path / "half.onnx", dtype=np.float16), precision="fp16"))
    build(options(models.quantized(tmp_path / "quantized.onnx"), precision="int8"))


def test_what_the_library_says_is_in_the_exception_and_not_printed(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "hami.trt"):
        refused(models.unsupported(tmp_path / "model.onnx"))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_weights_beside_the_model_are_read(tmp_path):
    engine, _ = build(options(models.external(tmp_path / "model.onnx")))
    assert engine.startswith(b"vtrt")


def test_a_library_that_measures_nothing_says_that_it_keeps_no_timing_cache(model, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "hami.trt"):
        build(options(model, timing_cache=tmp_path / "timing.cache"))
    assert f"Owner: {RTX} has no timing cache; timing_cache is left out" in caplog.text
    assert not (tmp_path / "timing.cache").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"profiles": 0}, 'Owner: "instance_num" is 1 or more, got 0'),
        ({"optimization_level": 6}, 'Owner: "optimization_level" is 0 (quick) to 5, got 6'),
        ({"mean": ["a"]}, "Owner: \"mean\" is a list of numbers, got ['a']"),
        ({"std": [1, 0]}, 'Owner: "std" divides, so none of it may be 0, got [1.0, 0.0]'),
        (
            {"mean": [1, 2], "std": [1, 2, 3]},
            'Owner: "mean" has 2 numbers, "std" has 3; one for each channel',
        ),
        (
            {"compute_capability": ["9.0"]},
            'Owner: LIBRARY cannot build for compute capability "9.0"; it can for 7.5, 8.0, 8.6, 8.9, 12.0, 12.1',
        ),
    ],
)
def test_options_that_no_model_fits_are_told(model, given, message):
    assert refused(model, **given) == message


def test_a_model_that_is_not_there_is_told(tmp_path):
    with pytest.raises(hami.ConfigError) as caught:
        options(tmp_path / "none.onnx")
    path = tmp_path / "none.onnx"
    assert str(caught.value) == f'Owner: there is no model file "{path}" (looked for {path})'
