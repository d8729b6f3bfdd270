"""`hami-build wheel` for an extension module of pybind11, which is for the ABI of one Python.

Needs hami-build[all] and pybind11; tests/wheels/matrix runs this file in such an environment.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from hami_build import audit, binary, build_requirements, interpreters, project, wheel_file, zig
from hami_build.commands import main
from hami_build.errors import Failure

OTHER = next(name for name in zig.ARCHITECTURES if name != zig.HOST)
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
FILES = {
    "pyproject.toml": """\
[build-system]
requires = ["scikit-build-core>=1.1", "pybind11>=3"]
build-backend = "scikit_build_core.build"

[project]
name = "acme-sum"
version = "0.1.0"
description = "Sums in C++."
readme = "README.md"
license = "Apache-2.0"
license-files = ["LICENSE"]
requires-python = ">=3.10"

[tool.scikit-build]
wheel.packages = ["python/acme_sum"]
""",
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.21...4.2)
project(acme_sum LANGUAGES CXX)
set(PYBIND11_FINDPYTHON NEW)
find_package(pybind11 CONFIG REQUIRED)
pybind11_add_module(_sum src/sum.cpp)
install(TARGETS _sum DESTINATION acme_sum)
""",
    "src/sum.cpp": """\
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <numeric>
#include <string>
#include <vector>

PYBIND11_MODULE(_sum, module) {
  module.def("total", [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
  });
  module.def("joined", [](const std::vector<std::string>& parts) {
    return std::accumulate(parts.begin(), parts.end(), std::string());
  });
  module.def("fail", [] { throw pybind11::value_error("as asked"); });
}
""",
    "python/acme_sum/__init__.py": "from acme_sum._sum import fail, joined, total\n",
    "README.md": "# acme-sum\n\nSums in C++.\n",
    "CHANGELOG.md": "# Changelog\n\n## 0.1.0, not released yet\n\nFirst.\n",
    "LICENSE": "Apache-2.0\n",
}


@pytest.fixture
def acme(tmp_path: Path) -> Path:
    """Return a project with an extension module; its builds use the cache that has the library of the compiler."""
    for module in ("auditwheel", "cmake", "ninja", "pybind11", "scikit_build_core", "twine", "ziglang"):
        pytest.importorskip(module)
    for name, text in FILES.items():
        (tmp_path / "acme-sum" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "acme-sum" / name).write_text(text)
    return tmp_path / "acme-sum"


def test_the_wheels_of_an_extension_pass_the_audit_and_run(
    acme: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dist = tmp_path / "dist"
    platforms = f"manylinux2014_{zig.HOST},manylinux2014_{OTHER}"
    assert main(["wheel", str(acme), "--platform", platforms, "--sdist", "--to", str(dist)]) == 0
    files = [Path(line) for line in capsys.readouterr().out.splitlines()]
    here, other, sdist = files
    for wheel, machine in ((here, zig.HOST), (other, OTHER)):
        tags = ".".join(f"{tag}_{machine}" for tag in ("manylinux2014", "manylinux_2_17", "manylinux_2_28"))
        assert wheel.name == f"acme_sum-0.1.0-{TAG}-{TAG}-{tags}.whl"
        names = [name for name in wheel_file.read(wheel) if name.endswith(".so")]
        suffix = f"cpython-{TAG.removeprefix('cp')}-{machine}-linux-gnu.so"
        assert names == [f"acme_sum/_sum.{suffix}"]
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path / machine)
        assert binary.read(tmp_path / machine / names[0], names[0]).machine == machine
    assert main(["audit", *map(str, files), "--changelog", str(acme / "CHANGELOG.md")]) == 0, capsys.readouterr().out
    use = "import acme_sum; print(acme_sum.total([1, 2.5]), acme_sum.joined(['a', 'b']))"
    done = subprocess.run(
        [sys.executable, "-c", use], cwd=tmp_path / platform.machine(), capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("3.5 ab\n", "")
    with tarfile.open(sdist) as archive:
        assert {f"acme_sum-0.1.0/{name}" for name in FILES} <= set(archive.getnames())
    bill = json.loads(wheel_file.read(here)["acme_sum-0.1.0.dist-info/sboms/acme-sum.cdx.json"])
    assert [part["name"] for part in bill["components"]] == ["pybind11", "libc++"]


def test_the_same_sources_in_another_folder_become_the_same_bytes(
    acme: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in ("1", "2"):
        moved = acme.rename(tmp_path / f"moved{number}")
        assert main(["wheel", str(moved), "--sdist", "--to", str(tmp_path / f"dist{number}")]) == 0
        acme = moved
    first, second = (sorted((tmp_path / f"dist{number}").iterdir()) for number in ("1", "2"))
    assert len(first) == 2
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_another_python_gets_a_wheel_of_its_own(acme: Path, tmp_path: Path) -> None:
    others = [found for found in interpreters.find()[0] if found.tag != TAG and found.has_headers]
    if not others:
        pytest.skip("this machine has no second CPython with headers")
    python = others[-1]
    assert main(["wheel", str(acme), "--python", str(python.executable), "--to", str(tmp_path / "dist")]) == 0
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.name.startswith(f"acme_sum-0.1.0-{python.tag}-{python.tag}-manylinux2014_{zig.HOST}.")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    use = [str(python.executable), "-c", "import acme_sum; print(acme_sum.total([1, 2]))"]
    assert subprocess.run(use, cwd=tmp_path / "site", capture_output=True, text=True).stdout == "3.0\n"


def test_a_python_that_is_not_there_is_an_error(acme: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wheel", str(acme), "--python", "9.9"]) == 1
    assert capsys.readouterr().err.startswith(
        "error: no CPython to build for (9.9):\n9.9: no such CPython found; found: "
    )


def test_a_build_requirement_that_is_not_installed_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(FILES["pyproject.toml"].replace("pybind11>=3", "acme-nothing>=3"))
    python = interpreters.required(["current"])[0]
    with pytest.raises(Failure) as caught:
        build_requirements.linked(project.read(tmp_path), python, tmp_path / "lent")
    assert str(caught.value) == (
        "acme-nothing is not installed, which the build requires: pip install 'acme-nothing>=3'"
    )


@pytest.mark.parametrize(
    ("python", "abi", "kind"),
    [
        ("py3", "none", "every"),
        ("cp312", "cp312", "one"),
        ("cp313", "cp313t", "one"),
        ("cp310", "abi3", "one"),
        ("cp312", "cp313", ""),
        ("py2", "none", ""),
    ],
)
def test_the_tags_say_for_which_python_a_wheel_is(python: str, abi: str, kind: str) -> None:
    assert audit.tag_of_python(python, abi) == kind
