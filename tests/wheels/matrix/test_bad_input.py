"""Unsuitable wheels and Pythons are rejected by pip or by hami, with a message that explains what to do."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import tiny_wheels
from conftest import NEWER, OLDER, PASSED_OVER, core_wheel
from hami_build import wheel_file
from hami_build.interpreters import Interpreter
from machine import Machine

OLD_PYTHONS = [
    Path(found[1]) for line in PASSED_OVER if (found := re.match(r"(.+): Python 3\.[6-9]\.\d+ is older than", line))
]
NO_OLD_PYTHON = pytest.mark.skip(
    reason="no Python before 3.10 is installed (uv python install 3.9); ci/test systems tries the 3.9 of Debian"
)
for_each_old_python = pytest.mark.parametrize(
    "python", OLD_PYTHONS or [pytest.param(None, marks=NO_OLD_PYTHON)], ids=lambda path: path and path.parents[1].name
)


def test_without_network_pip_changes_nothing(machine: Machine) -> None:
    machine.run(f"pip3 install hami-core=={OLDER} acme-one==1.0.0")
    before = machine.files()
    output = machine.fails(
        f"pip3 install --retries 1 --upgrade hami-core=={NEWER}", PIP_INDEX_URL="http://127.0.0.1:9/simple/"
    )
    assert re.search("connection .* broken|Failed to establish a new connection|Connection refused", output)
    assert machine.files() == before
    machine.healthy()


def test_importing_a_wheel_of_another_python_names_the_needed_binary(
    machine: Machine, interpreter: Interpreter, tmp_path: Path
) -> None:
    own, other = f"cpython-{interpreter.tag[2:]}-", "cpython-39-"
    core = core_wheel(interpreter)
    assert core
    files = {path.replace(own, other): data for path, data in wheel_file.read(core).items()}
    assert f"hami/_core.{other}{platform.machine()}-linux-gnu.so" in files
    machine.run(f"pip3 install --no-deps {wheel_file.write(files, tmp_path / core.name)}")
    output = machine.fails("python3 -m hami version").splitlines()[-1]
    version = ".".join(map(str, interpreter.version))
    assert output == (
        f"ImportError: hami-core in {machine.site('system')}/hami has _core.{other}{platform.machine()}-linux-gnu.so, "
        f"but this Python (CPython {version}, 64 bits) needs _core.{own}{platform.machine()}-linux-gnu.so; "
        f"install it with: {machine.prefix}/bin/python3 -m pip install --force-reinstall hami-core"
    )


def test_pip_rejects_a_wheel_renamed_to_another_platform(
    machine: Machine, interpreter: Interpreter, tmp_path: Path
) -> None:
    core = core_wheel(interpreter)
    assert core
    renamed = shutil.copy(core, tmp_path / f"{core.stem.rpartition('-')[0]}-musllinux_1_2_{platform.machine()}.whl")
    output = machine.fails(f"pip3 install --no-deps {renamed}")
    assert f"ERROR: {Path(renamed).name} is not a supported wheel on this platform." in output


def test_pip_rejects_a_wheel_renamed_to_another_version(machine: Machine, tmp_path: Path) -> None:
    wheel = tiny_wheels.plugin(tmp_path, "acme-one", "1.0.0")
    wheel.rename(tmp_path / wheel.name.replace("1.0.0", "3.0.0"))
    output = machine.fails(f"pip3 install --no-deps --no-index --find-links {tmp_path} acme-one")
    assert "inconsistent version: expected '3.0.0', but metadata has '1.0.0'" in output


def test_pip_rejects_a_plugin_for_another_python(machine: Machine, tmp_path: Path) -> None:
    wheel = tiny_wheels.plugin(tmp_path, "acme-bound", tag="cp39-cp39-any")
    output = machine.fails(f"pip3 install --no-deps {wheel}")
    assert f"ERROR: {wheel.name} is not a supported wheel on this platform." in output


def test_doctor_names_a_plugin_that_overwrites_another(machine: Machine) -> None:
    machine.run(f"pip3 install hami-core=={OLDER} acme-one==1.0.0")
    machine.run("pip3 install acme-clash")
    (problem,) = (line for line in machine.problems() if "both contain" in line)
    assert problem.startswith(f"acme-clash and acme-one both contain {machine.site('system')}/acme_one/")
    assert problem.endswith("; the one installed last has overwritten it: uninstall one of them")


FOREIGN = {
    "musl": "--platform musllinux_1_2_x86_64",
    "32 bits": "--platform manylinux2014_i686",
    "PyPy": "--implementation pp --abi pypy311_pp73 --platform manylinux2014_x86_64",
    "Windows": "--platform win_amd64",
    "macOS": "--platform macosx_14_0_arm64",
}


@pytest.mark.parametrize("system", FOREIGN)
def test_a_system_without_a_wheel_gets_an_error(machine: Machine, system: str) -> None:
    output = machine.fails(f"pip3 download --no-deps --only-binary=:all: {FOREIGN[system]} hami-core")
    assert "No matching distribution found for hami-core" in output


@for_each_old_python
def test_pip_finds_no_distribution_for_an_old_python(history: str, python: Path, tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": history}
    command = [python, "-m", "pip", "install", "--target", tmp_path / "site", "hami-core"]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode != 0
    if "No module named pip" in done.stdout:
        pytest.skip(f"{python} has no pip")
    assert "No matching distribution found for hami-core" in done.stdout
    assert not (tmp_path / "site").exists()


@for_each_old_python
def test_importing_hami_in_an_old_python_names_the_needed_version(
    interpreter: Interpreter, python: Path, tmp_path: Path
) -> None:
    core = core_wheel(interpreter)
    assert core
    shutil.unpack_archive(core, tmp_path, "zip")
    done = subprocess.run(
        [python, "-c", "import hami"], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    output = done.stderr.splitlines()[-1]
    assert re.fullmatch(
        r"ImportError: hami-core needs CPython 3\.10 or newer, 64 bits; this is CPython 3\.\d\.\d+, 64 bits: .+", output
    )
