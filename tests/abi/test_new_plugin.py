"""A native project of `hami new-plugin --cpp` builds, and its tests pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import INSTALLED, TOOLCHAINS
from hami_tools.new_plugin import write_project

METADATA = "Metadata-Version: 2.1\nName: acme-native\nVersion: 0.1.0\n"
ENTRY_POINTS = "[hami.backends]\nAcmeNative = acme_native.plugin\n[hami]\nnative = acme_native.plugin\n"


def run(*command: str, cwd: Path, **environment: str) -> str:
    env = {**os.environ, **environment}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["install", "all", "clean", "help", "edit-cache", "rebuild-cache", "package"])
def test_a_project_may_have_the_name_of_a_cmake_target(tmp_path: Path, name: str) -> None:
    if not shutil.which("cmake") or TOOLCHAINS[0].missing:
        pytest.skip("cmake and g++ are needed (Debian, Ubuntu: apt install cmake g++)")
    if not INSTALLED:
        pytest.skip("hami is not installed from a wheel here")
    project, module = tmp_path / name, name.replace("-", "_")
    write_project(name, "cpp", project)
    (project / "src" / "backend.cpp").write_text("")  # the real source takes seconds to compile
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    options = [f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_CXX_COMPILER=g++", "-DCMAKE_INSTALL_PREFIX=."]
    run("cmake", "-S", ".", "-B", "build", *generator, *options, cwd=project)
    run("cmake", "--build", "build", "--target", "install", cwd=project)
    assert (project / module / f"{module}.so").is_file()


def test_the_tests_of_a_native_project_pass(tmp_path: Path) -> None:
    if not shutil.which("cmake") or TOOLCHAINS[0].missing:
        pytest.skip("cmake and g++ are needed (Debian, Ubuntu: apt install cmake g++)")
    if not INSTALLED:
        pytest.skip("hami is not installed from a wheel here")
    project, site = tmp_path / "acme-native", tmp_path / "site"
    write_project("acme-native", "cpp", project)
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    options = [f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_CXX_COMPILER=g++", f"-DCMAKE_INSTALL_PREFIX={site}"]
    run("cmake", "-S", ".", "-B", "build", *generator, *options, cwd=project)
    run("cmake", "--build", "build", "--target", "install", cwd=project)
    shutil.copytree(project / "python", site, dirs_exist_ok=True)
    info = site / "acme_native-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    path = os.pathsep.join([str(site), *sys.path])
    output = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=project, PYTHONPATH=path)
    assert "4 passed" in output
