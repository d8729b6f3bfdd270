"""Devices of vendors: OpenVINO on the CPU, the others with stand-in modules of the same public API."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import hami
import numpy as np
import pytest

from hami_accel import AccelModel, DeviceError, Platform, SlotLost
from hami_accel import platform as platforms
from hami_accel.vendors.mapping import MAPPINGS

README = Path(__file__).resolve().parent.parent / "README.md"


def test_priorities_map_in_order():
    for mapping in MAPPINGS.values():
        if mapping.scale is not None:
            values = [mapping.scale.of(priority) for priority in range(256)]
            order = list(dict.fromkeys(values))
            assert values == sorted(values, key=order.index), "larger priorities never map to smaller ones"
            assert values[254] == values[255] == mapping.scale.preempting != values[253]


CORES = {"hbm": 4, "rknn": 3}  # of the largest boards


def test_the_readme_shows_the_mapping_of_each_vendor():
    for name, mapping in MAPPINGS.items():
        scale, core = mapping.scale, "-"
        if mapping.cores:
            core = f"`{mapping.cores}` " + ", ".join(str(mapping.core(core)) for core in range(CORES[name]))
        low, high = ("-", "-") if scale is None else (_span(scale.ordinary), scale.preempting)
        assert f"| `{name}` | {low} | {high} | {core} | {mapping.quantisation} |" in README.read_text()


def _span(values: tuple) -> str:
    return ", ".join(map(str, values)) if len(values) < 5 else f"{values[0]} to {values[-1]}"


def test_every_vendor_device_has_a_mapping_and_few_lines():
    for path in (README.parent / "python" / "hami_accel" / "vendors").glob("[!_m]*.py"):
        assert path.stem in MAPPINGS
        assert len(path.read_text().splitlines()) <= 300


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
            scaled = types.SimpleNamespace(scale=np.array([0.5]), zero_point=np.array([], np.int32))
            channels = types.SimpleNamespace(scale=np.array([0.5, 2]), zero_point=np.array([0, 0]))
            self.input_quants = {name: {"x": scaled} for name in self.model_names}
            self.output_quants = {name: {"y": channels} for name in self.model_names}

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
        assert model.inputs[0].quantization == (0.5, 0)
        assert model.outputs[0].quantization is None, "a scale per channel is not one of the tensor"
        assert model.infer([[1.0, 2.0]]).tolist() == [[4, 8]], "real values are quantised"
    with AccelModel(path, select="fails", device="hbm") as model:
        with pytest.raises(DeviceError, match="BPU error") as caught:
            model(np.array([[1, 2]], np.int8))
        assert caught.value.code == -6
        assert not model.is_busy(0)
    with pytest.raises(hami.ConfigError, match="select must be 0 to 1"):
        AccelModel(path, select=2, device="hbm")
    with pytest.raises(hami.ConfigError, match="cannot load"):
        AccelModel(tmp_path / "none.hbm", device="hbm")


@pytest.fixture
def rknn(monkeypatch):
    """A stand-in for rknnlite that adds the number of the core mask."""
    log: list[object] = []

    class Lite:
        def __init__(self) -> None:
            self.mask = 0

        def load_rknn(self, path: str) -> int:
            return 0 if Path(path).is_file() else -1

        def init_runtime(self, core_mask: int = 0) -> int:
            self.mask = core_mask
            return 0

        def inference(self, inputs, data_format=None):
            assert data_format is None
            if inputs[0].max() > 200:
                return None
            return [inputs[0].astype(np.float32) + self.mask, np.ones((1, 3), np.float32)]

        def release(self) -> None:
            log.append("released")

    api = types.SimpleNamespace(RKNNLite=Lite)
    yield from _device_with(monkeypatch, "rknn", {"rknnlite": types.SimpleNamespace(api=api), "rknnlite.api": api}, log)


def _device_with(monkeypatch, device, modules, log):
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(platforms, "_devices", {})
    sys.modules.pop(f"hami_accel.vendors.{device}", None)
    yield log
    sys.modules.pop(f"hami_accel.vendors.{device}", None)


def test_rknn_runs_on_the_core_of_a_slot_and_keeps_error_codes(rknn, tmp_path):
    from hami_accel.vendors.rknn import RknnDevice

    path = tmp_path / "net.rknn"
    path.write_bytes(b"")
    shapes = {"image": [1, 2]}
    with AccelModel(path, n_task=2, device=RknnDevice(cores=3), shapes=shapes) as model:
        model.set_scheduling(cores=[2])
        outputs = model.infer(np.array([[1, 2]], np.uint8), priority=255)
        assert outputs["output_0"].tolist() == [[5, 6]]
        assert outputs["output_1"].shape == (1, 3)
        with pytest.raises(DeviceError, match="inference failed") as caught:
            model(np.array([[1, 201]], np.uint8))
        assert caught.value.code == -1
        assert not model.is_busy(0)
    assert rknn == ["released"] * 3
    with AccelModel(path, device="rknn", shapes=shapes) as model:
        assert model(np.array([[1, 2]], np.uint8))["output_0"].tolist() == [[1, 2]], "one core: the runtime chooses it"
    for wrong, settings, message in (
        (tmp_path / "none.rknn", {"shapes": shapes}, "load_rknn returned -1"),
        (path, {}, "pass their shapes"),
        (path, {"shapes": shapes, "select": 1}, "select must be 0 to 0"),
        (3, {"shapes": shapes}, "takes the path"),
    ):
        with pytest.raises(hami.ConfigError, match=message):
            AccelModel(wrong, device="rknn", **settings)
    with pytest.raises(hami.ConfigError, match="cores must be 1 to 3"):
        RknnDevice(cores=4)


class HailoError(Exception):
    pass


class HailoTimeout(HailoError):
    pass


class HailoJob:
    def __init__(self, bindings) -> None:
        self.bindings = bindings

    def wait(self, timeout_ms: int) -> None:
        given, result = self.bindings.buffers["in"], self.bindings.buffers["out"]
        if given[0] == 99:
            raise HailoTimeout("no answer")
        if given[0] == 77:
            raise HailoError("failed") from ValueError(8)
        result[...] = given + 1


class HailoModel:
    """The objects of HailoRT from the model to its bindings, in one."""

    input_names, output_names = ("in",), ("out",)
    shape = (2,)
    format = types.SimpleNamespace(type=types.SimpleNamespace(name="UINT8"))
    quant_infos = (types.SimpleNamespace(qp_scale=0.5, qp_zp=10.0),)

    def __init__(self, log) -> None:
        self.log = log

    def input(self, name):
        return self

    output = input

    def configure(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        self.log.append("released")

    def create_bindings(self):
        buffers: dict[str, object] = {}

        def port(name):
            return types.SimpleNamespace(set_buffer=lambda array: buffers.__setitem__(name, array))

        return types.SimpleNamespace(input=port, output=port, buffers=buffers)

    def set_scheduler_priority(self, priority):
        self.log.append(priority)

    def run_async(self, bindings):
        return HailoJob(bindings[0])


@pytest.fixture
def hailo(monkeypatch):
    """A stand-in for hailo_platform."""
    log: list[object] = []

    class VDevice:
        create_params = staticmethod(types.SimpleNamespace)

        def __init__(self, params) -> None:
            assert params.scheduling_algorithm == "round robin"

        def create_infer_model(self, path: str) -> HailoModel:
            if not Path(path).is_file():
                raise HailoError("no such file")
            return HailoModel(log)

    inner = types.SimpleNamespace(HailoRTTimeout=HailoTimeout)
    module = types.SimpleNamespace(
        VDevice=VDevice,
        HailoRTException=HailoError,
        HailoSchedulingAlgorithm=types.SimpleNamespace(ROUND_ROBIN="round robin"),
        __version__="4.18.0",
    )
    names = {
        "hailo_platform": module,
        "hailo_platform.pyhailort": types.SimpleNamespace(pyhailort=inner),
        "hailo_platform.pyhailort.pyhailort": inner,
    }
    yield from _device_with(monkeypatch, "hailo", names, log)


def test_hailo_passes_the_priority_and_keeps_error_codes(hailo, tmp_path):
    path = tmp_path / "net.hef"
    path.write_bytes(b"")
    with AccelModel(path, n_task=2, device="hailo") as model:
        assert model.inputs[0].quantization == (0.5, 10)
        assert model.infer(np.array([1, 2], np.uint8), priority=255).tolist() == [2, 3]
        assert model.infer([0.0, 1.0], priority=255).tolist() == [11, 13], "real values are quantised"
        assert model.infer(np.array([1, 2], np.uint8), priority=0).tolist() == [2, 3]
        assert hailo == [31, 0], "the priority is set when it changes"
        with pytest.raises(DeviceError, match="HailoRT: failed") as caught:
            model(np.array([77, 0], np.uint8))
        assert caught.value.code == 8
        with pytest.raises(SlotLost):
            model(np.array([99, 0], np.uint8))
        assert [model.is_busy(slot) for slot in range(2)].count(True) == 1, "only the lost slot"
        assert model(np.array([1, 2], np.uint8)).tolist() == [2, 3]
    assert "released" not in hailo, "the device may still write to the buffers of the lost slot"
    with AccelModel(path, device="hailo"):
        pass
    assert hailo[-1] == "released"
    with pytest.raises(hami.ConfigError, match="cannot load"):
        AccelModel(tmp_path / "none.hef", device="hailo")
    assert Platform().summary()["hailo"]["hailo_platform"] == "4.18.0"


@pytest.mark.parametrize(
    ("device", "module"), [("hbm", "hbm_runtime"), ("rknn", "rknnlite"), ("hailo", "hailo_platform")]
)
def test_a_missing_vendor_module_is_named(monkeypatch, device, module):
    monkeypatch.setattr(platforms, "_devices", {})
    monkeypatch.setitem(sys.modules, module, None)
    sys.modules.pop(f"hami_accel.vendors.{device}", None)
    with pytest.raises(hami.ConfigError, match=f"'{device}' needs the module {module}"):
        Platform().device(device)
    assert "needs the module" in Platform().summary()[device]["error"]
