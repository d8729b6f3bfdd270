"""Devices of vendors: OpenVINO on the CPU, the others with stand-in modules of the same public API."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import hami
import numpy as np
import pytest

from hami_accel import AccelModel, DeviceError, Platform
from hami_accel import platform as platforms
from hami_accel.vendors.priorities import SCALES

README = Path(__file__).resolve().parent.parent / "README.md"


def test_priorities_map_in_order_and_the_readme_shows_the_table():
    for name, scale in SCALES.items():
        values = [scale.of(priority) for priority in range(256)]
        order = list(dict.fromkeys(values))
        assert values == sorted(values, key=order.index), "larger priorities never map to smaller ones"
        assert values[254] == values[255] == scale.preempting != values[253]
        row = f"| `{name}` | {_span(scale.ordinary)} | {scale.preempting} |"
        assert row in README.read_text()


def _span(values: tuple) -> str:
    return ", ".join(map(str, values)) if len(values) < 5 else f"{values[0]} to {values[-1]}"


def test_openvino_runs_a_model(tmp_path):
    pytest.importorskip("openvino")
    onnx = pytest.importorskip("onnx")
    from models import Builder

    from hami_accel.vendors.openvino import OpenVinoDevice

    b = Builder()
    y = b("Relu", b("MatMul", b.input("x", [1, 4]), b.weight(np.eye(4, dtype=np.float32) * 2)))
    path = b.save(tmp_path / "net.onnx", y)
    with AccelModel(path, 2, device=OpenVinoDevice(target="CPU")) as model:
        tickets = [model.start(np.array([[1, -1, 2, n]], np.float32)) for n in range(2)]
        for n, ticket in enumerate(tickets):
            assert model.wait(ticket).tolist() == [[2, 0, 4, 2 * n]]
        assert np.array_equal(model.infer([[1, 1, 1, 1]], priority=255), [[2, 2, 2, 2]])
    for wrong, message in ((tmp_path / "none.onnx", "cannot load"), (3, "takes the path")):
        with pytest.raises(hami.ConfigError, match=message):
            AccelModel(wrong, device=OpenVinoDevice(target="CPU"))
    with pytest.raises(hami.ConfigError, match="has the devices"):
        OpenVinoDevice(target="TPU9")
    b = Builder()
    dynamic = b.save(tmp_path / "d.onnx", b("Relu", b.input("x", ["n", 4])))
    with pytest.raises(hami.ConfigError, match="need fixed shapes"):
        AccelModel(dynamic, device=OpenVinoDevice(target="CPU"))
    with AccelModel(dynamic, device=OpenVinoDevice(target="CPU"), shapes={"x": [3, 4]}) as model:
        assert model(np.zeros((3, 4), np.float32)).shape == (3, 4)
    assert onnx is not None


@pytest.fixture
def hbm(monkeypatch):
    """A stand-in for hbm_runtime with the models `twice` and `fails`."""
    calls: list[object] = []

    class Runtime:
        model_names = ("twice", "fails")

        def __init__(self, path: str) -> None:
            if not Path(path).is_file():
                raise RuntimeError(f"no such file: {path}", -100)
            ports = {name: ["x"] for name in self.model_names}
            self.input_names, self.output_names = ports, {name: ["y"] for name in self.model_names}
            self.input_shapes = {name: {"x": (1, 2)} for name in self.model_names}
            self.output_shapes = {name: {"y": (1, 2)} for name in self.model_names}
            self.input_dtypes = {name: {"x": types.SimpleNamespace(name="INT8")} for name in self.model_names}
            self.output_dtypes = {name: {"y": types.SimpleNamespace(name="INT8")} for name in self.model_names}

        def set_scheduling_params(self, priority, bpu_cores):
            calls.append((priority, bpu_cores))

        def run(self, inputs, model_name):
            if model_name == "fails":
                raise RuntimeError("BPU error", -6)
            return {model_name: {"y": inputs["x"] * 2}}

    monkeypatch.setitem(sys.modules, "hbm_runtime", types.SimpleNamespace(HB_HBMRuntime=Runtime, __version__="1.0"))
    monkeypatch.setattr(platforms, "_devices", {})
    sys.modules.pop("hami_accel.vendors.hbm", None)
    yield calls
    sys.modules.pop("hami_accel.vendors.hbm", None)


def test_hbm_passes_priority_and_core_and_keeps_error_codes(hbm, tmp_path):
    path = tmp_path / "net.hbm"
    path.write_bytes(b"")
    with AccelModel(path, device="hbm") as model:
        model.set_scheduling(cores=[2])
        assert model.infer(np.array([[1, 2]], np.int8), priority=255).tolist() == [[2, 4]]
        assert hbm == [({"twice": 255}, {"twice": [2]})]
        assert model.summary()["models"] == ["twice", "fails"]
    with AccelModel(path, select="fails", device="hbm") as model:
        with pytest.raises(DeviceError, match="BPU error") as caught:
            model(np.array([[1, 2]], np.int8))
        assert caught.value.code == -6
        assert not model.is_busy(0)
    with pytest.raises(hami.ConfigError, match="select must be 0 to 1"):
        AccelModel(path, select=2, device="hbm")
    with pytest.raises(hami.ConfigError, match="cannot load"):
        AccelModel(tmp_path / "none.hbm", device="hbm")


def test_a_missing_vendor_module_is_named(monkeypatch):
    monkeypatch.setattr(platforms, "_devices", {})
    monkeypatch.setitem(sys.modules, "hbm_runtime", None)
    sys.modules.pop("hami_accel.vendors.hbm", None)
    with pytest.raises(hami.ConfigError, match="'hbm' needs the module hbm_runtime"):
        Platform().device("hbm")
    assert "needs the module" in Platform().summary()["hbm"]["error"]
