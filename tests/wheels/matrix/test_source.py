"""The source distribution of the core, compiled by pip on a system that has a compiler and nothing of the checkout."""

from __future__ import annotations

import shutil

import pytest
from _lib import headers, sdists, wheelhouse
from _lib.interpreters import Interpreter
from _lib.paths import ROOT, pyproject
from conftest import MakeMachine, Serve, core_wheel

# Machines have the compilers of this system. cmake and ninja come from the index, as on a system without them.
NO_COMPILER = shutil.which("c++", path="/usr/bin:/bin") is None
# Not optimised it takes two minutes of processor time.
QUICK = "--config-settings=cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0"


@pytest.mark.skipif(NO_COMPILER, reason="there is no /usr/bin/c++ here (Debian, Ubuntu: apt install g++)")
def test_core_is_compiled_from_its_source_alone(
    make_machine: MakeMachine, serve: Serve, interpreter: Interpreter
) -> None:
    core = core_wheel(interpreter)
    assert core
    build = pyproject(ROOT)["build-system"]["requires"]
    needed = wheelhouse.fetch(interpreter, [*wheelhouse.requirements([core]), *build, "cmake>=3.21", "ninja>=1.5"])
    machine = make_machine(serve("source", [sdists.build(ROOT), *needed]))
    include = machine.prefix / "include" / "python{}.{}".format(*interpreter.version)
    include.parent.mkdir()
    include.symlink_to(headers.include_folder(interpreter))  # as on a system where python3-dev is installed
    machine.run("python3 -m venv env")
    told = machine.run(f"env/bin/pip install {QUICK} hami-core")
    assert "Building wheel for hami-core" in told
    machine.healthy("env/bin/hami")
