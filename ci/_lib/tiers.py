"""The tiers of ci/test: each runs its tests and adds what it found to the totals."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import (
    core_wheel,
    dist,
    environments,
    headers,
    interpreters,
    local_image,
    old_systems,
    plugin_wheels,
    rebuilt,
    wheel_env,
    zig,
)
from .paths import CACHE, DIST, REQUIREMENTS, ROOT
from .runners import Options, doctest, pytest
from .steps import Failure, environment, run, step
from .totals import Totals

COMMANDS = [
    ROOT / "ci" / name for name in ("audit", "cibuildwheel-local", "demo", "gpu", "index", "release", "test", "wheels")
]
OUTSIDE_S = 7200  # what a test may take that waits for downloads, or for a system that is made and compiles


def current_interpreter() -> interpreters.Interpreter:
    found = interpreters.running()
    if isinstance(found, str):
        raise Failure(f"nothing can be built for {found}")
    return found


def build_current() -> interpreters.Interpreter:
    """dist/ has the wheels for the running Python."""
    interpreter = current_interpreter()
    dist.build([interpreter])
    return interpreter


def test_environment(interpreter: interpreters.Interpreter) -> Path:
    """Our wheels with what their tests need besides; without the plugins that have an environment of their own."""
    plugins = [f"{plugin.name}[test]" for plugin in plugin_wheels.folders() if not own_requirements(plugin)]
    return wheel_env.ensure("test", interpreter, ["hami-core[rich]", *plugins], ["-r", str(REQUIREMENTS / "tests.txt")])


def plugin_environment(plugin: Path, interpreter: interpreters.Interpreter) -> Path:
    """The environment that a plugin's tests run in: one of its own where it has requirements of its own."""
    requirements = own_requirements(plugin)
    if not requirements:
        return test_environment(interpreter)
    return wheel_env.ensure(plugin.name, interpreter, [f"{plugin.name}[test]"], ["-r", str(requirements)])


def own_requirements(plugin: Path) -> Path | None:
    """What the tests of this plugin need that is too much for all others: an engine of hundreds of megabytes."""
    path = REQUIREMENTS / f"{plugin.name}.txt"
    return path if path.is_file() else None


def layers(totals: Totals, options: Options) -> None:
    """Includes and imports point down only."""
    result = subprocess.run([sys.executable, ROOT / "ci" / "check_layers.py"], check=False)
    totals.check(result.returncode == 0, "layers: see above")


def lint(totals: Totals, options: Options) -> None:
    """ruff over everything, mypy over ci/ and the package."""
    python = environments.ensure("checks")
    commands: dict[str, Sequence[object]] = {
        "ruff check": [python, "-m", "ruff", "check", "--quiet", ROOT, *COMMANDS],
        "ruff format": [python, "-m", "ruff", "format", "--quiet", "--check", ROOT, *COMMANDS],
        "mypy": [python, "-m", "mypy"],
    }
    for name, command in commands.items():
        result = subprocess.run(list(map(str, command)), cwd=ROOT, env=environment(), check=False)
        totals.check(result.returncode == 0, f"lint: {name}, see above")


def ci(totals: Totals, options: Options) -> None:
    """The checks of ci/ find what they are for."""
    zig.warm_up()
    pytest(Path(sys.executable), ROOT / "tests" / "ci", "ci", totals, options)


def cpp(totals: Totals, options: Options) -> None:
    """The C++ unit tests, compiled as the wheels are."""
    folder = core_wheel.build_target("hami_tests", "compiling the C++ tests")
    doctest(folder / "tests" / "cpp" / "hami_tests", "cpp", totals)


def wheels(totals: Totals, options: Options) -> None:
    """The wheels for the running Python pass every audit, and install in every way that the guides tell."""
    interpreter = build_current()
    for finding in dist.findings(wheel_env.usable(interpreter)):
        if not finding.passed:
            print(finding)
        totals.check(finding.passed, f"wheels: {finding}")
    folder = ROOT / "tests" / "wheels" / "matrix"
    pytest(Path(sys.executable), folder, "wheels", totals, options, hangs_after_s=OUTSIDE_S)


def python(totals: Totals, options: Options) -> None:
    """The Python tests against the installed wheels."""
    pytest(test_environment(build_current()), ROOT / "tests" / "python", "python", totals, options)


def abi(totals: Totals, options: Options) -> None:
    """Native plugins, built by g++ and by the wheels' compiler, against the installed wheels."""
    installed = test_environment(build_current())
    zig.warm_up()
    pytest(installed, ROOT / "tests" / "abi", "abi", totals, options, zig.build_environment())


def installed(totals: Totals, options: Options) -> None:
    """Small plugins, good and bad, built by pip and installed into throw-away environments."""
    installed = test_environment(build_current())
    zig.warm_up()
    pytest(installed, ROOT / "tests" / "plugins", "installed", totals, options, zig.build_environment())


def plugins(totals: Totals, options: Options) -> None:
    """The tests of each plugin against the installed wheels."""
    interpreter = build_current()
    for plugin in plugin_wheels.folders():
        print(f"-- {plugin.name}", flush=True)
        pytest(plugin_environment(plugin, interpreter), plugin / "tests", plugin.name, totals, options)


def pythons(totals: Totals, options: Options) -> None:
    """The Python tests on every other CPython found."""
    current = current_interpreter()
    found, passed_over = interpreters.find()
    for reason in passed_over:
        totals.skip("pythons", reason)
    others = [interpreter for interpreter in found if interpreter.tag != current.tag]
    if not others:
        totals.skip("pythons", f"no CPython besides {current.tag} is found here; uv python install 3.10 3.12 3.13")
    for interpreter in others:
        print(f"-- {interpreter}", flush=True)
        try:
            dist.build([interpreter])
        except headers.NoHeaders as reason:
            totals.skip(f"pythons: {interpreter.tag}", str(reason))
            continue
        pytest(test_environment(interpreter), ROOT / "tests" / "python", f"python {interpreter.tag}", totals, options)


def systems(totals: Totals, options: Options) -> None:
    """The wheels on an older Debian, and on an emulated aarch64."""
    build_current()
    pythons, _ = interpreters.select([old_systems.PYTHON])
    if pythons:
        dist.build(pythons, zig.ARCHITECTURES, [])
    folder = ROOT / "tests" / "wheels" / "systems"
    pytest(Path(sys.executable), folder, "systems", totals, options, hangs_after_s=OUTSIDE_S)


def again(totals: Totals, options: Options) -> None:
    """Every wheel and source distribution, built once more from another folder with another cache: the same bytes."""
    interpreter = current_interpreter()
    dist.build([interpreter], with_sdists=True)
    for second in rebuilt.in_another_folder(interpreter):
        first = DIST / second.name
        same = first.is_file() and first.read_bytes() == second.read_bytes()
        totals.check(same, f"again: {second} is not the same as {first}")


def containers(totals: Totals, options: Options) -> None:
    """cibuildwheel in an image made here, for the core and for a project of `hami new-plugin`; an image to run."""
    dist.build(local_image.newest_two(interpreters.find()[0]) or [current_interpreter()])
    folder = ROOT / "tests" / "wheels" / "containers"
    pytest(Path(sys.executable), folder, "containers", totals, options, hangs_after_s=OUTSIDE_S)


def edges(totals: Totals, options: Options) -> None:
    """The tests of plugins with the oldest and the newest version of what they are for."""
    interpreter = build_current()
    for plugin in plugin_wheels.folders():
        script = plugin / "tests" / "edges.py"
        if not script.is_file():
            continue
        print(f"-- {plugin.name}", flush=True)
        command = [interpreter.executable, script, "--find-links", DIST]
        result = subprocess.run(list(map(str, command)), env=environment(), check=False)
        totals.check(result.returncode == 0, f"edges: {plugin.name}, see above")


def links(compiler: str, sanitizer: str) -> bool:
    """Whether `compiler` is there with what it needs to link a program under `sanitizer` ("": none)."""
    if not shutil.which(compiler):
        return False
    flags = [f"-fsanitize={sanitizer}"] if sanitizer else []
    command = [compiler, "-x", "c++", "-", "-o", "/dev/null", *flags]
    return subprocess.run(command, input=b"int main() {}", capture_output=True, check=False).returncode == 0


def preset(name: str, compiler: str, sanitizer: str, packages: str, totals: Totals) -> None:
    """The C++ tests by one of the presets."""
    if not links(compiler, sanitizer):
        totals.skip(name, f"{compiler} links no such program here (Debian, Ubuntu: apt install {packages})")
        return
    folder = CACHE / "build" / name
    env = {**environment(), "PATH": zig.build_environment()["PATH"]}
    with step(f"compiling the C++ tests by preset {name}"):
        run(["cmake", "--preset", name, "-B", folder], log=f"{name}-configure", env=env, cwd=ROOT)
        run(["cmake", "--build", folder], log=f"{name}-build", env=env)
    doctest(folder / "tests" / "cpp" / "hami_tests", name, totals)


def dev(totals: Totals, options: Options) -> None:
    """The C++ tests by the system's compiler, with assertions."""
    preset("dev", "c++", "", "g++", totals)


def asan(totals: Totals, options: Options) -> None:
    """The C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer (zig links neither)."""
    preset("asan", "clang++", "address,undefined", "clang libclang-rt-14-dev", totals)


def tsan(totals: Totals, options: Options) -> None:
    """The C++ tests under ThreadSanitizer."""
    preset("tsan", "clang++", "thread", "clang libclang-rt-14-dev", totals)


ALWAYS = (layers, lint, ci, cpp, wheels, python, abi, installed, plugins)
WITH_ALL = (dev, asan, tsan, pythons, systems, edges, again)
ON_REQUEST = (containers,)
