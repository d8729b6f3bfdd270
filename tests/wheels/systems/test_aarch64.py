"""The wheel for aarch64 runs under an emulated Python of that architecture."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_wheels
from _lib import environments, old_systems, wheelhouse
from _lib.paths import DIST
from conftest import INTERPRETERS, Serve

TAG = f"cp{old_systems.PYTHON.replace('.', '')}"


@pytest.fixture(scope="session")
def core() -> Path:
    for wheel in DIST.glob(f"hami_core-*-{TAG}-*_aarch64.whl"):
        return wheel
    pytest.skip(
        f"dist/ has no wheel of hami-core for aarch64: ci/wheels --platform aarch64 --python {old_systems.PYTHON}"
    )


@pytest.fixture(scope="session")
def python() -> list[str | Path]:
    try:
        return old_systems.foreign_python()
    except old_systems.Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture
def run(core: Path, python: list[str | Path], serve: Serve, tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs Python for aarch64, with the core and a plugin installed."""
    plugin = tiny_wheels.plugin(tmp_path, "acme-one", requires="hami-core>=0.1")
    address = serve("aarch64", [core, plugin, *wheelhouse.fetch(INTERPRETERS[0], wheelhouse.requirements([core]))])
    target = tmp_path / "site"
    options = ["--platform", "manylinux2014_aarch64", "--python-version", old_systems.PYTHON, "--only-binary=:all:"]
    subprocess.run(
        [
            environments.ensure("installers"),
            "-m",
            "pip",
            "install",
            *options,
            "--target",
            target,
            "hami-core",
            "acme-one",
        ],
        env={**os.environ, "PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": address, "PIP_FIND_LINKS": ""},
        check=True,
    )

    def run(*arguments: str) -> str:
        env = {"PYTHONPATH": str(target), "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            [*python, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


def test_core_and_plugin_run(run: Callable[..., str]) -> None:
    assert run("-c", "import platform; print(platform.machine())") == "aarch64\n"
    assert run("-m", "hami", "run", "S[Identity,Identity]", "--text", "hello") == "hello\n"
    assert run("-m", "hami", "run", "AcmeOne", "--text", "x") == "acme-one 1.0.0\n"
    assert run("-m", "hami", "doctor").endswith("\nno problems found\n")
