"""The contract of devices: those of this package keep it, and `check_device` names what a device breaks."""

from __future__ import annotations

import sys

import hami
import numpy as np
import pytest

from hami_accel import AccelModel, CallAborted, DeviceModel, LoadOptions, Platform
from hami_accel import platform as platforms
from hami_accel.sim import SimDevice, SimModel
from hami_accel.testing import check_device

SIM = SimModel("net", calls_us=[200, 300, 200])
ROW = {"x": np.array([[1, 2, 3, 4]], np.float32)}


def test_the_simulated_device_keeps_the_contract():
    check_device(SimDevice(), SIM, ROW, LoadOptions(max_time_per_fc=300))
    check_device(SimDevice(cores=2), SIM, ROW)


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A file of some layers, which the device `onnx` can cut, and its input."""
    pytest.importorskip("onnx")
    from models import Builder

    monkeypatch.setenv("HAMI_ACCEL_CACHE", str(tmp_path / "cache"))
    b = Builder()
    y = b.input("x", [1, 8, 32, 32])
    for _ in range(6):
        y = b("Relu", b.conv(y, 8, 8))
    return b.save(tmp_path / "net.onnx", y), {"x": np.random.default_rng(1).random((1, 8, 32, 32), np.float32)}


def test_onnx_keeps_the_contract(network):
    pytest.importorskip("onnxruntime")
    from hami_accel.onnx_device.device import OnnxDevice

    path, inputs = network
    check_device(OnnxDevice(threads=1), path, inputs, LoadOptions(max_time_per_fc=50), rtol=1e-5)
    check_device(OnnxDevice(cores=2, threads=1), path, inputs, rtol=1e-5)


def test_openvino_keeps_the_contract(network):
    pytest.importorskip("openvino")
    from hami_accel.vendors.openvino import OpenVinoDevice

    path, inputs = network
    check_device(OpenVinoDevice(target="CPU"), path, inputs, rtol=1e-5)


def broken(change) -> SimDevice:
    """Return a simulated device whose loaded models `change` breaks."""

    class Broken(SimDevice):
        def load(self, source, options):
            model = super().load(source, options)
            change(model)
            return model

    return Broken()


def shares_buffers(model: DeviceModel) -> None:
    one = model.allocate()
    model.allocate = lambda: one


def keeps_the_state_in_the_model(model: DeviceModel) -> None:
    compute, kept = model.compute, []

    def changed(buffers, segment):
        if segment:
            buffers.state = kept[0]
        compute(buffers, segment)
        kept[:] = [buffers.state] if buffers.state is not None else kept

    model.compute = changed


def of_call(**methods):
    def change(model: DeviceModel) -> None:
        submit = model.submit

        def changed(*arguments):
            call = submit(*arguments)
            for name, method in methods.items():
                setattr(call, name, method(call))
            return call

        model.submit = changed

    return change


def depends_on_priority(model: DeviceModel) -> None:
    submit = model.submit

    def changed(buffers, segment, core, priority):
        if priority == 255 and segment == 0:
            buffers.inputs["x"][...] = 0
        return submit(buffers, segment, core, priority)

    model.submit = changed


def adds_an_output(model: DeviceModel) -> None:
    allocate = model.allocate

    def changed():
        buffers = allocate()
        buffers.outputs["more"] = np.zeros(1)
        return buffers

    model.allocate = changed


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (shares_buffers, "two slots share the buffer of x"),
        (keeps_the_state_in_the_model, "a task that was suspended for a task in another slot has other outputs"),
        (of_call(query=lambda call: lambda: False), "`query` is false after the end"),
        (of_call(wait=lambda call: lambda timeout: False), "function-call 0 does not end"),
        (of_call(abort=lambda call: lambda: False), "`abort` of the call and of the capabilities differ"),
        (depends_on_priority, "core 0 and priority 255 change the outputs"),
        (adds_an_output, "the outputs are not those of the model"),
    ],
)
def test_a_device_that_breaks_a_rule_is_named(change, rule):
    with pytest.raises(AssertionError, match=rule):
        check_device(broken(change), SIM, ROW, LoadOptions(max_time_per_fc=300))


def test_a_load_that_raises_another_error_is_named():
    class Careless(SimDevice):
        def load(self, source, options):
            return super().load(source.strip(), options)

    with pytest.raises(AssertionError, match=r"load raises AttributeError instead of hami\.ConfigError"):
        check_device(Careless(), SIM, ROW)


def test_an_abort_that_loses_the_state_is_named():
    def change(model: DeviceModel) -> None:
        submit = model.submit

        def changed(buffers, segment, core, priority):
            call = submit(buffers, segment, core, priority)
            wait = call.wait

            def losing(timeout):
                try:
                    return wait(timeout)
                except CallAborted:
                    buffers.inputs["x"][...] = 0
                    raise

            call.wait = losing
            return call

        model.submit = changed

    with pytest.raises(AssertionError, match="a function-call that was aborted and repeated has other outputs"):
        check_device(broken(change), SIM, ROW, LoadOptions(max_time_per_fc=300))


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


@pytest.mark.parametrize(("device", "module"), [("hbm", "hbm_runtime")])
def test_a_missing_vendor_module_is_named(monkeypatch, device, module):
    monkeypatch.setattr(platforms, "_devices", {})
    monkeypatch.setitem(sys.modules, module, None)
    sys.modules.pop(f"hami_accel.vendors.{device}", None)
    with pytest.raises(hami.ConfigError, match=f"'{device}' needs the module {module}"):
        Platform().device(device)
    assert "needs the module" in Platform().summary()[device]["error"]
