"""The museum: wheels of plugins for every version of the plugin ABI, kept as they were built, and every release."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from hami_build import platforms, wheels, zig
from hami_build.steps import environment, run, step

from . import compatibility, environments, plugin_wheels
from .paths import CACHE, ROOT

FOLDER = ROOT / "tests" / "abi" / "museum"
PAGE = ROOT / "hami-core" / "docs" / "reference" / "tested-versions.md"
TOP = """\
# Tested versions

Each plugin runs with each version of `hami-core` in this table: it registers its backends, and those with a sample
request pass `hami.testing.check_backend`. `hami-golden` are plugins in C and C++ for one version of the plugin ABI.
Their libraries are kept in `tests/abi/museum` as they were built when that version was current, and the tests of
`tests/abi/test_golden.py` run with them. Released plugins come from the package index.

`ci/museum` measures this page with `hami-build matrix`. [Compatibility](compatibility.md) lists what each package
requires.

"""


def keep(folder: Path) -> list[Path]:
    """Build the wheels of a golden project for every architecture into the museum; return them."""
    aims = [platforms.parse(f"manylinux2014_{architecture}") for architecture in zig.ARCHITECTURES]
    return wheels.build(folder, aims, FOLDER, cmake_dir=plugin_wheels.CMAKE_PACKAGE)


def released() -> tuple[list[Path], list[Path]]:
    """Download every release of a plugin, and of the core; return their wheels."""
    folder = CACHE / "museum"
    shutil.rmtree(folder, ignore_errors=True)
    options = ("--no-deps", "--only-binary", ":all:", "--dest", folder)
    for each in compatibility.released(ROOT):
        with step(f"downloading {each.package} {each.version}"):
            pip = [environments.ensure("installers"), "-m", "pip", "download", *options]
            run([*pip, f"{each.package}=={each.version}"], log="museum-download", env=environment())
    found = sorted(folder.glob("*.whl"))
    cores = [wheel for wheel in found if wheel.name.startswith("hami_core-")]
    return [wheel for wheel in found if wheel not in cores], cores


def measure(python: Path, plugins: Sequence[Path], cores: Sequence[Path]) -> str:
    """Return the page, measured with the hami-core and the hami-build of an environment."""
    options = [word for core in cores for word in ("--core", core)]
    command = [python, "-m", "hami_build", "matrix", *plugins, *options]
    with step(f"running {len(plugins)} plugins"):
        return TOP + run(command, log="museum-matrix", env=environment())
