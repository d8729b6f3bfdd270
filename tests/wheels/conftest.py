"""Temporary systems, and the indexes that they install from: the wheels in dist/ with all their requirements.

Third-party packages are downloaded once; after that the tests need no network. They do not change this machine.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ci"))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "plugins"))

import tiny_wheels
from _lib import dist, environments, project_templates, wheel_env
from _lib.paths import CACHE, DIST, ROOT, pyproject
from author import build_wheels
from hami_build import index, index_server, interpreters, zig
from hami_build.interpreters import Interpreter
from machine import Machine, write_prefix

OLDER, NEWER = "0.0.9", "9.0.0"  # versions of the core other than that in dist/
CURRENT = pyproject(ROOT)["project"]["version"]
FOUND, PASSED_OVER = interpreters.find()
PLUGINS = [folder.name for folder in dist.folders()]
EXTRAS = pyproject(ROOT / "hami-plugins" / "hami-build")["project"]["optional-dependencies"]
NVRTC = project_templates.values_of("cuda")["BUILD_TOOLS"].strip()


def core_wheel(interpreter: Interpreter, machine: str = platform.machine()) -> Path | None:
    """Return the wheel of the core for `interpreter`, or None."""
    return next(iter(sorted(DIST.glob(f"hami_core-*-{interpreter.tag}-*_{machine}.whl"))), None)


def plugin_wheel(name: str, machine: str = platform.machine()) -> Path:
    """Return the wheel of a plugin for this kind of machine."""
    wheels = sorted(DIST.glob(f"{name.replace('-', '_')}-*.whl"))
    return next(wheel for wheel in wheels if wheel.stem.endswith(("any", machine)))


def with_needed(plugin: str) -> list[str]:
    """Return `plugin` and the first-party plugins that it needs."""
    requirements = wheel_env.requirements_of(plugin_wheel(plugin))
    needed = [
        other for other in PLUGINS if re.search(rf"^Requires-Dist: {other}\b(?!.*extra ==)", requirements, re.MULTILINE)
    ]
    return [plugin, *(name for other in needed for name in with_needed(other))]


# The CPythons of this machine that dist/ has a wheel for; the running one is the first. ci/test limits them to some
# tags, because it may build wheels for others at the same time.
TAGS = os.environ.get("HAMI_TEST_TAGS", "").split()
INTERPRETERS = sorted(
    (found for found in FOUND if core_wheel(found) and (not TAGS or found.tag in TAGS)),
    key=lambda found: found != interpreters.running(),
)

Serve = Callable[[str, list[Path]], str]
MakeMachine = Callable[..., Machine]


@pytest.fixture(scope="session")
def interpreter() -> Interpreter:
    """The CPython that most tests install for."""
    if not INTERPRETERS:
        pytest.fail(f"{DIST} has no wheel of hami-core for a Python of this machine: ci/wheels --python current")
    return INTERPRETERS[0]


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Return a function that serves an index of wheels and returns its address."""
    folder = tmp_path_factory.mktemp("indexes")
    with ExitStack() as running:

        def serve(name: str, wheels: list[Path]) -> str:
            index.write(wheels, folder / name)
            return running.enter_context(index_server.serving(folder / name))

        yield serve


@pytest.fixture(scope="session")
def current(serve: Serve) -> Callable[..., str]:
    """Return a function that gives the address of an index with our wheels and the requirements of a plugin."""
    made: dict[str, str] = {}

    def address(interpreter: Interpreter, plugin: str) -> str:
        key = f"{interpreter.tag}-{plugin}"
        if key not in made:
            core = core_wheel(interpreter)
            assert core
            wanted = wheel_env.third_party([core, *map(plugin_wheel, with_needed(plugin))])
            ours = [core, *map(plugin_wheel, PLUGINS)]
            made[key] = serve(key, [*ours, *wheel_env.download(interpreter, wanted)])
        return made[key]

    return address


@pytest.fixture(scope="session")
def authors_index(serve: Serve, interpreter: Interpreter) -> str:
    """Return the address of an index with hami-build, hami-tools, hami-tensor, and what projects are built with."""
    core = core_wheel(interpreter)
    assert core
    ours = [core, *map(plugin_wheel, ("hami-build", "hami-tools", "hami-tensor"))]
    needed = wheel_env.third_party(ours)
    others = ["pip", "pytest>=8", "numpy>=1.26", "pybind11>=3.1", NVRTC, *EXTRAS["check"], *EXTRAS["wheel"]]
    wheels = wheel_env.download(interpreter, [*needed, *others])
    return serve("authors", [*ours, *wheels])


@pytest.fixture(scope="session")
def history(serve: Serve, interpreter: Interpreter, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of an index with three versions of the core, and with small plugins of several versions."""
    folder, core = tmp_path_factory.mktemp("history"), core_wheel(interpreter)
    assert core
    cores = [core, *(tiny_wheels.revised(core, version, folder) for version in (OLDER, NEWER))]
    plugins = [
        tiny_wheels.plugin(folder, "acme-one", "1.0.0", script=True),
        tiny_wheels.plugin(folder, "acme-one", "2.0.0", script=True),
        tiny_wheels.plugin(folder, "acme-two", "1.0.0", script=True),
        tiny_wheels.plugin(folder, "acme-future", "1.0.0", requires="hami-core>=99"),
        tiny_wheels.plugin(folder, "acme-clash", "1.0.0", package="acme_one"),
    ]
    wanted = wheel_env.third_party([core])
    return serve("history", [*cores, *plugins, *wheel_env.download(interpreter, wanted)])


@pytest.fixture(scope="session")
def installers() -> str:
    """Return the folder with the newest pip, uv and pipx."""
    return str(environments.ensure("installers").parent)


@pytest.fixture(scope="session")
def prefixes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Interpreter], Path]:
    """Return a function that gives the prefix of an interpreter, from which prefixes of machines are copied."""
    made: dict[str, Path] = {}

    def prefix(interpreter: Interpreter) -> Path:
        if interpreter.tag not in made:
            folder = tmp_path_factory.mktemp("prefixes") / interpreter.tag
            write_prefix(folder, interpreter)
            made[interpreter.tag] = folder
        return made[interpreter.tag]

    return prefix


@pytest.fixture
def make_machine(prefixes: Callable[[Interpreter], Path], interpreter: Interpreter, tmp_path: Path) -> MakeMachine:
    """Return a function that makes a system without our packages, which installs from this index."""

    def make(address: str, interpreter: Interpreter = interpreter) -> Machine:
        return machine_in(tmp_path, prefixes(interpreter), address)

    return make


def machine_in(folder: Path, prefix: Path, address: str) -> Machine:
    """Make a system in `folder` with a copy of `prefix`."""
    home = folder / "home"
    home.mkdir()
    return Machine(Path(shutil.copytree(prefix, folder / "usr", symlinks=True)), home, address)


@pytest.fixture(scope="session")
def new_wheels(
    prefixes: Callable[[Interpreter], Path],
    interpreter: Interpreter,
    authors_index: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """Return the wheels of a new plugin in C++, by platform."""
    machine = machine_in(tmp_path_factory.mktemp("author"), prefixes(interpreter), authors_index)
    machine.run("python3 -m venv env")
    machine.run('env/bin/pip install "hami-core[tools]" "hami-build[all]"')
    share_compiler(machine, *map(zig.target, zig.ARCHITECTURES))
    return build_wheels(machine)


def share_compiler(machine: Machine, *aims: str) -> None:
    """Let hami-build in the environments of a system use our compiler, whose C++ library for these targets is built."""
    for aim in aims:
        zig.warm_up(aim)
    for module in machine.home.glob("*/lib/python*/site-packages/ziglang"):
        shutil.rmtree(module)
        module.symlink_to(zig.program().parent)
    cache = machine.home / ".cache" / "hami-build" / "zig"
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.symlink_to(CACHE / "zig")


@pytest.fixture(scope="session")
def tools(interpreter: Interpreter, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with hami-tools and what it requires, for PYTHONPATH."""
    folder, wheel = tmp_path_factory.mktemp("tools"), plugin_wheel("hami-tools")
    for each in (wheel, *wheel_env.download(interpreter, wheel_env.third_party([wheel]))):
        with zipfile.ZipFile(each) as opened:
            opened.extractall(folder)
    return folder


@pytest.fixture
def machine(make_machine: MakeMachine, history: str, tools: Path) -> Machine:
    """Return a system that installs from the index of several versions."""
    made = make_machine(history)
    made.tools = tools
    return made
