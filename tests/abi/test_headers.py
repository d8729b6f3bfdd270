"""The header: plain C99, laid out as it is frozen, and the golden copy is the one of its day."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import hami
import pytest
from conftest import CMAKE, GOLDEN, HERE, INCLUDE, INSTALLED, Toolchain

FROZEN = ["abi.h", "dlpack.h"]


@pytest.mark.parametrize("standard", ["c11", "c++17"])
def test_layout_is_as_it_is_frozen(toolchain: Toolchain, standard: str, tmp_path: Path) -> None:
    language = ["-x", "c++" if standard.startswith("c++") else "c", f"-std={standard}"]
    toolchain.run(HERE / "layout.c", ["-c", "-o", str(tmp_path / "layout.o")], language=language)


def test_layout_has_every_function_of_the_table() -> None:
    table = (INCLUDE / "hami" / "abi.h").read_text("utf-8").partition("typedef struct hami_host {")[2]
    table = table.partition("} hami_host;")[0]
    functions = re.findall(r"^  \S.*?\(\*(\w+)\)\(", table, re.MULTILINE)
    layout = (HERE / "layout.c").read_text("utf-8")
    assert [f"SLOT({number}, {name});" for number, name in enumerate(functions)] == [
        line for line in layout.splitlines() if line.startswith("SLOT(")
    ]


@pytest.mark.parametrize("header", FROZEN)
def test_header_is_plain_c99(toolchain: Toolchain, header: str, tmp_path: Path) -> None:
    source = tmp_path / "one.c"
    source.write_text(f"#include <hami/{header}>\nextern int unused;\n")
    toolchain.run(source, ["-pedantic-errors", "-c", "-o", str(tmp_path / "one.o")])


@pytest.mark.parametrize("header", FROZEN)
def test_golden_header_is_that_of_its_version(header: str) -> None:
    """As long as the header is a release candidate the copy follows it."""
    current = (INCLUDE / "hami" / header).read_text("utf-8")
    copy = (GOLDEN / "include" / "hami" / header).read_text("utf-8")
    if "version 1.0-rc:" in (INCLUDE / "hami" / "abi.h").read_text("utf-8"):
        assert copy == current, f"copy {header}, backend.hpp and sdk/ to {GOLDEN.relative_to(HERE)}/include/hami"
    else:
        assert "version 1.0:" in copy or header != "abi.h"


def test_two_headers_may_be_included_in_any_order(toolchain: Toolchain, tmp_path: Path) -> None:
    source = tmp_path / "two.cpp"
    source.write_text("#include <hami/backend.hpp>\n#include <hami/abi.h>\n#include <hami/sdk/value.hpp>\n")
    toolchain.run(source, ["-c", "-o", str(tmp_path / "two.o")])


@pytest.mark.skipif(not INSTALLED, reason="hami is not installed from a wheel here")
def test_wheel_has_headers_and_cmake_package() -> None:
    for option, folder in (("--include-dir", INCLUDE), ("--cmake-dir", CMAKE)):
        done = subprocess.run([sys.executable, "-m", "hami", option], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{folder}\n", "")
    assert {path.name for path in INCLUDE.rglob("*.h*") if path.is_file()} >= {*FROZEN, "backend.hpp", "value.hpp"}
    assert hami.get_include() == str(INCLUDE)
