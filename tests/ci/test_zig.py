"""The toolchain file of zig."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from hami_build import zig


def tools(folder: Path, aim: str, programs: Path) -> dict[str, str]:
    """Return the scripts that the toolchain file writes for a target, with `programs` alone on the PATH."""
    folder.mkdir()
    path = os.environ["PATH"]
    cmake = next(file for each in path.split(os.pathsep) if (file := Path(each, "cmake")).is_file())
    command = [cmake, f"-DHAMI_ZIG_TARGET={aim}", "-P", zig.TOOLCHAIN]
    subprocess.run(command, cwd=folder, env={**zig.build_environment(aim), "PATH": str(programs)}, check=True)
    return {file.name: file.read_text("utf-8") for file in (folder / "zig-tools").iterdir()}


def test_ccache_runs_the_compiler_of_each_target_where_it_is_installed(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "ccache").touch(0o755)
    found = [tools(tmp_path / each, zig.target(each), programs)["ccache"] for each in zig.ARCHITECTURES]
    for text, architecture in zip(found, zig.ARCHITECTURES, strict=True):
        assert f"{zig.target(architecture)}'" in text
        assert text.endswith(f'exec "{programs}/ccache" "$@"\n')
