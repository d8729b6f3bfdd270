"""The environment in which zig compiles."""

from __future__ import annotations

import shutil

import pytest
from hami_build import zig


@pytest.mark.parametrize("installed", [None, "/usr/bin/ccache"])
def test_ccache_runs_the_compiler_of_each_target_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, installed: str | None
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: installed)
    found = [zig.build_environment(zig.target(architecture)) for architecture in zig.ARCHITECTURES]
    assert [env.get("CMAKE_CXX_COMPILER_LAUNCHER") for env in found] == [installed and "ccache"] * 2
    checks = {env.get("CCACHE_COMPILERCHECK") for env in found}
    assert len(checks) == (2 if installed else 1)  # each architecture has objects of its own
