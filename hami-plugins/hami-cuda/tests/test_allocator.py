"""The allocator for devices without memory pools: blocks are used again in the order of their stream."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from native import compiled, fake_driver


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Any:
    if fake_driver() is None:
        pytest.skip("this machine has an NVIDIA driver, whose functions the fake one would call")
    folder = tmp_path_factory.mktemp("allocator")
    driver = compiled("fake_driver.cpp", folder)
    library = ctypes.CDLL(str(compiled("allocator_probe.cpp", folder)))
    library.allocate.restype = ctypes.c_ulonglong
    library.allocate.argtypes = (ctypes.c_size_t, ctypes.c_int)
    library.release.argtypes = (ctypes.c_ulonglong, ctypes.c_int)
    library.open(str(driver).encode())
    library.driver = ctypes.CDLL(str(driver))
    library.driver.fake_allocations.restype = ctypes.c_size_t
    return library


@pytest.fixture
def memory(library):
    """The allocator, without blocks"""
    library.trim()
    assert library.driver.fake_allocations() == 0
    yield library
    library.trim()


def test_a_freed_block_is_used_again_on_its_stream(memory):
    block = memory.allocate(1000, 1)
    memory.release(block, 1)
    assert memory.allocate(900, 1) == block  # a block of 1024 bytes
    memory.release(block, 1)


def test_another_stream_does_not_get_a_block_that_may_be_in_use(memory):
    block = memory.allocate(1000, 1)
    memory.release(block, 1)
    other = memory.allocate(1000, 2)
    assert other != block
    memory.release(other, 2)


def test_freed_blocks_return_to_the_device_when_they_are_asked_for(memory):
    kept = memory.allocate(5 << 20, 1)
    for size in (1, 600, 3 << 20):
        memory.release(memory.allocate(size, 1), 1)
    assert memory.driver.fake_allocations() == 4
    memory.trim()
    assert memory.driver.fake_allocations() == 1
    memory.release(kept, 1)


def test_without_memory_the_allocation_fails(memory, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_MEMORY", "1000")
    assert memory.allocate(4096, 1) == 0
    monkeypatch.delenv("FAKE_CUDA_MEMORY")
    block = memory.allocate(4096, 1)
    assert block
    memory.release(block, 1)
