"""The tiers of ci/test: each runs its tests and adds what it found to the totals."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from hami_build import headers, interpreters, project, sanitizers, zig
from hami_build.steps import Failure, environment, run, step

from . import (
    core_wheel,
    dist,
    environments,
    local_image,
    old_systems,
    plugin_wheels,
    rebuilt,
    sanitized_core,
    static,
    wheel_env,
)
from .affected import SMOKE_FILES
from .checkout import known_files
from .paths import CACHE, DIST, REQUIREMENTS, ROOT
from .runners import Options, doctest, pytest
from .totals import Totals

Tier = Callable[[Totals, Options], None]
SERVING_S = 600  # limit for a test that starts another server
OUTSIDE_S = 7200  # limit for a test that waits for downloads, or for another system that is made and compiles


def current_interpreter() -> interpreters.Interpreter:
    found = interpreters.running()
    if isinstance(found, str):
        raise Failure(f"nothing can be built for {found}")
    return found


def build_current() -> interpreters.Interpreter:
    """Build the wheels for the running Python into dist/."""
    interpreter = current_interpreter()
    dist.build([interpreter])
    return interpreter


def test_environment(interpreter: interpreters.Interpreter) -> Path:
    """Return an environment with our wheels and what their tests need, without plugins that have their own."""
    plugins = [f"{plugin.name}[test]" for plugin in plugin_wheels.folders() if not own_requirements(plugin)]
    # gevent and others have no wheels for free-threaded CPython.
    files = ["tests.txt"] if interpreter.free_threaded else ["tests.txt", "event-loops.txt", "trust.txt", "web.txt"]
    others = [part for file in files for part in ("-r", str(REQUIREMENTS / file))]
    return wheel_env.ensure("test", interpreter, ["hami-core[rich]", *plugins], others)


def plugin_environment(plugin: Path, interpreter: interpreters.Interpreter) -> Path:
    """Return the environment for the tests of a plugin: its own if it has a requirements file."""
    requirements = own_requirements(plugin)
    if not requirements:
        return test_environment(interpreter)
    return wheel_env.ensure(plugin.name, interpreter, [f"{plugin.name}[test]"], ["-r", str(requirements)])


def own_requirements(plugin: Path) -> Path | None:
    """Return the requirements file of a plugin that needs a download of hundreds of megabytes, such as an engine."""
    path = REQUIREMENTS / f"{plugin.name}.txt"
    return path if path.is_file() else None


def lint(totals: Totals, options: Options) -> None:
    """Linters, formatters, layers, spelling, prose, and the types of ci/ and the package."""
    python = environments.ensure("check")
    totals.check(static.run(python, files=known_files(ROOT)).returncode == 0, "lint: see above")


def ci(totals: Totals, options: Options) -> None:
    """The tests of the commands in ci/."""
    zig.warm_up()
    pytest(Path(sys.executable), [ROOT / "tests" / "ci"], "ci", totals, options)


def cpp(totals: Totals, options: Options) -> None:
    """The C++ unit tests, with the compiler and flags of the wheels."""
    folder = core_wheel.build_target("hami_tests", "compiling the C++ tests")
    doctest(folder / "tests" / "cpp" / "hami_tests", "cpp", totals)


def wheels(totals: Totals, options: Options) -> None:
    """The wheels for the running Python pass the audit and install in every way that the guides describe."""
    interpreter = build_current()
    for finding in dist.findings(wheel_env.usable(interpreter)):
        if not finding.passed:
            print(finding)
        totals.check(finding.passed, f"wheels: {finding}")
    folder = ROOT / "tests" / "wheels" / "matrix"
    # The tier `pythons` may add wheels for other CPythons to dist/ while this runs.
    env = environment(HAMI_TEST_TAGS=interpreter.tag)
    pytest(Path(sys.executable), [folder], "wheels", totals, options, env, hangs_after_s=OUTSIDE_S)


def python(totals: Totals, options: Options) -> None:
    """The Python tests against the installed wheels."""
    pytest(test_environment(build_current()), [ROOT / "tests" / "python"], "python", totals, options)


def abi(totals: Totals, options: Options) -> None:
    """Native plugins, built by g++ and by the compiler of the wheels, against the installed wheels."""
    installed = test_environment(build_current())
    zig.warm_up()
    pytest(installed, [ROOT / "tests" / "abi"], "abi", totals, options, zig.build_environment())


def installed(totals: Totals, options: Options) -> None:
    """Small plugins, correct and faulty, built by pip and installed into temporary environments."""
    installed = test_environment(build_current())
    zig.warm_up()
    pytest(installed, [ROOT / "tests" / "plugins"], "installed", totals, options, zig.build_environment())


def plugins(totals: Totals, options: Options) -> None:
    """The tests of each plugin against the installed wheels."""
    interpreter = build_current()
    for plugin in plugin_wheels.folders():
        print(f"-- {plugin.name}", flush=True)
        pytest(plugin_environment(plugin, interpreter), [plugin / "tests"], plugin.name, totals, options)


def serving(totals: Totals, options: Options) -> None:
    """hami-serve with Ray Serve and other systems; ci/requirements/serving-NAME.txt is the environment of each."""
    interpreter = build_current()
    tests = ROOT / "hami-plugins" / "hami-serve" / "tests" / "conformance"
    env = environment(
        RAY_USAGE_STATS_ENABLED="0",
        RAY_AUTH_MODE="disabled",  # else Ray writes a token into the home folder
        RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S="60",  # on a machine with other tiers
        RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S="60",
    )
    for test in sorted(tests.glob("test_*.py")):
        tier = f"serving-{test.stem.removeprefix('test_')}"
        print(f"-- {tier}", flush=True)
        python = wheel_env.ensure(tier, interpreter, ["hami-serve[test]"], ["-r", str(REQUIREMENTS / f"{tier}.txt")])
        quiet = Options((*options.pytest, "-W", "ignore"))  # the other systems give warnings
        pytest(python, [test], tier, totals, quiet, env, hangs_after_s=SERVING_S)
        if tier == "serving-ray" and not options.pytest:
            document = [ROOT / "tests" / "python" / "test_docs.py"]
            quiet = Options((*quiet.pytest, "-k", "scale-out-with-ray"))
            pytest(python, document, f"{tier} document", totals, quiet, env, hangs_after_s=SERVING_S)


def pythons(totals: Totals, options: Options) -> None:
    """The Python tests on the oldest and the newest CPython found, the smoke tests on those between."""
    current = current_interpreter()
    found, passed_over = interpreters.find()
    for reason in passed_over:
        totals.skip("pythons", reason)
    others = [interpreter for interpreter in found if interpreter.tag != current.tag]
    if not others:
        totals.skip("pythons", f"no CPython except {current.tag} is found here; uv python install 3.10 3.12 3.13")
    smoke = [ROOT / file for file in SMOKE_FILES]
    for interpreter in others:
        between = interpreter not in (found[0], found[-1])
        print(f"-- {interpreter}{', smoke tests' if between else ''}", flush=True)
        try:
            dist.build([interpreter])
        except headers.NoHeaders as reason:
            totals.skip(f"pythons: {interpreter.tag}", str(reason))
            continue
        tests = smoke if between else [ROOT / "tests" / "python"]
        pytest(test_environment(interpreter), tests, f"python {interpreter.tag}", totals, options)


def systems(totals: Totals, options: Options) -> None:
    """The wheels on an older Debian and on an emulated aarch64."""
    build_current()
    pythons, _ = interpreters.select([old_systems.PYTHON])
    if pythons:
        dist.build(pythons, zig.ARCHITECTURES, [])
    folder = ROOT / "tests" / "wheels" / "systems"
    pytest(Path(sys.executable), [folder], "systems", totals, options, hangs_after_s=OUTSIDE_S)


def again(totals: Totals, options: Options) -> None:
    """Every wheel and source distribution, built again in another folder, has the same bytes."""
    interpreter = current_interpreter()
    dist.build([interpreter], with_sdists=True)
    for second in rebuilt.in_another_folder(interpreter):
        first = DIST / second.name
        same = first.is_file() and first.read_bytes() == second.read_bytes()
        totals.check(same, f"again: {second} is not the same as {first}")


def containers(totals: Totals, options: Options) -> None:
    """cibuildwheel in a local image, for the core and for a project of `hami new-plugin`; a runtime image."""
    dist.build(local_image.newest_two(interpreters.find()[0]) or [current_interpreter()])
    folder = ROOT / "tests" / "wheels" / "containers"
    pytest(Path(sys.executable), [folder], "containers", totals, options, hangs_after_s=OUTSIDE_S)


def edges(totals: Totals, options: Options) -> None:
    """The tests of plugins with the oldest and the newest version of their library, if `plugins` has another."""
    interpreter = build_current()
    for plugin in plugin_wheels.folders():
        script = plugin / "tests" / "edges.py"
        if not script.is_file():
            continue
        print(f"-- {plugin.name}", flush=True)
        command = [plugin_environment(plugin, interpreter), script, "--tested-here", "--find-links", DIST]
        result = subprocess.run(list(map(str, command)), env=environment(), check=False)
        totals.check(result.returncode == 0, f"edges: {plugin.name}, see above")


def links(compiler: str, sanitizer: str) -> bool:
    """Return whether `compiler` is installed and links a program with `sanitizer` ("": none)."""
    if not shutil.which(compiler):
        return False
    flags = [f"-fsanitize={sanitizer}"] if sanitizer else []
    command = [compiler, "-x", "c++", "-", "-o", "/dev/null", *flags]
    return subprocess.run(command, input=b"int main() {}", capture_output=True, check=False).returncode == 0


def preset(name: str, compiler: str, sanitizer: str, packages: str, totals: Totals) -> None:
    """Run the C++ tests of a preset."""
    if not links(compiler, sanitizer):
        totals.skip(
            name, f"{compiler} is missing or cannot link such a program (Debian, Ubuntu: apt install {packages})"
        )
        return
    folder = build_preset(name, "hami_tests")
    doctest(folder / "tests" / "cpp" / "hami_tests", name, totals)


def build_preset(name: str, target: str) -> Path:
    """Build one target by a preset of CMakePresets.json; returns the build folder."""
    folder = CACHE / "build" / name
    env = {**environment(), "PATH": zig.build_environment()["PATH"]}
    # Tests that run at the same time get the processors first.
    build = ["nice", "-n", "5", "cmake", "--build", folder, "--target", target]
    with step(f"compiling by preset {name}"):
        less = "-DCMAKE_CXX_FLAGS_DEBUG=-g1"  # no debugger runs here, and it compiles faster
        run(["cmake", "--preset", name, "-B", folder, less], log=f"{name}-configure", env=env, cwd=ROOT)
        run(build, log=f"{name}-build", env=env)
    return folder


def dev(totals: Totals, options: Options) -> None:
    """The C++ tests with the system's compiler and assertions."""
    preset("dev", "c++", "", "g++", totals)


def asan(totals: Totals, options: Options) -> None:
    """The C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer (zig links neither)."""
    preset("asan", "clang++", "address,undefined", "clang libclang-rt-14-dev", totals)


def plugins_asan(totals: Totals, options: Options) -> None:
    """The tests of native plugins, compiled under AddressSanitizer and UndefinedBehaviorSanitizer."""
    sanitizer = sanitizers.find()
    if sanitizer is None:
        totals.skip("plugins-asan", f"no runtime of AddressSanitizer; install {sanitizers.PACKAGES}")
        return
    interpreter = build_current()
    reports = Options((*options.pytest, "--capture=sys"))  # the sanitizer writes to the standard error and ends all
    for plugin in filter(plugin_wheels.is_native, plugin_wheels.folders()):
        print(f"-- {plugin.name}", flush=True)
        work = CACHE / "build" / f"asan-{plugin.name}"
        with step(f"compiling {plugin.name} under AddressSanitizer"):
            site = sanitizers.build(project.read(plugin), work, plugin_wheels.CMAKE_PACKAGE, sanitizer)
        env = environment(PYTHONPATH=str(site), **sanitizer.variables())
        tests = [plugin / "tests"]
        pytest(plugin_environment(plugin, interpreter), tests, f"{plugin.name} asan", totals, reports, env)


def python_asan(totals: Totals, options: Options) -> None:
    """The stress test in Python, with the core compiled under AddressSanitizer and UndefinedBehaviorSanitizer."""
    stress("python-asan", sanitized_core.ADDRESS, totals, options)


def python_tsan(totals: Totals, options: Options) -> None:
    """The stress test in Python, with the core compiled under ThreadSanitizer."""
    stress("python-tsan", sanitized_core.THREAD, totals, options)


def stress(name: str, sanitizer: sanitized_core.Sanitizer, totals: Totals, options: Options) -> None:
    """Run the stress test in Python under a sanitizer."""
    if not links(sanitized_core.COMPILER, sanitizer.flags):
        totals.skip(name, "g++ is missing or cannot link such a program (Debian, Ubuntu: apt install g++)")
        return
    python = environments.ensure("check")
    env = sanitized_core.test_environment(sanitizer, sanitized_core.build(sanitizer, python))
    if reason := sanitized_core.why_unusable(python, env):
        totals.skip(name, f"Python does not start under the sanitizer: {reason}")
        return
    reports = Options((*options.pytest, "--capture=sys"))  # the sanitizer writes to the standard error
    pytest(python, [sanitized_core.STRESS], name, totals, reports, env)


def tsan(totals: Totals, options: Options) -> None:
    """The C++ tests under ThreadSanitizer."""
    preset("tsan", "clang++", "thread", "clang libclang-rt-14-dev", totals)


def thread_safety(totals: Totals, options: Options) -> None:
    """The thread-safety annotations of the core hold: clang with -Wthread-safety, every warning an error."""
    if not shutil.which("clang++"):
        totals.skip("thread-safety", "clang++ is missing (Debian, Ubuntu: apt install clang)")
        return
    try:
        build_preset("thread-safety", "hami_core")
    except Failure as failure:
        print(failure, flush=True)
        totals.check(False, "thread-safety: see above")
        return
    totals.check(True, "thread-safety")


def types(totals: Totals, options: Options) -> None:
    """mypy and pyright over core, plugins, what `hami new-plugin` writes, and the Python blocks of the documents."""
    from . import type_checks

    for name, passed in type_checks.run_all(environments.ensure("check")).items():
        totals.check(passed, f"types: {name}, see above")


def docs(totals: Totals, options: Options) -> None:
    """The documentation site builds without a warning, and loads nothing from other hosts."""
    from .site import build

    build.check(totals)


def coverage(totals: Totals, options: Options) -> None:
    """Line coverage of the core, the package and the plugins, written to tests/coverage.md."""
    from . import coverage_report

    coverage_report.measure(totals)


ALWAYS = (lint, types, ci, cpp, wheels, python, abi, installed, plugins)
WITH_ALL = (
    *(dev, asan, plugins_asan, python_asan, tsan, python_tsan, thread_safety, docs, pythons, systems, edges, again),
    serving,
)
ON_REQUEST = (containers, coverage)
# Long tiers start first. The first one builds the wheels, which most tiers need.
START_ORDER = (
    *(plugins, asan, tsan, pythons, serving, wheels, python, systems, again, abi, ci, installed, plugins_asan),
    *(python_tsan, python_asan, edges, cpp),
    *(dev, types, thread_safety, docs, lint, containers, coverage),
)


def name_of(tier: Tier) -> str:
    """The name of a tier on the command line."""
    return tier.__name__.replace("_", "-")
