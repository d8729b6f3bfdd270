"""Differences between the libraries and their versions, with mocks that have the names of each version."""

from __future__ import annotations

import enum
from types import SimpleNamespace

import hami
import pytest

from hami_trt import _tensorrt
from hami_trt._tensorrt import LIBRARIES, Library, find_library


class ILogger:
    Severity = enum.Enum("Severity", ["INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE"])

    def log(self, severity, message):
        raise NotImplementedError


def flags(name: str, *members: str) -> type[enum.IntEnum]:
    return enum.IntEnum(name, {member: number for number, member in enumerate(members)})


def module(version: str, networks: tuple[str, ...], builds: tuple[str, ...], levels: tuple[str, ...], **more):
    return SimpleNamespace(
        __version__=version,
        ILogger=ILogger,
        NetworkDefinitionCreationFlag=flags("NetworkDefinitionCreationFlag", *networks),
        BuilderFlag=flags("BuilderFlag", "TF32", *builds),
        HardwareCompatibilityLevel=flags("HardwareCompatibilityLevel", "NONE", *levels),
        **more,
    )


SHARING = flags("PreviewFeature", "PROFILE_SHARING_0806")
NINE = module(
    "9.3.0",
    ("EXPLICIT_BATCH", "STRONGLY_TYPED"),
    ("FP16", "BF16", "INT8", "PREFER_PRECISION_CONSTRAINTS"),
    ("AMPERE_PLUS",),
    PreviewFeature=SHARING,
)
TEN = module(
    "10.3.0",
    ("EXPLICIT_BATCH", "STRONGLY_TYPED"),
    ("FP16", "BF16", "INT8", "PREFER_PRECISION_CONSTRAINTS"),
    ("AMPERE_PLUS",),
    PreviewFeature=SHARING,
)
ELEVEN = module("11.4.0", ("STRONGLY_TYPED",), (), ("AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY"))
RTX = module(
    "1.7.1",
    ("STRONGLY_TYPED",),
    (),
    ("AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY"),
    ComputeCapability=flags("ComputeCapability", "NONE", "CURRENT", "SM75", "SM120"),
)
EVERY = [NINE, TEN, ELEVEN, RTX]


def library(module) -> Library:
    return Library("tensorrt-rtx" if module is RTX else "tensorrt", module)


def network_flags(module, precision):
    """Return the names of the flags that a network is created with."""
    created = library(module).new_network(SimpleNamespace(create_network=lambda flags: flags), precision)
    return [flag.name for flag in module.NetworkDefinitionCreationFlag if created & 1 << flag]


class Config:
    def __init__(self):
        self.set = {"TF32"}

    def set_flag(self, flag):
        self.set.add(flag.name)

    def clear_flag(self, flag):
        self.set.remove(flag.name)

    def set_preview_feature(self, feature, on):
        self.set |= {feature.name} if on else set()


def builder_flags(module, precision):
    config = Config()
    library(module).set_precision(config, precision)
    return config.set


@pytest.mark.parametrize("module", EVERY, ids=lambda module: module.__version__)
@pytest.mark.parametrize("precision", [None, "fp32", "tf32", "fp16", "bf16", "int8"])
def test_a_network_keeps_the_types_of_the_model_unless_the_precision_is_a_flag(module, precision):
    by_flag = module in (NINE, TEN) and precision in ("fp16", "bf16", "int8")
    assert ("STRONGLY_TYPED" in network_flags(module, precision)) is not by_flag
    assert ("EXPLICIT_BATCH" in network_flags(module, precision)) is (module in (NINE, TEN))
    expected = {"TF32"} if precision != "fp32" else set()
    assert builder_flags(module, precision) == (expected | {precision.upper()} if by_flag else expected)


@pytest.mark.parametrize("module", EVERY, ids=lambda module: module.__version__)
def test_a_build_chooses_layer_types_only_if_the_precision_is_a_flag(module):
    choosing = [
        each for each in (None, "fp32", "tf32", "fp16", "bf16", "int8") if library(module).chooses_layer_types(each)
    ]
    assert choosing == (["fp16", "bf16", "int8"] if module in (NINE, TEN) else [])


@pytest.mark.parametrize("module", [NINE, TEN], ids=lambda module: module.__version__)
def test_the_type_of_a_layer_can_be_fixed_if_the_build_chooses_types(module):
    output_types = []
    layer, config = SimpleNamespace(set_output_type=lambda *given: output_types.append(given)), Config()
    library(module).fix_layer_type(layer, "FLOAT", config)
    assert (layer.precision, output_types) == ("FLOAT", [(0, "FLOAT")])
    assert config.set == {"TF32", "PREFER_PRECISION_CONSTRAINTS"}


@pytest.mark.parametrize("module", EVERY, ids=lambda module: module.__version__)
def test_contexts_can_share_a_profile(module):
    """TensorRT 11 and TensorRT-RTX always allow it."""
    config = Config()
    library(module).share_profiles(config)
    assert config.set == {"TF32"} | ({"PROFILE_SHARING_0806"} if module in (NINE, TEN) else set())


@pytest.mark.parametrize("module", EVERY, ids=lambda module: module.__version__)
def test_features_are_detected_by_name_and_not_by_version(module):
    renamed = SimpleNamespace(**{**vars(module), "__version__": "1.0"})
    for precision in (None, "fp32", "fp16", "int8"):
        assert network_flags(renamed, precision) == network_flags(module, precision)
        assert builder_flags(renamed, precision) == builder_flags(module, precision)


@pytest.mark.parametrize(
    ("module", "level", "message"),
    [
        (
            TEN,
            "same_compute_capability",
            'Owner: tensorrt 10.3.0 does not support hardware_compatible = "same_compute_capability"',
        ),
        (
            RTX,
            "ampere_plus",
            'Owner: tensorrt-rtx 1.7.1 does not support hardware_compatible = "ampere_plus"; '
            "name the GPUs with compute_capability, or leave out both to build for all",
        ),
    ],
)
def test_an_unsupported_hardware_compatibility_is_rejected(module, level, message):
    with pytest.raises(hami.ConfigError) as caught:
        library(module).set_hardware_compatible(SimpleNamespace(), level, "Owner")
    assert str(caught.value) == message


def test_a_supported_hardware_compatibility_is_set():
    config = SimpleNamespace()
    library(ELEVEN).set_hardware_compatible(config, "same_compute_capability", "Owner")
    assert config.hardware_compatibility_level == ELEVEN.HardwareCompatibilityLevel.SAME_COMPUTE_CAPABILITY


def test_only_tensorrt_rtx_supports_compute_capabilities():
    assert list(library(RTX).compute_capabilities()) == ["7.5", "12.0"]
    assert [library(module).builds_for_any_gpu for module in EVERY] == [False, False, False, True]
    assert [library(module).has_timing_cache for module in EVERY] == [True, True, True, False]
    library(RTX).check_compute_capabilities(["12.0"], "Owner")
    library(TEN).check_compute_capabilities([], "Owner")
    with pytest.raises(hami.ConfigError) as caught:
        library(TEN).check_compute_capabilities(["8.9"], "Owner")
    assert str(caught.value) == (
        'Owner: tensorrt 10.3.0 builds only for the GPU of this machine and does not support "compute_capability"; '
        "tensorrt-rtx does"
    )


def test_instance_normalization_is_parsed_without_a_plugin_if_there_is_a_flag():
    """TensorRT 9 needs the flag."""
    with_flag = SimpleNamespace(**vars(NINE), OnnxParserFlag=flags("OnnxParserFlag", "NATIVE_INSTANCENORM"))
    set_flags = []
    for each in (with_flag, NINE):
        library(each).parse_without_plugins(SimpleNamespace(set_flag=set_flags.append))
    assert set_flags == [with_flag.OnnxParserFlag.NATIVE_INSTANCENORM]


def test_the_plugins_of_a_library_are_registered_once():
    registered = []
    with_plugins = SimpleNamespace(**vars(TEN), init_libnvinfer_plugins=lambda *given: registered.append(given))
    assert registered == [(library(with_plugins).logger, "")]


def test_only_a_library_with_aliased_inputs_has_in_place_outputs():
    assert not library(TEN).is_in_place(SimpleNamespace(), "y")
    later = SimpleNamespace(get_aliased_input_tensor={"y": "x", "z": None}.get)
    assert [library(ELEVEN).is_in_place(later, name) for name in ("x", "y", "z")] == [False, True, False]


def test_a_parser_without_node_names_is_supported():
    assert library(NINE).node_of_error(SimpleNamespace()) == ("", "")
    named = SimpleNamespace(node_operator=lambda: "Det", node_name=lambda: "strange")
    assert library(TEN).node_of_error(named) == ("Det", "strange")


def test_a_library_that_cannot_be_loaded_is_an_error(tmp_path, monkeypatch):
    """For example, the Python part of TensorRT is installed without its shared library."""
    for name in LIBRARIES:
        module = f"{name.replace('-', '_')}_of_tests"
        monkeypatch.setitem(LIBRARIES, name, LIBRARIES[name]._replace(modules=(module,)))
    (tmp_path / "tensorrt_of_tests.py").write_text(
        "raise ImportError('libnvinfer.so.11: cannot open shared object file')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_tensorrt, "_load", _tensorrt._load.__wrapped__)  # without the cache of loaded libraries
    for name in (None, "tensorrt"):
        with pytest.raises(hami.ConfigError) as caught:
            find_library(name, "Owner")
        assert str(caught.value) == (
            "Owner: tensorrt is installed but cannot be loaded: libnvinfer.so.11: cannot open shared object file"
        )
