"""The device `cuda` on a GPU: cut and preempted tasks give the same bits, and urgent tasks pass long ones."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from hami_accel import AccelModel, Platform


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch", reason="needs torch (ci/gpu runs this test on a machine with a GPU)")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device (ci/gpu runs this test on a machine with a GPU)")
    torch.manual_seed(0)
    yield torch
    torch.cuda.synchronize()


def chain(torch, layers: int, width: int):
    """A Sequential of matrix products."""
    nn = torch.nn
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers))).eval()


@pytest.fixture
def device(torch):
    from hami_accel.cuda_device.device import CudaDevice

    return CudaDevice()


def test_a_cut_model_gives_the_outputs_of_torch(torch, device):
    module = chain(torch, 8, 256)
    x = np.random.default_rng(0).standard_normal((4, 256), np.float32)
    with AccelModel(module, device=device, max_time_per_fc=1, shapes={"x": [4, 256]}) as model:
        found = model(x)
        assert model.summary()["pieces"] == 16
        with torch.inference_mode():
            expected = module(torch.from_numpy(x).cuda()).cpu().numpy()
    assert np.array_equal(found, expected)


def test_bound_tensors_of_the_gpu_are_read_and_written(torch, device):
    module = chain(torch, 4, 256)
    given, taken = torch.zeros((4, 256), device="cuda"), torch.zeros((4, 256), device="cuda")
    with AccelModel(module, 2, device=device, max_time_per_fc=1, shapes={"x": [4, 256]}) as model:
        model.bind(0, "x", given)
        model.bind(0, "output_0", taken)
        for seed in range(5):
            x = np.random.default_rng(seed).standard_normal((4, 256), np.float32)
            given.copy_(torch.from_numpy(x))
            result = model.wait(model.start(slot=0))
            assert result.data_ptr() == taken.data_ptr()
            assert np.array_equal(taken.cpu().numpy(), model.infer(x))


def test_preempted_tasks_give_the_same_bits(torch, device):
    shapes = {"x": [64, 1024]}
    x = np.random.default_rng(0).standard_normal((64, 1024), np.float32)
    with (
        AccelModel(chain(torch, 60, 1024), 4, device=device, max_time_per_fc=1, shapes=shapes) as long,
        AccelModel(chain(torch, 1, 1024), 4, device=device, shapes=shapes) as urgent,
    ):
        expected, expected_urgent = long(x), urgent(x)
        for _ in range(20):
            ticket = long.start(x, priority=0)
            assert np.array_equal(urgent.infer(x, priority=255), expected_urgent)
            assert np.array_equal(long.wait(ticket), expected)


def test_an_urgent_task_does_not_wait_for_a_long_one(torch, device):
    shapes = {"x": [4096, 4096]}
    x = np.zeros((4096, 4096), np.float32)
    small = {"x": [1, 64]}
    with (
        AccelModel(chain(torch, 100, 4096), 2, device=device, max_time_per_fc=1, shapes=shapes) as long,
        AccelModel(chain(torch, 1, 64), 2, device=device, shapes=small) as urgent,
    ):
        began = threading.Event()
        urgent.infer(np.zeros((1, 64), np.float32), priority=255)
        ticket = long.start(x)
        ticket.add_done_callback(lambda _: began.set())
        waited = time.monotonic()
        urgent.infer(np.zeros((1, 64), np.float32), priority=255)
        waited = time.monotonic() - waited
        assert not began.is_set(), f"the urgent task ended after {waited * 1e3:.1f} ms, behind the long one"
        long.wait(ticket)


@pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning")  # torch.export.load itself
def test_files_of_torch_are_loaded(torch, device, tmp_path):
    module = chain(torch, 2, 16)
    x = np.ones((1, 16), np.float32)
    torch.export.save(torch.export.export(module, (torch.zeros(1, 16),)), tmp_path / "net.pt2")
    with AccelModel(tmp_path / "net.pt2", device=device, shapes={"x": [1, 16]}) as model:
        with torch.inference_mode():
            expected = module.cuda()(torch.from_numpy(x).cuda()).cpu().numpy()
        assert np.allclose(model(x), expected, rtol=1e-5, atol=1e-6)


def test_the_device_reports_the_gpu(torch, device, monkeypatch):
    from hami_accel import platform as platforms

    monkeypatch.setattr(platforms, "_devices", {"cuda": device})
    facts = Platform().summary()["cuda"]
    assert facts["gpu"] == torch.cuda.get_device_name(0)
    assert facts["abort"] is False
    assert facts["priority_levels"] > 2
