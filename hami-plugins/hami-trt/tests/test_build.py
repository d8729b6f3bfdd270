"""Builds with the real TensorRT-RTX: options reach the library, and a build that is not possible is an error."""

from __future__ import annotations

import logging

import hami
import models
import numpy as np
import pytest
from building import RTX, needs_rtx, options

from hami_trt import _build
from hami_trt._build import build
from hami_trt._shapes import ShapeRange

pytestmark = needs_rtx


def error_of(model, **given):
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


def record_networks(monkeypatch):
    """Record the networks of all later builds."""
    recorded = []
    real = RTX.new_network
    monkeypatch.setattr(RTX, "new_network", lambda *given: recorded.append(real(*given)) or recorded[-1])
    return recorded


def record_configurations(monkeypatch):
    """Record the builder configurations of all later builds."""
    recorded = []
    real = _build._builder_config
    monkeypatch.setattr(_build, "_builder_config", lambda *given: recorded.append(real(*given)) or recorded[-1])
    return recorded


def test_an_engine_is_built_without_a_gpu(model):
    engine, ranges = build(options(model, max="4"))
    assert engine.startswith(b"vtrt")
    assert ranges == {"x": ShapeRange((1, 3, 8, 8), (4, 3, 8, 8), (4, 3, 8, 8))}


def test_each_instance_has_a_profile(model, monkeypatch):
    configurations = record_configurations(monkeypatch)
    build(options(model, max="4", profiles=3))
    assert configurations[0].num_optimization_profiles == 3


def test_several_inputs_take_a_shape_each(tmp_path):
    model = models.two_inputs(tmp_path / "two.onnx")
    _, ranges = build(options(model, max="a: 4x4, b: 4x16", min="1x4,1x2"))
    assert ranges == {"a": ShapeRange((1, 4), (4, 4), (4, 4)), "b": ShapeRange((1, 2), (4, 16), (4, 16))}


def test_options_reach_the_library(model, monkeypatch):
    configurations = record_configurations(monkeypatch)
    build(
        options(
            model,
            workspace=1 << 24,
            optimization_level=1,
            compute_capability=["8.9", "12.0"],
            precision="fp32",
        )
    )
    (config,) = configurations
    flags, module = RTX.module.BuilderFlag, RTX.module
    assert config.get_memory_pool_limit(module.MemoryPoolType.WORKSPACE) == 1 << 24
    assert config.builder_optimization_level == 1
    assert [config.get_compute_capability(index) for index in range(config.num_compute_capabilities)] == [
        module.ComputeCapability.SM89,
        module.ComputeCapability.SM120,
    ]
    assert not config.get_flag(flags.TF32)
    build(options(model, precision="tf32"))
    assert configurations[1].get_flag(flags.TF32)


def test_version_compatible_is_set_and_a_missing_lean_runtime_is_reported(model, monkeypatch):
    configurations = record_configurations(monkeypatch)
    error = error_of(model, version_compatible=True)
    assert configurations[0].get_flag(RTX.module.BuilderFlag.VERSION_COMPATIBLE)
    assert error.startswith('Owner: LIBRARY cannot build "MODEL": ')
    assert "libnvinfer_lean" in error  # the wheels do not contain it


def layers(network):
    """Return the layers, each with the class of its kind, which the bindings do not set."""
    classes = {"CONSTANT": "IConstantLayer", "ELEMENTWISE": "IElementWiseLayer", "CAST": "ICastLayer"}
    found = [network.get_layer(index) for index in range(network.num_layers)]
    for layer in found:
        if layer.type.name in classes:
            layer.__class__ = getattr(RTX.module, classes[layer.type.name])
    return found


def test_mean_and_std_are_inserted_before_all_readers_of_the_input(model, monkeypatch):
    networks = record_networks(monkeypatch)
    plain, _ = build(options(model))
    merged, _ = build(options(model, mean=[1, 2, 3], std=[4]))
    before, after = (layers(network) for network in networks)
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


def test_a_fp16_input_is_normalized_in_fp32(tmp_path, monkeypatch):
    networks = record_networks(monkeypatch)
    build(options(models.convolution(tmp_path / "half.onnx", dtype=np.float16), mean=[1, 2, 3]))
    types = RTX.module.DataType
    casts = [layer for layer in layers(networks[0]) if layer.type == RTX.module.LayerType.CAST]
    assert [layer.get_output(0).dtype for layer in casts] == [types.FLOAT, types.HALF]


def test_mean_and_std_are_fixed_to_fp32_if_the_build_chooses_types(model, monkeypatch):
    """TensorRT-RTX never chooses types, so this records the call that would fix them."""
    fixed = []
    monkeypatch.setattr(RTX, "chooses_layer_types", lambda precision: precision == "fp16")
    monkeypatch.setattr(RTX, "has_precision_flag", lambda precision: True)
    monkeypatch.setattr(RTX, "set_precision", lambda config, precision: None)
    monkeypatch.setattr(RTX, "fix_layer_type", lambda layer, dtype, config: fixed.append((layer.type, dtype)))
    build(options(model, mean=[1], std=[2]))
    assert fixed == []
    build(options(model, mean=[1], std=[2], precision="fp16"))
    assert fixed == [(RTX.module.LayerType.ELEMENTWISE, RTX.module.DataType.FLOAT)] * 2


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (
            models.convolution,
            {"mean": [1, 2]},
            'Owner: "mean" and "std" need exactly one floating point input with as many channels (axis 1) as they have '
            'values, got 2 values and 0 matching inputs of "x" (-1, 3, 8, 8)',
        ),
        (
            models.two_inputs,
            {"mean": [1], "max": "a:4x4,b:4x4"},
            'Owner: "mean" and "std" need exactly one floating point input with as many channels (axis 1) as they have '
            'values, got 1 values and 2 matching inputs of "a" (-1, 4), "b" (-1, -1)',
        ),
        (
            models.convolution,
            {"precision": "fp16"},
            'Owner: LIBRARY computes in the types of the model, and "MODEL" has no fp16 layers; '
            "export it in fp16 and leave out `precision`",
        ),
        (
            models.convolution,
            {"precision": "int8"},
            'Owner: precision "int8" needs a model with QuantizeLinear and DequantizeLinear nodes, "MODEL" has none; '
            "quantize it first",
        ),
        (
            models.convolution,
            {"hardware_compatible": "ampere_plus"},
            'Owner: LIBRARY does not support hardware_compatible = "ampere_plus"; name the GPUs with '
            "compute_capability, or leave out both to build for all",
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
def test_a_build_that_is_not_possible_is_an_error(tmp_path, make, given, message):
    assert error_of(make(tmp_path / "model.onnx"), **given) == message


@pytest.mark.parametrize("content", [b"\x08\x09", b"\x3a\x00"])
def test_a_file_without_a_graph_is_an_error(tmp_path, content):
    model = tmp_path / "none.onnx"
    model.write_bytes(content)
    assert error_of(model) == (
        'Owner: LIBRARY cannot read "MODEL" (SIZE bytes): it is truncated or is not an ONNX model'
    )


def test_a_precision_of_the_model_is_accepted(tmp_path):
    build(options(models.convolution(tmp_path / "half.onnx", dtype=np.float16), precision="fp16"))
    build(options(models.quantized(tmp_path / "quantized.onnx"), precision="int8"))


def test_errors_of_the_library_are_in_the_exception_and_not_in_the_log(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "hami.trt"):
        error_of(models.unsupported(tmp_path / "model.onnx"))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_weights_beside_the_model_are_read(tmp_path):
    engine, _ = build(options(models.external(tmp_path / "model.onnx")))
    assert engine.startswith(b"vtrt")


def test_a_library_without_a_timing_cache_warns(model, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "hami.trt"):
        build(options(model, timing_cache=tmp_path / "timing.cache"))
    assert f"Owner: {RTX} has no timing cache; timing_cache is ignored" in caplog.text
    assert not (tmp_path / "timing.cache").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"profiles": 0}, 'Owner: "instance_num" must be 1 or more, got 0'),
        ({"optimization_level": 6}, 'Owner: "optimization_level" must be 0 to 5, got 6'),
        ({"mean": ["a"]}, "Owner: \"mean\" must be a list of finite numbers, got ['a']"),
        ({"std": [1, 0]}, 'Owner: "std" must not contain 0, got [1.0, 0.0]'),
        (
            {"mean": [1, 2], "std": [1, 2, 3]},
            'Owner: "mean" has 2 values and "std" has 3; give both one value per channel, '
            "or one value for all channels",
        ),
        (
            {"compute_capability": ["9.0"]},
            'Owner: LIBRARY cannot build for compute capability "9.0"; supported are 7.5, 8.0, 8.6, 8.9, 12.0, 12.1',
        ),
    ],
)
def test_invalid_options_are_rejected(model, given, message):
    assert error_of(model, **given) == message


def test_a_missing_model_is_an_error(tmp_path):
    with pytest.raises(hami.ConfigError) as caught:
        options(tmp_path / "none.onnx")
    path = tmp_path / "none.onnx"
    assert str(caught.value) == f'Owner: model file "{path}" does not exist (looked for {path})'
