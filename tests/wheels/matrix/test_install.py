"""Every documented way to install, and that uninstalling leaves nothing behind."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import tiny_wheels
from _lib import wheel_env
from conftest import CURRENT, INTERPRETERS, PLUGINS, MakeMachine, Serve, core_wheel, plugin_wheel, with_needed
from hami_build.interpreters import Interpreter
from machine import Machine

# Plugins that do not depend on their library, because it has variants, and the message if it is missing.
MISSING = {
    "hami-torch": "torch is not installed; hami-torch needs torch 2.3 or newer, of the build that fits your CUDA "
    "driver: pip install torch",
    "hami-trt": 'TensorRT is not installed: pip install "hami-trt[cu13]"',
}

LIBRARIES = {"hami-model-check"}  # they are not plugins, and have no backends


@pytest.mark.parametrize("interpreter", INTERPRETERS, ids=lambda found: found.tag)
def test_pip_in_a_virtual_environment(
    make_machine: MakeMachine, current: Callable[..., str], interpreter: Interpreter
) -> None:
    machine = make_machine(current(interpreter, "hami-onnx"), interpreter)
    machine.run("python3 -m venv env")
    before = machine.files()
    machine.run("env/bin/pip install hami-core hami-onnx", PIP_COMPILE="1")  # as users have it
    assert machine.run("env/bin/pip check") == "No broken requirements found.\n"
    machine.healthy("env/bin/hami")
    assert machine.run("env/bin/hami backends OnnxTensor").startswith("OnnxTensor[backend]  (hami-onnx")
    machine.run("env/bin/pip freeze | xargs env/bin/pip uninstall --yes")
    assert machine.files() == before


@pytest.mark.parametrize("plugin", PLUGINS)
def test_uv_installs_each_plugin(
    make_machine: MakeMachine, current: Callable[..., str], interpreter: Interpreter, installers: str, plugin: str
) -> None:
    machine = make_machine(current(interpreter, plugin))
    machine.run(f"{installers}/uv venv --python python3 env")
    machine.run(f"{installers}/uv pip install --python env hami-core {plugin}")
    if plugin in MISSING:
        (problem,) = (found for found in machine.problems("env/bin/hami") if found.startswith(f"{plugin} "))
        assert problem.endswith(f" failed to load: {MISSING[plugin]}")
        return
    machine.healthy("env/bin/hami")
    if plugin in LIBRARIES:
        machine.run(f"env/bin/python -c 'import {plugin.replace('-', '_')}'")
    else:
        assert f"{plugin} " in machine.run("env/bin/hami plugins --load")


TENSORRT = {
    "cu12": {"tensorrt-cu12": "99.0"},
    "cu13": {"tensorrt-cu13": "99.0"},
    "rtx": {"tensorrt-rtx-cu13": "99.0"},
    "trt93": dict.fromkeys(("tensorrt-bindings", "tensorrt-libs"), "9.3.0.post12.dev1"),
}


@pytest.fixture(scope="module")
def with_tensorrt(serve: Serve, interpreter: Interpreter, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of an index with hami-trt, its requirements, and empty wheels that replace TensorRT."""
    core, folder = core_wheel(interpreter), tmp_path_factory.mktemp("tensorrt")
    assert core
    ours = [core, *map(plugin_wheel, with_needed("hami-trt"))]
    libraries = [tiny_wheels.empty(folder, *each) for packages in TENSORRT.values() for each in packages.items()]
    return serve("tensorrt", [*ours, *libraries, *wheel_env.download(interpreter, wheel_env.third_party(ours))])


@pytest.mark.parametrize("extra", ["", *TENSORRT])
def test_an_extra_of_hami_trt_installs_only_its_library(
    make_machine: MakeMachine, with_tensorrt: str, extra: str
) -> None:
    machine = make_machine(with_tensorrt)
    machine.run("python3 -m venv env")
    asked = f"'hami-trt[{extra}]'" if extra else "hami-trt"
    machine.run(f"env/bin/pip install hami-core {asked}")
    assert machine.run("env/bin/pip check") == "No broken requirements found.\n"
    installed = set(re.findall(r"^tensorrt[\w-]*", machine.run("env/bin/pip freeze"), re.MULTILINE))
    assert installed == (TENSORRT[extra].keys() if extra else set())
    assert machine.run("env/bin/hami backends TensorrtTensor").startswith("TensorrtTensor[backend]  (hami-trt")


def test_pip_install_for_one_user(machine: Machine) -> None:
    before = machine.files()
    machine.run(f"pip3 install --user hami-core=={CURRENT} acme-one")
    assert (machine.site("user") / "hami").is_dir()
    assert not (machine.site("system") / "hami").exists()
    machine.healthy(f"{machine.home}/.local/bin/hami")
    assert machine.run("python3 -m hami run AcmeOne --text x") == "acme-one 2.0.0\n"
    machine.run("pip3 uninstall --yes hami-core acme-one pluggy")
    assert machine.files() == before


def test_pip_install_into_a_folder(machine: Machine) -> None:
    machine.run(f"pip3 install --target packages hami-core=={CURRENT} acme-one")
    machine.healthy(PYTHONPATH="packages")
    assert machine.run("python3 -m hami run AcmeOne --text x", PYTHONPATH="packages") == "acme-one 2.0.0\n"


@pytest.mark.parametrize("which", ["getusersitepackages()", "getsitepackages()[0]"])
def test_pip_download_of_a_platform_into_a_site(
    make_machine: MakeMachine, current: Callable[..., str], interpreter: Interpreter, which: str
) -> None:
    """First the core, then a plugin whose engine also needs a newer platform."""
    machine = make_machine(current(interpreter, "hami-onnx"))
    target = f'--only-binary=:all: --target $(python3 -c "import site; print(site.{which})")'
    machine.run(f"pip3 install hami-core --platform manylinux2014_x86_64 {target}")
    machine.healthy()
    output = machine.fails(f"pip3 install hami-onnx --platform manylinux2014_x86_64 {target}")
    assert re.search("No matching distribution found for (numpy|onnxruntime)>=", output)
    both = "--platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64"
    machine.run(f"pip3 install --upgrade hami-onnx {both} {target}")
    machine.healthy()
    assert machine.run("python3 -m hami backends OnnxTensor").startswith("OnnxTensor[backend]  (hami-onnx")
    assert machine.run("pip3 check") == "No broken requirements found.\n"


def test_core_for_all_users_and_plugin_for_one(machine: Machine) -> None:
    machine.run(f"pip3 install hami-core=={CURRENT}")
    machine.run("pip3 install --user acme-one acme-two")
    assert not (machine.site("user") / "hami").exists()
    machine.healthy()
    for plugin in ("AcmeOne", "AcmeTwo"):
        assert machine.run(f"python3 -m hami run {plugin} --text x").startswith("acme-")


def test_virtual_environment_does_not_see_plugins_of_the_user(machine: Machine) -> None:
    machine.run(f"pip3 install --user hami-core=={CURRENT} acme-one")
    machine.run("python3 -m venv --system-site-packages wide && python3 -m venv narrow")
    assert machine.run("wide/bin/python -m hami run AcmeOne --text x") == "acme-one 2.0.0\n"
    assert machine.fails("narrow/bin/python -m hami").endswith("/narrow/bin/python: No module named hami\n")
