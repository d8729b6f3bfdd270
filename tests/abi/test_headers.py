"""The header: plain C99, with a layout that never changes, in the current version and in the golden copy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import hami
import pytest
from conftest import CMAKE, GOLDEN, HERE, INCLUDE, INSTALLED, RENAMED, Toolchain

HEADERS = ["abi.h", "dlpack.h"]


@pytest.mark.parametrize(
    ("include", "minor"),
    [(INCLUDE, 0), (INCLUDE, 1), (GOLDEN / "include", 0)],
    ids=["current, 1.0", "current, 1.1", "golden"],
)
@pytest.mark.parametrize("standard", ["c11", "c++17"])
def test_the_layout_never_changes(
    toolchain: Toolchain, standard: str, include: Path, minor: int, tmp_path: Path
) -> None:
    language = ["-x", "c++" if standard.startswith("c++") else "c", f"-std={standard}"]
    defines = [f"-DHAMI_ABI_USE_MINOR={minor}"]
    if include != INCLUDE:
        defines += [f"-D{new}={old}" for old, new in RENAMED.items()]
    output = ["-c", "-o", str(tmp_path / "layout.o")]
    toolchain.run(HERE / "layout.c", [*defines, *output], include, language)


def test_the_layout_test_covers_every_function_of_the_host_table() -> None:
    table = (INCLUDE / "hami" / "abi.h").read_text("utf-8").partition("typedef struct hami_host {")[2]
    table = table.partition("} hami_host;")[0]
    functions = re.findall(r"^  \S.*?\(\*(\w+)\)\(", table, re.MULTILINE)
    layout = (HERE / "layout.c").read_text("utf-8")
    assert [f"SLOT({number}, {name});" for number, name in enumerate(functions)] == [
        line for line in layout.splitlines() if line.startswith("SLOT(")
    ]


@pytest.mark.parametrize("header", HEADERS)
def test_the_header_is_plain_c99(toolchain: Toolchain, header: str, tmp_path: Path) -> None:
    source = tmp_path / "one.c"
    source.write_text(f"#include <hami/{header}>\nextern int unused;\n")
    toolchain.run(source, ["-pedantic-errors", "-c", "-o", str(tmp_path / "one.o")])


def test_headers_may_be_included_in_any_order(toolchain: Toolchain, tmp_path: Path) -> None:
    source = tmp_path / "two.cpp"
    source.write_text("#include <hami/backend.hpp>\n#include <hami/abi.h>\n#include <hami/sdk/value.hpp>\n")
    toolchain.run(source, ["-c", "-o", str(tmp_path / "two.o")])


@pytest.mark.skipif(not INSTALLED, reason="hami is not installed from a wheel here")
def test_the_wheel_contains_headers_and_the_cmake_package() -> None:
    for option, folder in (("--include-dir", INCLUDE), ("--cmake-dir", CMAKE)):
        done = subprocess.run([sys.executable, "-m", "hami", option], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{folder}\n", "")
    assert {path.name for path in INCLUDE.rglob("*.h*") if path.is_file()} >= {*HEADERS, "backend.hpp", "value.hpp"}
    assert hami.get_include() == str(INCLUDE)
