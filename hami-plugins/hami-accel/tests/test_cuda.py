"""The device `cuda` with a stand-in for torch. `tests/gpu` runs it on a GPU."""

from __future__ import annotations

import sys
import threading

import hami
import numpy as np
import pytest
from fake_torch import FakeTorch, Tensor

from hami_accel import AccelModel, DeviceError, InputError, Platform, SlotLost, engine_of
from hami_accel import platform as platforms

MODULES = ("hami_accel.cuda_device.device", "hami_accel.cuda_device.module")
SHAPES = {"x": [1, 3]}
X = np.array([[1, 2, 3]], np.float32)


@pytest.fixture
def torch(monkeypatch):
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake.module)
    monkeypatch.setattr(platforms, "_devices", {})
    for name in MODULES:
        sys.modules.pop(name, None)
    yield fake
    for name in MODULES:
        sys.modules.pop(name, None)


def two_pieces(torch: FakeTorch, prefix: str):
    return torch.sequential(**{f"{prefix}0": lambda x: x + 1, f"{prefix}1": lambda x: x * 2})


def test_a_module_runs_and_summary_reports_its_pieces(torch):
    with AccelModel(two_pieces(torch, "a"), device="cuda", shapes=SHAPES) as model:
        assert model(X).tolist() == [[4, 6, 8]]
        assert model.summary()["pieces"] == 1
        assert [spec.name for spec in model.outputs] == ["output_0"]
    assert Platform().summary()["cuda"]["priority_levels"] == 6
    assert not Platform().summary()["cuda"]["abort"]
    assert Platform().summary()["cuda"]["green_contexts"] == "not in this torch"


def test_an_urgent_task_is_launched_between_two_pieces_on_a_stream_of_higher_priority(torch):
    device = Platform().device("cuda")
    ordinary = AccelModel(two_pieces(torch, "o"), 2, device=device, max_time_per_fc=1e-6, shapes=SHAPES)
    urgent = AccelModel(two_pieces(torch, "u"), 2, device=device, max_time_per_fc=1e-6, shapes=SHAPES)
    assert ordinary.summary()["pieces"] == 2
    torch.ran.clear()
    torch.hold = threading.Event()
    while torch.entered.acquire(blocking=False):
        pass
    low = ordinary.start(X, priority=7)
    assert torch.entered.acquire(timeout=60)
    high = urgent.start(X, priority=255)
    torch.hold.set()
    assert urgent.wait(high).tolist() == ordinary.wait(low).tolist() == [[4, 6, 8]]
    assert torch.ran == [("o0", 0), ("u0", -2), ("u1", -2), ("o1", 0)]
    ordinary.close(), urgent.close()


def test_several_inputs_and_outputs_have_names(torch):
    from hami_accel.cuda_device.module import TorchModel

    def sum_and_difference(a, b):
        return a + b, a - b

    source = TorchModel(
        torch.sequential(only=sum_and_difference),
        {"a": np.zeros(2, np.int64), "b": np.zeros(2, np.int64)},
        outputs=["sum", "difference"],
        name="pair",
    )
    with AccelModel(source, device="cuda") as model:
        found = model({"a": np.array([3, 4]), "b": np.array([1, 1])})
        assert {name: array.tolist() for name, array in found.items()} == {"sum": [4, 5], "difference": [2, 3]}
        assert model.name == "pair"


def test_buffers_on_the_gpu_are_bound_without_a_copy_to_the_host(torch):
    given, taken = Tensor(X.copy(), gpu=0), Tensor(np.zeros_like(X), gpu=0)
    module = two_pieces(torch, "a")
    seen = []
    module._modules[0]._function = lambda x: (seen.append(x), x + 1)[1]
    with AccelModel(module, 2, device="cuda", shapes=SHAPES) as model:
        model.bind(1, "x", given)
        model.bind(1, "output_0", taken)
        given.array[:] = 5
        assert model.wait(model.start(slot=1)) is taken
        assert taken.array.tolist() == [[12, 12, 12]]
        assert seen[-1] is given.array
        assert model.device.stream(0, 0).waited_for is torch.default_stream
        with pytest.raises(InputError, match="bound to memory of the device"):
            model.start({"x": X}, slot=1)
        assert model.infer(X).tolist() == [[4, 6, 8]], "another slot has its own buffers"
        for wrong, message in (
            (Tensor(X, gpu=1), "on GPU 0, got .* on GPU 1"),
            (Tensor(X.astype(np.float64), gpu=0), "takes contiguous float32 .*, got float64"),
            (Tensor(X[:, :2], gpu=0), r"got float32 \[1, 2\]"),
            (Tensor(np.zeros((1, 6), np.float32)[:, ::2], gpu=0), "not contiguous"),
        ):
            with pytest.raises(InputError, match=message):
                model.bind(0, "x", wrong)
        model.bind(0, "x", Tensor(X))  # of the host, through DLPack
        assert model.wait(model.start(slot=0)).tolist() == [[4, 6, 8]]


def test_an_error_of_cuda_keeps_its_code(torch):
    with AccelModel(two_pieces(torch, "a"), device="cuda", shapes=SHAPES) as model:
        torch.lost = True
        with pytest.raises(DeviceError, match="illegal memory access") as caught:
            model(X)
        assert caught.value.code == 700
        torch.lost = False
        assert model(X).tolist() == [[4, 6, 8]]


def test_work_that_never_ends_loses_its_slot(torch):
    device = Platform().device("cuda")
    engine_of(device, call_timeout=0.01)
    with AccelModel(two_pieces(torch, "a"), 2, device=device, shapes=SHAPES) as model:
        torch.hold = threading.Event()
        with pytest.raises(SlotLost):
            model.wait(model.start(X, slot=0))
        torch.hold.set()
        assert model.is_busy(0)
        assert model(X).tolist() == [[4, 6, 8]]


def test_wrong_sources_are_named(torch, tmp_path):
    module = two_pieces(torch, "a")
    for source, settings, message in (
        (module, {}, "pass their shapes"),
        (3, {"shapes": SHAPES}, "takes a TorchModel"),
        (tmp_path / "none.pt", {"shapes": SHAPES}, "cannot load"),
        (module, {"shapes": SHAPES, "select": 1}, "select must be 0"),
        (torch.sequential(bad=lambda x: x @ x), {"shapes": SHAPES}, "cannot run Sequential once"),
        (torch.sequential(), {"shapes": SHAPES}, "pieces must be"),
    ):
        with pytest.raises(hami.ConfigError, match=message):
            AccelModel(source, device="cuda", **settings)


def test_a_machine_without_a_gpu_is_named(torch):
    torch.gpus = 0
    with pytest.raises(hami.ConfigError, match="finds no GPU"):
        Platform().device("cuda")
    torch.gpus = 1
    from hami_accel.cuda_device.device import CudaDevice

    for settings, message in (({"index": 1}, "index must be 0 to 0"), ({"cores": 0}, "cores must be at least 1")):
        with pytest.raises(hami.ConfigError, match=message):
            CudaDevice(**settings)


def test_without_torch_the_device_names_the_module(monkeypatch):
    monkeypatch.setattr(platforms, "_devices", {})
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in MODULES:
        sys.modules.pop(name, None)
    with pytest.raises(
        hami.ConfigError, match=r"'cuda' needs the module torch, .*: pip install \"hami-accel\[cuda\]\""
    ):
        Platform().device("cuda")
    assert "cuda" in Platform().names()


def test_a_piece_longer_than_the_limit_is_logged(torch, caplog):
    slow = threading.Event()
    source = torch.sequential(slow=lambda x: (slow.wait(0.002), x)[1])
    with AccelModel(source, device="cuda", max_time_per_fc=100, shapes=SHAPES) as model:
        assert model.summary()["pieces"] == 1
    assert "more than the 100 us of max_time_per_fc" in caplog.text
