"""What differs between the libraries and their versions, on stand-ins that have the names that each of them has."""

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
    """The names of the flags that a network is made with."""
    made = library(module).new_network(SimpleNamespace(create_network=lambda flags: flags), precision)
    return [flag.name for flag in module.NetworkDefinitionCreationFlag if made & 1 << flag]


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
def test_a_network_keeps_to_the_types_of_the_model_unless_a_precision_can_be_set(module, precision):
    loose = module in (NINE, TEN) and precision in ("fp16", "bf16", "int8")
    assert ("STRONGLY_TYPED" in network_flags(module, precision)) is not loose
    assert ("EXPLICIT_BATCH" in network_flags(module, precision)) is (module in (NINE, TEN))
    expected = {"TF32"} if precision != "fp32" else set()
    assert builder_flags(module, precision) == (expected | {precision.upper()} if loose else expected)


@pytest.mark.parametrize("module", EVERY, ids=lambda module: module.__version__)
def test_a_build_chooses_types_only_where_a_precision_can_be_set(module):
    choosing = [each for each in (None, "fp32", "tf32", "fp16", "bf16", "int8") if library(module).chooses_types(each)]
    assert choosing == (["fp16", "bf16", "int8"] if module in (NINE, TEN) else [])


@pytest.mark.parametrize("module", [NINE, TEN], ids=lambda module: module.__version__)
def test_a_layer_keeps_its_type_where_the_build_chooses(module):
    told = []
    layer, config = SimpleNamespace(set_output_type=lambda *given: told.append(given)), Config()
    library(module).keep_type(layer, "FLOAT", config)
    assert (layer.precision, told) == ("FLOAT", [(0, "FLOAT")])
    assert config.set == {"TF32", "PREFER_PRECISION_CONSTRAINTS"}


@pytest.mark.parametrize("module", EVERY, ids=lambda module: module.__version__)
def test_contexts_may_share_a_profile(module):
    """In TensorRT 11 and TensorRT-RTX they always may."""
    config = Config()
    library(module).share_profiles(config)
    assert config.set == {"TF32"} | ({"PROFILE_SHARING_0806"} if module in (NINE, TEN) else set())


@pytest.mark.parametrize("module", EVERY, ids=lambda module: module.__version__)
def test_the_version_says_nothing_only_its_names_do(module):
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
            'Owner: tensorrt 10.3.0 has no hardware_compatible = "same_compute_capability"',
        ),
        (
            RTX,
            "ampere_plus",
            'Owner: tensorrt-rtx 1.7.1 has no hardware_compatible = "ampere_plus"; '
            "say which GPUs by compute_capability, or leave both out: all",
        ),
    ],
)
def test_a_compatibility_that_a_library_does_not_have_is_refused(module, level, message):
    with pytest.raises(hami.ConfigError) as caught:
        library(module).set_hardware_compatible(SimpleNamespace(), level, "Owner")
    assert str(caught.value) == message


def test_a_compatibility_that_it_has_is_set():
    config = SimpleNamespace()
    library(ELEVEN).set_hardware_compatible(config, "same_compute_capability", "Owner")
    assert config.hardware_compatibility_level == ELEVEN.HardwareCompatibilityLevel.SAME_COMPUTE_CAPABILITY


def test_only_a_library_that_builds_for_other_gpus_takes_compute_capabilities():
    assert list(library(RTX).compute_capabilities()) == ["7.5", "12.0"]
    assert [library(module).builds_for_any for module in EVERY] == [False, False, False, True]
    assert [library(module).times_tactics for module in EVERY] == [True, True, True, False]
    library(RTX).check_compute_capabilities(["12.0"], "Owner")
    library(TEN).check_compute_capabilities([], "Owner")
    with pytest.raises(hami.ConfigError) as caught:
        library(TEN).check_compute_capabilities(["8.9"], "Owner")
    assert str(caught.value) == (
        'Owner: tensorrt 10.3.0 builds for the GPU at hand only, not for a "compute_capability"; tensorrt-rtx does'
    )


def test_instance_normalization_is_parsed_without_a_plugin_where_it_can_be_said():
    """In TensorRT 9 that has to be said."""
    with_flag = SimpleNamespace(**vars(NINE), OnnxParserFlag=flags("OnnxParserFlag", "NATIVE_INSTANCENORM"))
    said = []
    for each in (with_flag, NINE):
        library(each).avoid_plugins(SimpleNamespace(set_flag=said.append))
    assert said == [with_flag.OnnxParserFlag.NATIVE_INSTANCENORM]


def test_the_plugins_of_a_library_that_has_some_are_registered_once():
    registered = []
    with_plugins = SimpleNamespace(**vars(TEN), init_libnvinfer_plugins=lambda *told: registered.append(told))
    assert registered == [(library(with_plugins).logger, "")]


def test_only_a_library_that_says_so_has_outputs_in_place_of_inputs():
    assert not library(TEN).is_in_place(SimpleNamespace(), "y")
    later = SimpleNamespace(get_aliased_input_tensor={"y": "x", "z": None}.get)
    assert [library(ELEVEN).is_in_place(later, name) for name in ("x", "y", "z")] == [False, True, False]


def test_a_parser_that_does_not_name_the_node_is_no_failure():
    assert library(NINE).where(SimpleNamespace()) == ("", "")
    named = SimpleNamespace(node_operator=lambda: "Det", node_name=lambda: "strange")
    assert library(TEN).where(named) == ("Det", "strange")


def test_a_library_that_is_there_without_what_it_loads_says_so(tmp_path, monkeypatch):
    """As where the Python part of TensorRT is installed and its shared library is not."""
    for name in LIBRARIES:
        monkeypatch.setitem(LIBRARIES, name, ((f"{name.replace('-', '_')}_of_tests",), LIBRARIES[name][1]))
    (tmp_path / "tensorrt_of_tests.py").write_text(
        "raise ImportError('libnvinfer.so.11: cannot open shared object file')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_tensorrt, "_load", _tensorrt._load.__wrapped__)  # nothing is remembered
    for name in (None, "tensorrt"):
        with pytest.raises(hami.ConfigError) as caught:
            find_library(name, "Owner")
        assert str(caught.value) == (
            "Owner: tensorrt is installed but cannot be loaded: libnvinfer.so.11: cannot open shared object file"
        )
