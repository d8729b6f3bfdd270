"""An older Debian (glibc 2.31): its own Python is rejected as too old, a newer one on it runs everything."""

from __future__ import annotations

import platform
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import author
import pytest
import roots
from _lib.other_systems import PYTHON
from conftest import FOUND, core_wheel
from hami_build.interpreters import Interpreter
from machine import Machine

HOME = Path("/home")
SITE = f"{roots.PYTHON_PREFIX}/lib/{roots.SOURCE}/site-packages"


@pytest.fixture(scope="session")
def root() -> Path:
    if platform.machine() != "x86_64":
        pytest.skip("runs on x86_64 only")
    try:
        return roots.old_debian()
    except roots.Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def newer() -> Interpreter:
    """Return a Python of this machine with the same version as the newer Python in the older Debian."""
    for found in FOUND:
        if "{}.{}".format(*found.version) == PYTHON and core_wheel(found):
            return found
    pytest.skip(f"dist/ has no wheel for {PYTHON}: ci/wheels --python {PYTHON}")


@pytest.fixture
def enter(root: Path, current: Callable[..., str], newer: Interpreter, tmp_path: Path) -> Callable[[str], Machine]:
    """Return a function that gives the system with `prefix` first on its PATH, without packages of earlier tests."""
    home, site = tmp_path / "home", tmp_path / "site"
    home.mkdir()
    shutil.copytree(root / SITE[1:], site, symlinks=True)
    inside = roots.entering(root, (home, str(HOME)), (site, SITE))

    def enter(prefix: str) -> Machine:
        return Machine(Path(prefix), HOME, current(newer, "hami-onnx"), inside)

    return enter


def test_the_system_has_the_expected_libc_and_python(enter: Callable[[str], Machine]) -> None:
    machine = enter(roots.PYTHON_PREFIX)
    output = machine.run("python3 -c 'import platform; print(platform.libc_ver()[1], platform.python_version())'")
    assert output.startswith("2.31 3.11.")


@pytest.mark.parametrize("options", ["", "--platform manylinux2014_x86_64 --only-binary=:all: --target there"])
def test_pip_of_python_3_9_finds_no_distribution(enter: Callable[[str], Machine], options: str) -> None:
    machine = enter("/usr")
    output = machine.fails(f"pip3 install hami-core {options}")
    assert "ERROR: No matching distribution found for hami-core" in output


@pytest.mark.parametrize("which", ["getusersitepackages()", "getsitepackages()[0]"])
def test_documented_commands(enter: Callable[[str], Machine], which: str) -> None:
    machine = enter(roots.PYTHON_PREFIX)
    target = f'--only-binary=:all: --target $(python3 -c "import site; print(site.{which})")'
    machine.run(f"pip3 install hami-core --platform manylinux2014_x86_64 {target}")
    machine.healthy()
    both = "--platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64"
    machine.run(f"pip3 install --upgrade hami-onnx {both} {target}")
    machine.healthy()
    assert "onnxruntime providers" in machine.run("python3 -m hami doctor")
    assert machine.run("pip3 check") == "No broken requirements found.\n"


def test_virtual_environment(enter: Callable[[str], Machine]) -> None:
    machine = enter(roots.PYTHON_PREFIX)
    machine.run("python3 -m venv env && env/bin/pip install hami-core hami-onnx")
    machine.healthy("env/bin/hami")


def test_a_bundle_needs_neither_packages_nor_a_network(
    enter: Callable[[str], Machine], root: Path, tmp_path: Path
) -> None:
    machine = enter(roots.PYTHON_PREFIX)
    machine.run("python3 -m venv env && env/bin/pip install 'hami-core[tools]'")
    machine.run('env/bin/hami bundle "S[Identity,Identity]" -o app.hami --text hello && rm -r env')
    alone = [*roots.entering(root, (tmp_path / "home", str(HOME))), "--unshare-net"]
    offline = Machine(machine.prefix, HOME, "", alone)
    assert offline.run("python3 app.hami run --text hi") == "hi\n"
    assert offline.run("python3 app.hami verify").endswith("\n1 answers as expected\n")
    assert "app.hami needs CPython 3.10 or newer, this is 3.9" in offline.fails("/usr/bin/python3 app.hami verify")


@pytest.mark.parametrize("built_for", [name for name in author.PLATFORMS if name.endswith("_x86_64")])
def test_a_new_plugin_runs(
    enter: Callable[[str], Machine], new_wheels: dict[str, Path], tmp_path: Path, built_for: str
) -> None:
    machine = enter(roots.PYTHON_PREFIX)
    wheel = shutil.copy(new_wheels[built_for], tmp_path / "home")
    machine.run(f"python3 -m venv env && env/bin/pip install hami-core ./{Path(wheel).name}")
    assert machine.run(shlex.join(["env/bin/hami", *author.RUN])) == author.ANSWER
    machine.healthy("env/bin/hami")
