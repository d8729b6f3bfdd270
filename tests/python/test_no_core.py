"""Importing hami without a suitable binary names this Python and the binary that it needs."""

from __future__ import annotations

import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import hami
import pytest

PACKAGE = Path(hami.__file__).parent
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Copy the package without its binary."""
    return Path(shutil.copytree(PACKAGE, tmp_path / "hami", ignore=shutil.ignore_patterns("_core.*.so", "__pycache__")))


def error_of(package: Path, before: str = "", status: int = 1) -> str:
    command = [sys.executable, "-S", "-c", f"{before}\nimport hami"]
    path = {"PYTHONPATH": str(package.parent)}
    done = subprocess.run(command, env=path, capture_output=True, text=True, check=False)
    assert done.returncode == status
    return done.stderr.splitlines()[-1]


def test_a_binary_for_another_python_is_reported(package: Path) -> None:
    (package / "_core.cpython-39-x86_64-linux-gnu.so").touch()
    assert error_of(package) == (
        f"ImportError: hami-core in {package} has _core.cpython-39-x86_64-linux-gnu.so, but this Python "
        f"(CPython {platform.python_version()}, 64 bits) needs _core{SUFFIX}; "
        f"install it with: {sys.executable} -m pip install --force-reinstall hami-core"
    )


def test_a_missing_binary_is_reported(package: Path) -> None:
    assert f"ImportError: hami-core in {package} has no binary, but this Python (CPython" in error_of(package)


def test_a_package_inside_an_archive_is_reported(package: Path, tmp_path: Path) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "app"), "zip", package.parent, "hami"))
    inside = archive / "hami"
    assert error_of(inside) == (
        f"ImportError: hami-core is inside an archive, {archive}, from which Python cannot load its binary; unpack it: "
        f"{sys.executable} -m zipfile -e {archive} folder"
    )


def test_a_binary_that_does_not_load_is_reported(package: Path) -> None:
    (package / f"_core{SUFFIX}").write_bytes(b"\x7fELF and no more")
    message = f"ImportError: the binary of hami-core in {package} cannot be loaded: {package}/_core{SUFFIX}: "
    assert error_of(package).startswith(message)


def test_ctrl_c_while_the_binary_is_initialised_is_not_an_import_error(package: Path) -> None:
    (package / "_core.py").write_text("raise ImportError('initialization failed') from KeyboardInterrupt()")
    assert error_of(package, status=-signal.SIGINT) == "KeyboardInterrupt"


@pytest.mark.parametrize(
    ("before", "running"),
    [
        ("import sys; sys.version_info = (3, 9, 2)", "CPython {version}, 64 bits"),
        ("import platform; platform.python_implementation = lambda: 'PyPy'", "PyPy {version}, 64 bits"),
        ("import struct; struct.calcsize = lambda kind: 4", "CPython {version}, 32 bits"),
    ],
)
def test_an_unsupported_python_is_reported(package: Path, before: str, running: str) -> None:
    assert error_of(package, before) == (
        "ImportError: hami-core needs CPython 3.10 or newer, 64 bits; "
        f"this is {running.format(version=platform.python_version())}: {sys.executable}"
    )
