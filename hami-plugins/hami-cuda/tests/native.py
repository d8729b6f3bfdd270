"""Compiles the C++ files of the folder fake, and describes the arguments of the kernels."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

DRIVER = "libcuda.so.1"
HERE = Path(__file__).parent
FAKE = HERE / "fake"
KERNELS = HERE.parent / "kernels"
INCLUDE = HERE.parents[2] / "hami-core" / "include"
GATHERED = 1  # launches of CpuTensor, which puts small results of several requests side by side for one copy
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
        ("out_width", ctypes.c_int),
        ("out_height", ctypes.c_int),
        ("left", ctypes.c_int),
        ("top", ctypes.c_int),
        ("fitted_width", ctypes.c_int),
        ("fitted_height", ctypes.c_int),
        ("source", ctypes.c_float * 6),
    )


class Job(ctypes.Structure):
    """hami_cuda_job in kernels/image.h"""

    _fields_ = (
        ("channels", ctypes.c_int),
        ("in_type", ctypes.c_int),
        ("out_type", ctypes.c_int),
        ("sampling", ctypes.c_int),
        ("align_corners", ctypes.c_int),
        ("rounded", ctypes.c_int),
        ("color", ctypes.c_int),
        ("normalize", ctypes.c_int),
        ("pad", ctypes.c_float * 16),
        ("factor", ctypes.c_float * 16),
        ("offset", ctypes.c_float * 16),
    )


def compiled(name: str, folder: Path, soname: str = "") -> Path:
    """Compile a file of FAKE into a shared library in `folder`, and return its path; skip without a compiler.

    Once it is loaded, a program that loads a library of the name `soname` gets it.
    """
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        pytest.skip("needs a C++ compiler")
    library = folder / f"{name}.so"
    flags = [*FLAGS, f"-I{INCLUDE}", *([f"-Wl,-soname,{soname}"] if soname else [])]
    subprocess.run([compiler, *flags, str(FAKE / name), "-o", str(library), "-ldl"], check=True)
    return library


@functools.cache
def fake_driver() -> Any:
    """Load the fake driver under the driver's name; skip the test on a machine with a driver."""
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="hami-cuda-fake-"))
        return ctypes.CDLL(str(compiled("fake_driver.cpp", folder, DRIVER)))
    return None
