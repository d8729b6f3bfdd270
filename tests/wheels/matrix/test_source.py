"""pip compiles the source distribution of the core on a system with a compiler and without the checkout."""

from __future__ import annotations

import shutil

import pytest
from _lib import dist, wheel_env
from _lib.paths import ROOT, pyproject
from conftest import MakeMachine, Serve, core_wheel
from hami_build import headers
from hami_build.interpreters import Interpreter

# Machines use the compilers of this system. cmake and ninja come from the index, as on a system without them.
NO_COMPILER = shutil.which("c++", path="/usr/bin:/bin") is None
# Without optimization, the build takes two minutes of processor time.
WITHOUT_OPTIMIZATION = "--config-settings=cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0"


@pytest.mark.skipif(NO_COMPILER, reason="/usr/bin/c++ is not installed (Debian, Ubuntu: apt install g++)")
def test_the_core_compiles_from_its_source_distribution(
    make_machine: MakeMachine, serve: Serve, interpreter: Interpreter
) -> None:
    core = core_wheel(interpreter)
    assert core
    build = pyproject(ROOT)["build-system"]["requires"]
    needed = wheel_env.download(interpreter, [*wheel_env.third_party([core]), *build, "cmake>=3.21", "ninja>=1.5"])
    machine = make_machine(serve("source", [dist.build_sdist(ROOT), *needed]))
    include = machine.prefix / "include" / "python{}.{}".format(*interpreter.version)
    include.parent.mkdir()
    include.symlink_to(headers.include_folder(interpreter))  # as on a system with python3-dev
    machine.run("python3 -m venv env")
    output = machine.run(f"env/bin/pip install {WITHOUT_OPTIMIZATION} hami-core")
    assert "Building wheel for hami-core" in output
    machine.healthy("env/bin/hami")
