"""The wheel for aarch64 runs under an emulated Python of that architecture."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import author
import pytest
import roots
import tiny_wheels
from _lib import environments, wheel_env
from _lib.other_systems import PYTHON
from _lib.paths import DIST
from conftest import INTERPRETERS, MakeMachine, Serve, core_wheel, plugin_wheel

Run = Callable[..., str]
TAG = f"cp{PYTHON.replace('.', '')}"


@pytest.fixture(scope="session")
def core() -> Path:
    for wheel in DIST.glob(f"hami_core-*-{TAG}-*_aarch64.whl"):
        return wheel
    pytest.skip(f"dist/ has no wheel of hami-core for aarch64: ci/wheels --platform aarch64 --python {PYTHON}")


@pytest.fixture(scope="session")
def python() -> list[str | Path]:
    try:
        return roots.foreign_python()
    except roots.Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture
def install(core: Path, python: list[str | Path], serve: Serve, tmp_path: Path) -> Callable[[Path], Run]:
    """Return a function that installs the core and a plugin, and returns one that runs Python for aarch64 with them."""

    def install(plugin: Path) -> Run:
        needed = wheel_env.download(INTERPRETERS[0], wheel_env.third_party([core]))
        address = serve(f"aarch64-{plugin.stem}", [core, plugin, *needed])
        target = tmp_path / "site"
        options = ["--platform", "manylinux_2_28_aarch64", "--platform", "manylinux2014_aarch64"]
        options += ["--python-version", PYTHON, "--only-binary=:all:", "--target", str(target)]
        subprocess.run(
            [environments.ensure("installers"), "-m", "pip", "install", *options, "hami-core", plugin],
            env={**os.environ, "PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": address, "PIP_FIND_LINKS": ""},
            check=True,
        )
        env = {"PYTHONPATH": str(target), "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}

        def run(*arguments: str) -> str:
            done = subprocess.run(
                [*python, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
            )
            assert done.returncode == 0, done.stdout
            return done.stdout

        return run

    return install


def test_core_and_plugin_run(install: Callable[[Path], Run], tmp_path: Path) -> None:
    run = install(tiny_wheels.plugin(tmp_path, "acme-one", requires="hami-core>=0.1"))
    assert run("-c", "import platform; print(platform.machine())") == "aarch64\n"
    assert run("-m", "hami", "run", "S[Identity,Identity]", "--text", "hello") == "hello\n"
    assert run("-m", "hami", "run", "AcmeOne", "--text", "x") == "acme-one 1.0.0\n"
    assert run("-m", "hami", "doctor").endswith("\nno problems found\n")


def test_a_bundle_made_here_runs_without_a_network(
    core: Path, python: list[str | Path], serve: Serve, make_machine: MakeMachine, tmp_path: Path
) -> None:
    here, tools = core_wheel(INTERPRETERS[0]), plugin_wheel("hami-tools")
    assert here
    needed = wheel_env.download(INTERPRETERS[0], wheel_env.third_party([here, tools]))
    machine = make_machine(serve("aarch64-bundle", [core, here, tools, *needed]))
    machine.run("python3 -m venv env && env/bin/pip install 'hami-core[tools]'")
    kind = f"--platform aarch64 --python-version {PYTHON}"
    machine.run(f'env/bin/hami bundle "S[Identity,Identity]" -o app.hami --text hello {kind}')
    # Isolated from the beginning: the kernel does not start the emulated Python a second time.
    start = ["bwrap", "--dev-bind", "/", "/", "--unshare-net", *python, "-I", "-S", machine.home / "app.hami"]
    env = {"HAMI_BUNDLE_DIR": str(tmp_path / "unpacked"), "LC_ALL": "C.UTF-8"}

    def run(*arguments: str) -> str:
        return subprocess.run([*start, *arguments], env=env, capture_output=True, text=True, check=True).stdout

    assert run("run", "--text", "hi") == "hi\n"
    assert run("verify").endswith("\n1 answers as expected\n")


@pytest.mark.parametrize("built_for", [name for name in author.PLATFORMS if name.endswith("_aarch64")])
def test_a_new_plugin_runs(install: Callable[[Path], Run], new_wheels: dict[str, Path], built_for: str) -> None:
    run = install(new_wheels[built_for])
    assert run("-m", "hami", *author.RUN) == author.ANSWER
    assert run("-m", "hami", "doctor").endswith("\nno problems found\n")
