"""Fixtures: shared libraries that are compiled from the C++ files of the tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HEADERS = HERE.parents[2] / "hami-core" / "include"
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """compiled("name.cpp") returns the path of the library."""
    folder = tmp_path_factory.mktemp("compiled")

    def compile_library(name: str) -> Path:
        if not COMPILER:
            pytest.skip("needs a C++ compiler")
        library = folder / f"{name}.so"
        flags = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC")
        command = [COMPILER, *flags, f"-I{HEADERS}", str(HERE / name), "-o", str(library), "-ldl"]
        subprocess.run(command, check=True)
        return library

    return compile_library
