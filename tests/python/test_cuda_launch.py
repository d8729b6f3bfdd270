"""Launches on a device: one for a batch of images that differ in size, and all memory comes back."""

from __future__ import annotations

import ctypes

import pytest
from cuda_native import KERNELS, Image, Resize, compiled
from test_cuda_kernels import reference
from test_cuda_ptx import compile_file

np = pytest.importorskip("numpy", reason="numpy is not installed")

RESOURCE_EXHAUSTED = 8


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    return ctypes.CDLL(str(compiled("fake_driver.cpp", tmp_path_factory.mktemp("fake"))))


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    return ctypes.CDLL(str(compiled("launch_probe.cpp", tmp_path_factory.mktemp("probe"))))


def resize(probe, path, images, width, height, ptx=b""):
    """Resize images, H x W, on the device; return the code, the error and the results."""
    results = [np.zeros((height, width), np.uint8) for _ in images]
    batch = (Image * len(images))()
    for slot, image, result in zip(batch, images, results, strict=True):
        rows, columns = image.shape
        slot.data, slot.result = image.ctypes.data, result.ctypes.data
        slot.channel_stride, slot.row_stride, slot.pixel_stride = rows * columns, columns, 1
        slot.width, slot.height = columns, rows
    text = ctypes.create_string_buffer(500)
    job = Resize(width, height, 1)
    code = probe.resize_on_device(path.encode(), ptx, batch, len(images), ctypes.byref(job), text, ctypes.c_size_t(500))
    return code, text.value.decode(), results


@pytest.mark.parametrize(("width", "height"), [(1, 1), (32, 8), (33, 9), (70, 50)])
def test_one_launch_covers_every_pixel_of_every_image(probe, fake, width, height):
    random = np.random.default_rng(5)
    images = [random.integers(0, 256, size, np.uint8) for size in [(20, 30), (1, 1), (64, 5)]]
    before = fake.fake_launches()
    code, error, results = resize(probe, fake._name, images, width, height)
    assert (code, error) == (0, "")
    assert fake.fake_launches() == before + 1
    for image, result in zip(images, results, strict=True):
        assert np.abs(result - np.rint(reference(image[None], width, height)[0])).max() <= 1


def test_out_of_memory_fails_the_batch_and_frees_what_it_had(probe, fake, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_MEMORY", "1000")
    images = [np.zeros((20, 20), np.uint8)] * 4
    code, error, _ = resize(probe, fake._name, images, 20, 20)
    assert code == RESOURCE_EXHAUSTED
    assert error == "cannot allocate 400 bytes on the device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    assert fake.fake_allocations() == 0
    monkeypatch.delenv("FAKE_CUDA_MEMORY")
    assert resize(probe, fake._name, images, 20, 20)[0] == 0
    assert fake.fake_allocations() == 0


def test_the_driver_compiles_and_runs_the_kernels(probe, tmp_path):
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pytest.skip("needs the NVIDIA driver and a GPU")
    done = compile_file(KERNELS / "image.cu", tmp_path / "image.ptx")
    assert done.returncode == 0, done.stderr
    random = np.random.default_rng(6)
    images = [random.integers(0, 256, size, np.uint8) for size in [(480, 640), (1, 1), (31, 900)]]
    ptx = (tmp_path / "image.ptx").read_bytes()
    code, error, results = resize(probe, "libcuda.so.1", images, 224, 224, ptx)
    assert (code, error) == (0, "")
    for image, result in zip(images, results, strict=True):
        assert np.abs(result - np.rint(reference(image[None], 224, 224)[0])).max() <= 1
