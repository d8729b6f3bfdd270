"""Loading the driver and opening a device: each failure says what is missing and what to do."""

from __future__ import annotations

import ctypes

import pytest
from native import compiled

OK, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNAVAILABLE = 0, 8, 9, 14


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    return str(compiled("fake_driver.cpp", tmp_path_factory.mktemp("fake")))


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    library = ctypes.CDLL(str(compiled("driver_probe.cpp", tmp_path_factory.mktemp("probe"))))

    def run(path, index=0, size=16):
        text = ctypes.create_string_buffer(1000)
        code = library.probe(path.encode(), index, ctypes.c_size_t(size), text, ctypes.c_size_t(1000))
        return code, text.value.decode()

    return run


def test_a_device_opens(probe, fake):
    assert probe(fake) == (OK, "")


def test_without_a_driver_the_error_says_what_to_install(probe):
    code, text = probe("libcuda-that-is-absent.so.1")
    assert code == UNAVAILABLE
    assert "driver is not installed" in text
    assert "install a driver for CUDA 11.8 or newer" in text


def test_a_library_that_is_no_driver_is_named(probe, tmp_path):
    other = str(compiled("host_kernel.cpp", tmp_path))
    assert probe(other) == (UNAVAILABLE, f'"{other}" is not a CUDA driver')


def test_an_old_driver_is_refused_with_both_versions(probe, fake, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_VERSION", "11040")
    code, text = probe(fake)
    assert code == UNAVAILABLE
    assert "supports CUDA 11.4 only; install a driver for CUDA 11.8 or newer" in text


def test_a_hidden_gpu_is_explained(probe, fake, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "0")
    code, text = probe(fake)
    assert code == UNAVAILABLE
    assert "CUDA_VISIBLE_DEVICES" in text


@pytest.mark.parametrize(("devices", "seen"), [("1", "sees cuda:0"), ("4", "sees cuda:0 to cuda:3")])
@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_out_of_range_names_the_devices(probe, fake, monkeypatch, devices, seen, index):
    monkeypatch.setenv("FAKE_CUDA_DEVICES", devices)
    code, text = probe(fake, index)
    assert code == FAILED_PRECONDITION
    assert text == f'GpuTensor: device "cuda:{index}" is not available: this process {seen}'


def test_out_of_memory_is_typed(probe, fake, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_MEMORY", "8")
    expected = "cannot allocate 16 bytes on the device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    assert probe(fake) == (RESOURCE_EXHAUSTED, expected)


def test_a_device_without_memory_pools_is_used_with_a_cache(probe, fake, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_POOLS", "0")
    assert probe(fake) == (OK, "")


@pytest.mark.parametrize(("limit", "bytes"), [("15", 15), ("15MiB", 15 << 20), ("2GB", 2_000_000_000)])
def test_the_limit_of_the_memory_is_kept_and_named(probe, fake, monkeypatch, limit, bytes):
    monkeypatch.setenv("HAMI_CUDA_MEMORY_LIMIT", limit)
    code, text = probe(fake, 0, bytes + 1)
    assert code == RESOURCE_EXHAUSTED
    assert text == (
        f"cannot allocate {bytes + 1} bytes on the device: 0 of {bytes} bytes are in use, the limit that "
        "HAMI_CUDA_MEMORY_LIMIT sets"
    )


@pytest.mark.parametrize("limit", ["0", "much", "4 apples", "-1", "99999999999999GiB"])
def test_a_limit_that_is_not_a_size_is_an_error(probe, fake, monkeypatch, limit):
    monkeypatch.setenv("HAMI_CUDA_MEMORY_LIMIT", limit)
    code, text = probe(fake)
    assert code == FAILED_PRECONDITION
    assert text == (
        "environment variable HAMI_CUDA_MEMORY_LIMIT must be a number of bytes, or one with a unit such as 4GiB, "
        f'got "{limit}"'
    )
