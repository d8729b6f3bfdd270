"""Small wheels for the tests, complete but for what a test changes."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from email.parser import Parser
from pathlib import Path

import hami
import pytest

from hami_build import cache, checks, development, grades, sbom, unpacked, wheel_file

METADATA = """\
Metadata-Version: 2.4
Name: acme-inc
Version: 1.0
Summary: x
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Dist: hami-core>=2.0
Project-URL: Changelog, https://example.com/changes
Project-URL: Documentation, https://example.com/docs
Description-Content-Type: text/markdown

AcmeInc adds one.
"""
ENTRY_POINTS = "[hami]\ninc = acme_inc.plugin\n[hami.backends]\nAcmeInc = acme_inc.plugin\n"
PLUGIN = """\
import pluggy

@pluggy.HookimplMarker("hami")
def hami_register(registry):
    registry.add("AcmeInc", "acme_inc.backend:AcmeInc")
"""
BACKEND = """\
import hami

class AcmeInc(hami.Backend):
    "Adds one."

    def forward(self, batch):
        for item in batch:
            try:
                item["result"] = item["data"] + 1
            except TypeError as error:
                item.fail(error)
"""
QUALITY = "[samples.AcmeInc]\nrequest = {data = 1}\n"
PLATFORM = f"manylinux_2_17_{platform.machine()}"
ENTRY = "int hami_plugin_v1(void) { return 0; }\n"

Make = Callable[..., Path]
Compile = Callable[..., bytes]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """make(platform, files in the wheel, files of .dist-info) -> a wheel; a file that is None is left out."""

    def write(
        tag: str = "any",
        files: dict[str, str | bytes | None] | None = None,
        info: dict[str, str | bytes | None] | None = None,
    ) -> Path:
        given = (info or {}).get("METADATA")
        metadata = given if isinstance(given, str) else METADATA
        contents: dict[str, str | bytes | None] = {
            "acme_inc/__init__.py": "",
            "acme_inc/plugin.py": PLUGIN,
            "acme_inc/backend.py": BACKEND,
            "acme_inc/quality.toml": QUALITY,
            **(files or {}),
        }
        own = {
            "METADATA": metadata,
            "WHEEL": f"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-{tag}\n",
            "entry_points.txt": ENTRY_POINTS,
            "licenses/LICENSE": "Apache-2.0",
            "sboms/acme-inc.cdx.json": sbom.document(Parser().parsestr(metadata), []),
            **(info or {}),
        }
        contents |= {f"acme_inc-1.0.dist-info/{name}": text for name, text in own.items()}
        encoded = {
            name: text.encode() if isinstance(text, str) else text
            for name, text in contents.items()
            if text is not None
        }
        return wheel_file.write(encoded, tmp_path / f"acme_inc-1.0-py3-none-{tag}.whl")

    return write


@pytest.fixture
def compiled(tmp_path: Path) -> Compile:
    """compiled(text of C, options of the linker) -> a shared object."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler is installed")

    def build(text: str, *options: str, name: str = "acme.so") -> bytes:
        source, library = tmp_path / "acme.c", tmp_path / name
        source.write_text(text)
        command = ["cc", "-shared", "-fPIC", str(source), "-o", str(library), f"-L{tmp_path}", *options]
        subprocess.run(command, check=True)
        return library.read_bytes()

    return build


@pytest.fixture
def finding(tmp_path: Path) -> Callable[..., grades.Finding]:
    """finding(wheel, check, cores, source) -> what this check says; the others do not run."""

    def run(wheel: Path, name: str, cores: Sequence[str] = (), source: Path | None = None) -> grades.Finding:
        level, check = next(
            (grade, each[1]) for grade, group in checks.CHECKS.items() for each in group if each[0] == name
        )
        return grades.finding(unpacked.unpack(wheel, tmp_path / "unpacked", cores, source), level, name, check)

    return run


CMAKE = """\
cmake_minimum_required(VERSION 3.21)
project(acme_inc LANGUAGES CXX)
find_package(hami CONFIG REQUIRED)
hami_add_plugin(acme src/acme.cpp)
install(TARGETS acme DESTINATION acme_inc)
"""
NATIVE_PLUGIN = """\
import pluggy
from pathlib import Path

@pluggy.HookimplMarker("hami")
def hami_register(registry):
    registry.add_library(Path(__file__).with_name("acme.so"))
"""
SOURCE = """\
#include <hami/backend.hpp>

class AcmeInc : public hami::Backend {
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      try {
        item["result"] = item["data"].as_int() + 1;
      } catch (const hami::Error& error) {
        item.fail(error);
      }
    }
  }
};
HAMI_REGISTER(AcmeInc, "AcmeInc", "", "Adds one.");
HAMI_PLUGIN("acme-inc", "1.0")
"""


@pytest.fixture
def native_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a native project whose builds are cached in a temporary folder."""
    for tool in ("c++", "cmake", "ninja"):
        if not shutil.which(tool, path=development.search_path()):
            pytest.skip(f"{tool} is not installed")
    if not Path(hami.native.get_include()).is_dir():  # a development build of the core, in its checkout
        headers = str(Path(__file__).resolve().parents[3] / "hami-core" / "include")
        monkeypatch.setattr(hami.native, "get_include", lambda: headers)
    monkeypatch.setattr(cache, "_chosen", tmp_path / "cache")
    folder = tmp_path / "native"
    for name, text in {
        "pyproject.toml": (
            '[build-system]\nrequires = ["scikit-build-core"]\nbuild-backend = "scikit_build_core.build"\n'
            '[project]\nname = "acme-inc"\nversion = "1.0"\ndependencies = ["hami-core"]\n'
            '[project.entry-points."hami.backends"]\nAcmeInc = "acme_inc.plugin"\n'
            '[project.entry-points."hami"]\ninc = "acme_inc.plugin"\n'
            '[tool.scikit-build]\nwheel.py-api = "py3"\nwheel.packages = ["python/acme_inc"]\n'
        ),
        "CMakeLists.txt": CMAKE,
        "src/acme.cpp": SOURCE,
        "python/acme_inc/__init__.py": "",
        "python/acme_inc/plugin.py": NATIVE_PLUGIN,
        "python/acme_inc/quality.toml": QUALITY,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
