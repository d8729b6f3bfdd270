"""The project of the guide builds with the CMake package of the wheel and runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import hami
import pytest
from conftest import INSTALLED, SOURCE, TOOLCHAINS
from test_loading import run_hami

DOCUMENT = "ship-a-native-plugin.md"
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```\n", re.DOTALL)


def run(*command: str, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_project_of_the_guide_builds_and_runs(tmp_path: Path) -> None:
    if not shutil.which("cmake") or TOOLCHAINS[0].missing:
        pytest.skip("cmake and g++ are needed (Debian, Ubuntu: apt install cmake g++)")
    if not INSTALLED:
        pytest.skip("hami is not installed from a wheel here")
    for name, text in FILE.findall((SOURCE / "docs" / "howto" / DOCUMENT).read_text("utf-8")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    project, package = tmp_path / "acme-addone", tmp_path / "acme-addone" / "acme_addone"
    (package / "__init__.py").touch()
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    options = [f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_CXX_COMPILER=g++", "-DCMAKE_INSTALL_PREFIX=."]
    run("cmake", "-S", ".", "-B", "build", *generator, *options, cwd=project)
    run("cmake", "--build", "build", cwd=project)
    bare = {"HAMI_PLUGINS": "addone", "HAMI_PLUGIN_PATH": str(project / "build")}
    assert run_hami("run", "AddOne", "--data", "41", **bare).stdout == "42\n"
    run("cmake", "--install", "build", cwd=project)
    metadata = project / "acme_addone-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-addone\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[hami.backends]\nAddOne = acme_addone.plugin\n[hami]\naddone = acme_addone.plugin\n"
    )
    done = run_hami("run", "acme-addone::AddOne(step=5)", "--data", "4", path=project, HAMI_PLUGINS="addone")
    assert (done.returncode, done.stdout, done.stderr) == (0, "9\n", "")
    assert hami.native.register_plugin(package / "addone.so") == ["AddOne"]
