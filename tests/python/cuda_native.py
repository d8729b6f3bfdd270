"""Compiles the C++ files of hami-plugins/hami-cuda/fake, and describes the arguments of the kernels."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAKE = ROOT / "hami-plugins" / "hami-cuda" / "fake"
KERNELS = ROOT / "hami-plugins" / "hami-cuda" / "kernels"
FLAGS = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC")


class Image(ctypes.Structure):
    """hami_cuda_image in kernels/image.h"""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("channel_stride", ctypes.c_longlong),
        ("row_stride", ctypes.c_longlong),
        ("pixel_stride", ctypes.c_longlong),
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
    )


class Resize(ctypes.Structure):
    """hami_cuda_resize in kernels/image.h"""

    _fields_ = (
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        ("channels", ctypes.c_int),
        ("swap", ctypes.c_int),
        ("round_first", ctypes.c_int),
        ("factor", ctypes.c_float * 4),
        ("offset", ctypes.c_float * 4),
    )


def compiled(name: str, folder: Path) -> Path:
    """Compile a file of FAKE into a shared library in `folder`, and return its path; skip without a compiler."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        pytest.skip("needs a C++ compiler")
    library = folder / f"{name}.so"
    include = f"-I{ROOT / 'hami-core' / 'include'}"
    subprocess.run([compiler, *FLAGS, include, str(FAKE / name), "-o", str(library), "-ldl"], check=True)
    return library
