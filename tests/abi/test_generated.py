"""HAMI_GENERATE_BACKEND: a native plugin registers names for expressions."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import hami
import pytest
from conftest import HERE, INCLUDE, Toolchain

Build = Callable[..., Path]
SOURCE = HERE / "plugins" / "generated.cpp"


def test_a_name_is_replaced_by_its_expression(toolchain: Toolchain, build: Build) -> None:
    hami.native.register_plugin(build(toolchain, SOURCE))
    for expression, result in (
        ("AddTwice", 2),
        ("AddTwice(step=5)", 10),
        ("AddTens", 20),
        ("AddTens(step=4)", 8),
    ):
        with hami.pipe(toolchain.prefix + expression) as pipe:
            assert pipe({"data": 0})["result"] == result
    info = hami.backends()[f"{toolchain.prefix}AddTens"]
    assert info.doc == f"Stands for {toolchain.prefix}AddTwice."


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (
            "-DBAD_EXPRESSION",
            'class "Bad" of plugin "generated" stands for an expression that is not valid: "[" is never closed\n'
            "  in  S[Identity\n       ^\n",
        ),
        (
            "-DBAD_PARAMETER",
            'class "Bad" of plugin "generated" stands for an expression, so its parameter "step" needs a default',
        ),
    ],
)
def test_a_wrong_declaration_is_an_error_of_the_plugin(
    toolchain: Toolchain, build: Build, define: str, message: str
) -> None:
    with pytest.raises(hami.PluginError) as caught:
        hami.native.register_plugin(build(toolchain, SOURCE, define))
    assert message in str(caught.value)


def test_the_macro_needs_abi_1_1(toolchain: Toolchain, tmp_path: Path) -> None:
    if toolchain.missing:
        pytest.skip(toolchain.missing)
    source = tmp_path / "old.cpp"
    source.write_text('#include <hami/backend.hpp>\nHAMI_GENERATE_BACKEND("Both", "S[Identity,Identity]", "");\n')
    command = [*toolchain.command, "-std=c++17", f"-I{INCLUDE}", str(source), "-c", "-o", str(tmp_path / "old.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    message = (
        "HAMI_GENERATE_BACKEND needs plugin ABI 1.1: #define HAMI_ABI_TARGET 1 before the include of hami/backend.hpp"
    )
    assert message in done.stderr
