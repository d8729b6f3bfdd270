"""Which model, on which device, with which settings: what is wrong is said when the pipe is made."""

from __future__ import annotations

import os
from pathlib import Path

import hami
import numpy as np
import openvino
import pytest
from conftest import array, opset

VERSION = openvino.get_version().partition("-")[0]


def refused(pipe, kind=hami.ConfigError, **config) -> str:
    with pytest.raises(kind) as error:
        pipe(**config)
    return str(error.value)


def test_a_missing_file_is_named(pipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = refused(pipe, model="absent.onnx")
    assert f'OpenvinoTensor: there is no model file "absent.onnx" (looked for {tmp_path / "absent.onnx"})' in text


@pytest.mark.parametrize(("name", "number"), [("threads", 2**31), ("streams", 2**62)])
def test_a_number_that_openvino_cannot_take_is_refused(pipe, models, name, number):
    text = refused(pipe, model=str(models.double()), **{name: number})
    assert f"parameter `{name}` takes -2147483648 to 2147483647, got {number}" in text


def test_a_folder_is_no_model(pipe, tmp_path):
    text = refused(pipe, model=str(tmp_path))
    assert f'"model" is the path of an ONNX file or of an IR\'s .xml, "{tmp_path}" is a folder' in text


@pytest.mark.parametrize("name", ["model.onnx", "model.xml"])
def test_what_cannot_be_read_is_told_with_its_size(pipe, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"")
    assert f'OpenvinoTensor: "{path}" is empty, and is no model' in refused(pipe, model=str(path))
    path.write_bytes(b"<net no model at all")
    text = refused(pipe, model=str(path))
    assert f'OpenvinoTensor: OpenVINO {VERSION} cannot read "{path}" (20 bytes): ' in text
    assert "Exception from" not in text


def test_an_unknown_device_is_told_which_there_are(pipe, models):
    path = models.double()
    text = refused(pipe, model=str(path), device="TPU")
    devices = ", ".join(openvino.Core().available_devices)
    assert (
        f'cannot compile "{path}" for device "TPU"; there are {devices} here, and AUTO and HETERO over them: ' in text
    )


def test_properties_reach_openvino(pipe, models):
    text = refused(pipe, model=str(models.double()), properties=["NO_SUCH_PROPERTY=1"])
    assert "NO_SUCH_PROPERTY" in text
    text = refused(pipe, model=str(models.double()), properties=["NO_SUCH_PROPERTY"])
    assert 'OpenvinoTensor: "properties" are written KEY=value, got "NO_SUCH_PROPERTY"' in text
    text = refused(pipe, model=str(models.double()), properties=[f"KEY{i}=1" for i in range(20)])
    assert "OpenvinoTensor: at most 16 properties are taken, got 21" in text


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
def test_settings_are_taken(pipe, models, settings):
    answer = pipe(model=str(models.double()), **settings)({"data": np.ones((1, 2), np.float32)})
    assert array(answer).tolist() == [[2, 2]]


def test_an_unknown_hint_is_refused(pipe, models):
    with pytest.raises(hami.ConfigError, match="hint"):
        pipe(model=str(models.double()), hint="speed")


def test_compiled_models_are_kept_in_the_cache_folder(pipe, models, tmp_path):
    cache = tmp_path / "cache"
    pipe(model=str(models.layers()[0]), cache_dir=str(cache))
    assert [path.suffix for path in cache.iterdir()] == [".blob"]


def test_a_replaced_file_is_opened_anew(pipe, models):
    data = np.array([[1, 2]], np.float32)
    path = models.double()
    assert array(pipe(model=str(path))({"data": data})).tolist() == [[2, 4]]
    other = models.same()
    os.replace(other, path)
    assert array(pipe(model=str(path))({"data": data})).tolist() == [[1, 2]]


def test_a_model_in_use_is_not_opened_again_and_goes_with_its_last_user(pipe, models):
    data = np.array([[1, 2]], np.float32)
    path = models.double()
    before = path.stat()
    users = [pipe(model=str(path), instance_num=2)]
    path.write_bytes(b"?" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    users.append(pipe(model=str(path)))
    assert [array(user({"data": data})).tolist() for user in users] == [[[2, 4]]] * 2
    for user in users:
        user.close()
    assert "cannot read" in refused(pipe, model=str(path))


def add_state(path: Path) -> Path:
    """An IR: y = x + the sum of all x before."""
    opset6 = opset(6)
    x = opset6.parameter([1, 2], np.float32, name="x")
    state = opset6.read_value(opset6.constant(np.zeros((1, 2), np.float32)), "v", openvino.Type.f32, [1, 2])
    total = opset6.add(state, x)
    openvino.save_model(openvino.Model([opset6.result(total)], [opset6.assign(total, "v")], [x], "m"), path)
    return path


def test_a_model_that_keeps_state_between_callers_is_refused(pipe, tmp_path):
    path = add_state(tmp_path / "state.xml")
    assert f'"{path}" keeps values from one run to the next (ReadValue)' in refused(pipe, model=str(path))


def test_an_ir_of_links_is_read_as_in_the_cache_of_hugging_face(pipe, models, tmp_path):
    """Both files are links of the right names; what they lead to has others."""
    openvino.save_model(openvino.Core().read_model(models.layers()[0]), tmp_path / "m.xml")
    (tmp_path / "snapshot").mkdir()
    for suffix in ("xml", "bin"):
        (tmp_path / f"m.{suffix}").rename(tmp_path / f"blob_{suffix}")
        (tmp_path / "snapshot" / f"m.{suffix}").symlink_to(tmp_path / f"blob_{suffix}")
    data = np.ones((1, 8), np.float32)
    expected = array(pipe(model=str(models.layers()[0]))({"data": data}))
    result = array(pipe(model=str(tmp_path / "snapshot" / "m.xml"))({"data": data}))
    np.testing.assert_allclose(result, expected, rtol=1e-2, atol=1e-2)


def test_another_library_is_told_that_it_is_none(pipe, models):
    text = refused(pipe, hami.PluginError, model=str(models.double()), library="/absent/libopenvino_c.so")
    assert "OpenVINO's C library cannot be loaded: /absent/libopenvino_c.so: cannot open shared object file" in text
    other = next(Path(openvino.__file__).parent.glob("libs/libtbb.so*"))
    text = refused(pipe, hami.PluginError, model=str(models.double()), library=str(other))
    assert f'"{other}" has no function ov_get_last_err_msg; OpenVINO from 2024.0 on has it' in text
