"""The header: plain C99, with a layout that never changes, in the current version and in the golden copy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import hami
import pytest
from conftest import CMAKE, GOLDEN, HERE, INCLUDE, INSTALLED, RENAMED, Toolchain

HEADERS = ["abi.h", "caller.h", "dlpack.h"]


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


def errors_of(toolchain: Toolchain, source: Path, text: str) -> str:
    """What the compiler reports about a C++ source; "" if it is right."""
    if toolchain.missing:
        pytest.skip(toolchain.missing)
    source.write_text(text)
    command = [*toolchain.command, "-std=c++17", "-c", "-o", str(source.with_suffix(".o")), f"-I{INCLUDE}", str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


EMIT = '#include <hami/backend.hpp>\nbool emit(const hami::Dict& item) { return item.emit(item["data"]); }\n'
TARGET = 'static_assert(HAMI_ABI_MINOR == {0} && HAMI_ABI_MIN_MINOR == {0}, "");\n'


def test_a_function_newer_than_the_target_is_an_error_that_names_its_minor(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    message = "emit needs plugin ABI 1.1: #define HAMI_ABI_TARGET 1 before the include"
    for define in ("", "#define HAMI_ABI_TARGET 0\n"):
        assert message in errors_of(toolchain, tmp_path / "old.cpp", define + EMIT)


@pytest.mark.parametrize("target", [0, 1])
def test_the_target_is_also_the_oldest_minor(toolchain: Toolchain, tmp_path: Path, target: int) -> None:
    text = f"#define HAMI_ABI_TARGET {target}\n{EMIT if target else '#include <hami/backend.hpp>'}\n"
    assert errors_of(toolchain, tmp_path / "target.cpp", text + TARGET.format(target)) == ""


def test_a_target_that_the_headers_lack_is_an_error(toolchain: Toolchain, tmp_path: Path) -> None:
    text = "#define HAMI_ABI_TARGET 7\n#include <hami/abi.h>\n"
    found = errors_of(toolchain, tmp_path / "new.cpp", text)
    assert "HAMI_ABI_TARGET is newer than these headers, which have the plugin ABI up to 1.1" in found


def test_sources_of_two_minor_versions_do_not_link_into_one_plugin(toolchain: Toolchain, tmp_path: Path) -> None:
    """Classes of the SDK differ between minor versions, so such a plugin would crash."""
    if toolchain.missing:
        pytest.skip(toolchain.missing)
    header = "#include <hami/sdk/host.hpp>\n"
    old, new = tmp_path / "old.cpp", tmp_path / "new.cpp"
    old.write_text(f"{header}int of_old() {{ return sizeof(hami::host()); }}\n")
    # As HAMI_PLUGIN does; hami/backend.hpp would take seconds to compile.
    new.write_text(f'#define HAMI_ABI_USE_MINOR 1\n{header}extern "C" HAMI_SDK_OWN_ const char HAMI_SDK_MARK_ = 0;\n')
    # Without -O2 and -s, zig would build its C++ library again.
    options = ["-std=c++17", "-O2", "-s", "-shared", "-fPIC"]
    command = [*toolchain.command, *options, f"-I{INCLUDE}", str(old), str(new)]
    done = subprocess.run([*command, "-o", str(tmp_path / "two.so")], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "HAMI_PLUGIN_in_a_source_with_HAMI_ABI_USE_MINOR_0" in done.stderr


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
    assert hami.native.get_include() == str(INCLUDE)
