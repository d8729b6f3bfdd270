"""Model, device and settings: mistakes are reported when the pipe is built."""

from __future__ import annotations

import os
from pathlib import Path

import hami
import numpy as np
import openvino
import pytest
from conftest import array, opset

VERSION = openvino.get_version().partition("-")[0]


def error_of(pipe, kind=hami.ConfigError, **config) -> str:
    with pytest.raises(kind) as error:
        pipe(**config)
    return str(error.value)


def test_a_missing_file_is_named(pipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = error_of(pipe, model="absent.onnx")
    path = tmp_path / "absent.onnx"
    assert f'parameter "model" of OpenvinoTensor: file "absent.onnx" does not exist (looked for {path})' in text


@pytest.mark.parametrize(("name", "number"), [("threads", 2**31), ("streams", 2**62)])
def test_a_number_out_of_range_is_rejected(pipe, models, name, number):
    text = error_of(pipe, model=str(models.double()), **{name: number})
    assert f"parameter `{name}` must be from -2147483648 to 2147483647, got {number}" in text


def test_a_folder_is_rejected(pipe, tmp_path):
    text = error_of(pipe, model=str(tmp_path))
    assert f'parameter "model" of OpenvinoTensor: file "{tmp_path}" is a folder' in text


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("model.onnx", b"", "(0 bytes) is truncated or is not an ONNX model: the file is empty"),
        ("model.xml", b"", "is empty; expected an ONNX model or an OpenVINO IR"),
        ("model.onnx", b"no model", "(8 bytes) is truncated or is not an ONNX model: wire type 6 is not used by ONNX"),
        ("model.xml", b"no model", "(8 bytes) is truncated or is not an ONNX model: wire type 6 is not used by ONNX"),
    ],
)
def test_a_file_that_cannot_be_read_is_reported_with_its_size(pipe, tmp_path, name, content, reason):
    path = tmp_path / name
    path.write_bytes(content)
    assert f'OpenvinoTensor: "{path}" {reason}' in error_of(pipe, model=str(path))


def test_the_reason_of_openvino_is_reported_without_places_in_its_sources(pipe, tmp_path):
    path = tmp_path / "model.xml"
    path.write_bytes(b"<net is not a model>")
    text = error_of(pipe, model=str(path))
    assert f'OpenvinoTensor: OpenVINO {VERSION} cannot read "{path}" (20 bytes): ' in text
    assert "Exception from" not in text


def test_the_error_for_an_unknown_device_lists_the_available_ones(pipe, models):
    path = models.double()
    text = error_of(pipe, model=str(path), device="TPU")
    devices = ", ".join(openvino.Core().available_devices)
    expected = (
        f'cannot compile "{path}" for device "TPU"; available devices are {devices}, and AUTO and HETERO over these: '
    )
    assert expected in text


def test_properties_reach_openvino(pipe, models):
    text = error_of(pipe, model=str(models.double()), properties=["NO_SUCH_PROPERTY=1"])
    assert "NO_SUCH_PROPERTY" in text
    text = error_of(pipe, model=str(models.double()), properties=["NO_SUCH_PROPERTY"])
    assert 'OpenvinoTensor: each of "properties" must have the form KEY=value, got "NO_SUCH_PROPERTY"' in text
    text = error_of(pipe, model=str(models.double()), properties=[f"KEY{i}=1" for i in range(20)])
    assert "OpenvinoTensor: at most 16 OpenVINO properties are supported, got 22 (those of other" in text


@pytest.mark.parametrize(
    "settings",
    [
        {"device": "AUTO"},
        {"device": "AUTO:CPU"},
        {"hint": "throughput", "streams": 2, "threads": 2},
        {"hint": "none"},
        {"threads": 1, "properties": ["EXECUTION_MODE_HINT=ACCURACY", "ENABLE_CPU_PINNING=NO"]},
    ],
    ids=str,
)
def test_settings_are_accepted(pipe, models, settings):
    request = pipe(model=str(models.double()), **settings)({"data": np.ones((1, 2), np.float32)})
    assert array(request).tolist() == [[2, 2]]


def test_an_unknown_hint_is_rejected(pipe, models):
    with pytest.raises(hami.ConfigError, match="hint"):
        pipe(model=str(models.double()), hint="speed")


def test_compiled_models_are_kept_in_the_cache_folder(pipe, models, tmp_path):
    cache = tmp_path / "cache"
    pipe(model=str(models.layers()[0]), cache_dir=str(cache))
    assert [path.suffix for path in cache.iterdir()] == [".blob"]


def test_a_replaced_model_is_opened_again(pipe, models):
    data = np.array([[1, 2]], np.float32)
    path = models.double()
    assert array(pipe(model=str(path))({"data": data})).tolist() == [[2, 4]]
    other = models.identity()
    os.replace(other, path)
    assert array(pipe(model=str(path))({"data": data})).tolist() == [[1, 2]]


def test_pipes_share_an_open_model_until_the_last_one_is_closed(pipe, models):
    data = np.array([[1, 2]], np.float32)
    path = models.double()
    before = path.stat()
    users = [pipe(model=str(path), batched=False, instance_num=2)]
    path.write_bytes(b"?" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    users.append(pipe(model=str(path), batched=False))
    assert [array(user({"data": data})).tolist() for user in users] == [[[2, 4]]] * 2
    for user in users:
        user.close()
    assert "cannot read" in error_of(pipe, model=str(path), batched=False)


def save_stateful_model(path: Path) -> Path:
    """Write an IR: y = x + sum of all earlier x."""
    opset6 = opset(6)
    x = opset6.parameter([1, 2], np.float32, name="x")
    state = opset6.read_value(opset6.constant(np.zeros((1, 2), np.float32)), "v", openvino.Type.f32, [1, 2])
    total = opset6.add(state, x)
    openvino.save_model(openvino.Model([opset6.result(total)], [opset6.assign(total, "v")], [x], "m"), path)
    return path


def test_a_stateful_model_is_rejected(pipe, tmp_path):
    path = save_stateful_model(tmp_path / "state.xml")
    assert f'"{path}" keeps state between runs (ReadValue)' in error_of(pipe, model=str(path))


def test_an_ir_of_symbolic_links_is_read_as_in_the_hugging_face_cache(pipe, models, tmp_path):
    """Only the links have the names of an IR; their targets have other names."""
    openvino.save_model(openvino.Core().read_model(models.layers()[0]), tmp_path / "m.xml")
    (tmp_path / "snapshot").mkdir()
    for suffix in ("xml", "bin"):
        (tmp_path / f"m.{suffix}").rename(tmp_path / f"blob_{suffix}")
        (tmp_path / "snapshot" / f"m.{suffix}").symlink_to(tmp_path / f"blob_{suffix}")
    data = np.ones((1, 8), np.float32)
    expected = array(pipe(model=str(models.layers()[0]))({"data": data}))
    result = array(pipe(model=str(tmp_path / "snapshot" / "m.xml"))({"data": data}))
    np.testing.assert_allclose(result, expected, rtol=1e-2, atol=1e-2)


def test_a_library_that_is_not_openvino_is_rejected(pipe, models):
    hami.native.allow_library("/absent/libopenvino_c.so")
    text = error_of(pipe, hami.PluginError, model=str(models.double()), library="/absent/libopenvino_c.so")
    assert "cannot load OpenVINO's C library: /absent/libopenvino_c.so: cannot open shared object file" in text
    other = next(Path(openvino.__file__).parent.glob("libs/libtbb.so*"))
    hami.native.allow_library(other)
    text = error_of(pipe, hami.PluginError, model=str(models.double()), library=str(other))
    assert f'"{other}" has no function ov_get_last_err_msg; OpenVINO 2024.0 or newer is required' in text


def test_a_library_beside_a_configuration_is_not_loaded(pipe, models, tmp_path):
    """Loading it would run its code."""
    library = tmp_path / "libopenvino_c.so"
    library.write_bytes(b"")
    text = error_of(pipe, model=str(models.double()), library=str(library))
    assert 'parameter "library" of OpenvinoTensor loads native code, which a configuration may do only from ' in text
    assert f'allow "{library}" by HAMI_ALLOWED_LIBRARIES in the environment, or by hami.native.allow_library' in text


def precision_of(pipe, caplog, path, **config) -> str:
    """Return the precision with which OpenVINO says that it has compiled the model."""
    caplog.clear()
    caplog.set_level("INFO", "hami")
    pipe(model=str(path), **config)
    (text,) = [record.getMessage() for record in caplog.records if "INFERENCE_PRECISION_HINT" in record.getMessage()]
    return text.rpartition(" = ")[2]


def own_precision(path, **properties) -> str:
    compiled = openvino.Core().compile_model(path, "CPU", properties)
    return compiled.get_property("INFERENCE_PRECISION_HINT").to_string()


def test_a_float32_model_computes_in_float32_unless_something_else_is_chosen(pipe, models, caplog):
    """OpenVINO chooses bfloat16 where the processor has it."""
    path = models.layers()[0]
    half = ["INFERENCE_PRECISION_HINT=bf16"]
    bf16 = own_precision(path, INFERENCE_PRECISION_HINT="bf16")
    assert precision_of(pipe, caplog, path) == "f32"
    assert precision_of(pipe, caplog, path, precision="auto") == own_precision(path)
    assert precision_of(pipe, caplog, path, precision="bf16") == bf16
    assert precision_of(pipe, caplog, path, properties=half) == bf16
    assert precision_of(pipe, caplog, path, precision="f32", properties=half) == bf16
    fast = ["EXECUTION_MODE_HINT=PERFORMANCE"]
    assert precision_of(pipe, caplog, path, properties=fast) == own_precision(path, EXECUTION_MODE_HINT="PERFORMANCE")
    assert precision_of(pipe, caplog, path, precision="f32", properties=fast) == "f32"


def test_a_float32_model_gives_the_numbers_of_float32(pipe, models):
    """In bfloat16 they differ by some percent, where the processor has it."""
    path, constants = models.layers()
    data = np.random.default_rng(3).standard_normal((5, 8)).astype(np.float32)
    expected = np.maximum(data @ constants["a"] + constants["b"], 0) @ constants["c"]
    np.testing.assert_allclose(array(pipe(model=str(path))({"data": data})), expected, rtol=1e-4, atol=1e-5)


def test_explain_says_in_what_a_model_computes(pipe, models):
    path = str(models.double())
    for config, text in (
        ({}, "float32"),
        ({"precision": "bf16"}, "bfloat16"),
        ({"precision": "auto"}, "what it considers fastest on the device"),
        ({"properties": ["INFERENCE_PRECISION_HINT=f16"]}, "what INFERENCE_PRECISION_HINT = f16 says"),
    ):
        assert f"default: OpenVINO computes float32 models in {text}" in pipe(model=path, **config).remarks()
