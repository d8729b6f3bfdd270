"""The kernels compile to PTX that drivers from CUDA 11.8 on take, and ptxas accepts it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from native import KERNELS


def in_wheel(pattern: str) -> Path:
    """Return a file of one of NVIDIA's wheels, or skip the test."""
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for found in sorted(Path(folder).glob(pattern)):
            return found
    pytest.skip(f"needs {pattern} of one of NVIDIA's wheels")


def compile_file(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    in_wheel("cuda_nvrtc/lib/libnvrtc.so.11*")
    command = [sys.executable, str(KERNELS / "compile_ptx.py"), str(source), str(target)]
    # A sanitizer opens libraries for NVRTC, so that those beside it are not found.
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


ENTRIES = {
    "image": ("hami_image", "hami_copy"),
    "scores": ("hami_cast", "hami_softmax", "hami_top", "hami_suppress"),
}


@pytest.fixture(params=ENTRIES)
def ptx(request, tmp_path):
    target = tmp_path / f"{request.param}.ptx"
    done = compile_file(KERNELS / f"{request.param}.cu", target)
    assert done.returncode == 0, done.stderr
    return target


def test_the_ptx_is_for_every_card_since_compute_60(ptx):
    lines = ptx.read_text().splitlines()
    assert ".version 7.8" in lines  # of CUDA 11.8
    assert ".target sm_60" in lines
    for entry in ENTRIES[ptx.stem]:
        assert any(line.startswith(f".visible .entry {entry}(") for line in lines)


@pytest.mark.parametrize("card", ["sm_60", "sm_80", "sm_90"])
def test_ptxas_accepts_the_kernels(ptx, card, tmp_path):
    ptxas = in_wheel("cuda_nvcc/bin/ptxas")
    done = subprocess.run(
        [str(ptxas), f"-arch={card}", str(ptx), "-o", str(tmp_path / "kernels.cubin")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_mistake_is_reported_with_its_line(tmp_path):
    source = tmp_path / "broken.cu"
    source.write_text('extern "C" __global__ void f() { missing(); }\n')
    done = compile_file(source, tmp_path / "broken.ptx")
    assert done.returncode == 1
    assert "broken.cu(1)" in done.stderr
    assert "missing" in done.stderr
    assert not (tmp_path / "broken.ptx").exists()
