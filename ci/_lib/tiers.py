"""The tiers of ci/test: each runs its tests and adds what it found to the totals.

They are defined in the order in which they start: long ones first, and first of all those that build the wheels.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hami_build import development, headers, interpreters, project, sanitizers, zig
from hami_build.steps import Failure, environment, run, step

from . import dist, environments, in_place, other_systems, wheel_env
from .affected import SMOKE_FILES
from .checkout import known_files
from .paths import CACHE, DIST, REQUIREMENTS, ROOT, pyproject
from .runners import Totals, doctest, pytest

Work = Callable[[Totals, Sequence[str]], None]  # the totals, and arguments for pytest
OUTSIDE_S = 7200  # limit for a test that waits for downloads, or for another system that is made and compiles
# Grammar, limits of configurations, pictures and pages do not depend on the CPython version: on the newest one only.
OF_NO_PYTHON = (
    "test_config_limits.py",
    "test_docs.py",
    "test_parser_differential.py",
    "test_pictures.py",
    "test_versions_property.py",
)
EDGES = {"hami-ocr": "rapidocr", "hami-openvino": "openvino"}  # plugins that use internals of a library
NOT_FREE_THREADED = {"opencv-python-headless"}  # packages without wheels for free-threaded CPython, 30 November 2026
ALWAYS, WITHOUT_ALL, WITH_ALL, ON_REQUEST = "*", "-", "+", " "


@dataclass(frozen=True)
class Tier:
    run: Work
    when: str
    doc: str


TIERS: dict[str, Tier] = {}


def tier(when: str) -> Callable[[Work], Work]:
    """Register a function as the tier of its name."""

    def register(work: Work) -> Work:
        TIERS[work.__name__.replace("_", "-")] = Tier(work, when, work.__doc__ or "")
        return work

    return register


# ---- what the tests run on ----


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


def own_requirements(plugin: Path) -> Path | None:
    """Return the requirements file of a plugin that needs a download of hundreds of megabytes, such as an engine."""
    path = REQUIREMENTS / f"{plugin.name}.txt"
    return path if path.is_file() else None


def test_environment(interpreter: interpreters.Interpreter) -> Path:
    """Return an environment with our wheels and what their tests need, without plugins that have their own."""
    folders = [plugin for plugin in dist.folders() if not own_requirements(plugin)]
    if interpreter.free_threaded:
        folders = [plugin for plugin in folders if not dist.installed_with(plugin) & NOT_FREE_THREADED]
    plugins = [f"{plugin.name}[test]" for plugin in folders]
    # gevent and others have no wheels for free-threaded CPython.
    files = ["tests.txt"] if interpreter.free_threaded else ["tests.txt", "event-loops.txt", "trust.txt", "web.txt"]
    others = [part for file in files for part in ("-r", str(REQUIREMENTS / file))]
    return wheel_env.ensure("test", interpreter, ["hami-core", *plugins], others)


def plugin_environment(plugin: Path, interpreter: interpreters.Interpreter) -> Path:
    """Return the environment for the tests of a plugin: its own if it has a requirements file."""
    requirements = own_requirements(plugin)
    if not requirements:
        return test_environment(interpreter)
    return wheel_env.ensure(plugin.name, interpreter, [f"{plugin.name}[test]"], ["-r", str(requirements)])


def suite(name: str, folder: str, totals: Totals, options: Sequence[str]) -> None:
    """Run tests against the installed wheels; those that compile something use the compiler of the wheels."""
    env = environment() if name == "python" else zig.build_environment()
    pytest(test_environment(build_current()), [ROOT / folder], name, totals, options, env)


def edges_of(plugin: Path, library: str) -> dict[str, str]:
    """Return what to install for the oldest and for the newest version of a library that a plugin accepts."""
    from packaging.requirements import Requirement  # of the tools' environment

    declared = map(Requirement, pyproject(plugin)["project"]["dependencies"])
    needed = next(requirement for requirement in declared if requirement.name == library)
    oldest = next(bound.version for bound in needed.specifier if bound.operator == ">=")
    return {"oldest": f"{library}=={oldest}", "newest": str(needed)}


def version_in(python: Path, distribution: str) -> str:
    """Return the version of a distribution in an environment."""
    code = f"import importlib.metadata; print(importlib.metadata.version({distribution!r}))"
    return run([python, "-c", code], log=f"version-{distribution}").strip()


def links(compiler: str, sanitizer: str) -> bool:
    """Return whether `compiler` is installed and links a program with `sanitizer` ("": none)."""
    if not shutil.which(compiler):
        return False
    flags = [f"-fsanitize={sanitizer}"] if sanitizer else []
    command = [compiler, "-x", "c++", "-", "-o", "/dev/null", *flags]
    return subprocess.run(command, input=b"int main() {}", capture_output=True, check=False).returncode == 0


def build_preset(name: str, target: str, *options: str) -> Path:
    """Build one target by a preset of CMakePresets.json, with more options of cmake; returns the build folder."""
    folder = CACHE / "build" / name
    env = environment(PATH=development.search_path())
    # Tests that run at the same time get the processors first.
    build = ["nice", "-n", "5", "cmake", "--build", folder, "--target", target]
    with step(f"compiling by preset {name}"):
        # No debugger runs here, and nothing compiles twice: less for a debugger and fewer, larger files compile faster.
        settings = ["-DCMAKE_CXX_FLAGS_DEBUG=-g1", "-DCMAKE_UNITY_BUILD=ON", *development.launcher_settings(), *options]
        run(["cmake", "--preset", name, "-B", folder, *settings], log=f"{name}-configure", env=env, cwd=ROOT)
        run(build, log=f"{name}-build", env=env)
    return folder


def preset(name: str, compiler: str, sanitizer: str, packages: str, totals: Totals, options: Sequence[str]) -> None:
    """Run the C++ tests of a preset."""
    if not links(compiler, sanitizer):
        reason = f"{compiler} is missing or cannot link such a program (Debian, Ubuntu: apt install {packages})"
        totals.skip(name, reason)
        return
    doctest(build_preset(name, "hami_tests") / "tests" / "cpp" / "hami_tests", name, totals)


def shows_its_locks(python: Path) -> bool:
    """Return whether ThreadSanitizer sees the locks of a free-threaded Python, which take the place of the GIL."""
    code = "import sysconfig; print(sysconfig.get_config_var('CONFIG_ARGS'))"
    return "--with-thread-sanitizer" in run([python, "-c", code], log="config-args")


def stress(
    name: str, sanitizer: in_place.Sanitizer, totals: Totals, options: Sequence[str], python: Path | None = None
) -> None:
    """Run the stress test in Python under a sanitizer; in the environment of ci/check, unless another is given."""
    if not links(in_place.SANITIZED_BY, sanitizer.flags):
        totals.skip(name, "g++ is missing or cannot link such a program (Debian, Ubuntu: apt install g++)")
        return
    python = python or environments.ensure("check")
    env = in_place.sanitized_environment(sanitizer, python)
    if reason := in_place.why_unusable(python, env):
        totals.skip(name, f"Python does not start under the sanitizer: {reason}")
        return
    reports = (*options, "--capture=sys")  # the sanitizer writes to the standard error
    pytest(python, [ROOT / "tests" / "python" / "test_stress.py"], name, totals, reports, env)


def under_asan(
    plugin: Path, sanitizer: sanitizers.Sanitizer, python: Path, totals: Totals, options: Sequence[str] = ()
) -> None:
    """Compile a native plugin under AddressSanitizer and run its tests."""
    work = CACHE / "build" / f"asan-{plugin.name}"
    with step(f"compiling {plugin.name} under AddressSanitizer"):
        site = sanitizers.build(project.read(plugin), work, dist.CMAKE_PACKAGE, sanitizer)
    env = environment(PYTHONPATH=str(site), **sanitizer.variables())
    reports = (*options, "--capture=sys")  # the sanitizer writes to the standard error and ends all
    pytest(python, [plugin / "tests"], f"{plugin.name} asan", totals, reports, env)


# ---- the tiers ----


@tier(ALWAYS)
def plugins(totals: Totals, options: Sequence[str]) -> None:
    """The tests of each plugin against the installed wheels."""
    interpreter = build_current()
    for plugin in dist.folders():
        print(f"-- {plugin.name}", flush=True)
        pytest(plugin_environment(plugin, interpreter), [plugin / "tests"], plugin.name, totals, options)


@tier(WITH_ALL)
def plugins_asan(totals: Totals, options: Sequence[str]) -> None:
    """The tests of native plugins, compiled under AddressSanitizer and UndefinedBehaviorSanitizer."""
    sanitizer = sanitizers.find()
    if sanitizer is None:
        totals.skip("plugins-asan", f"no runtime of AddressSanitizer; install {sanitizers.PACKAGES}")
        return
    interpreter = build_current()
    for plugin in filter(dist.is_native, dist.folders()):
        print(f"-- {plugin.name}", flush=True)
        under_asan(plugin, sanitizer, plugin_environment(plugin, interpreter), totals, options)


CLANG = "clang libclang-rt-14-dev"
TIERS["asan"] = Tier(
    partial(preset, "asan", "clang++", "address,undefined", CLANG),
    WITH_ALL,
    "The C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer, and clang's analysis of thread safety.",
)
TIERS["tsan"] = Tier(
    partial(preset, "tsan", "clang++", "thread", CLANG), WITH_ALL, "The C++ tests under ThreadSanitizer."
)


@tier(WITH_ALL)
def pythons(totals: Totals, options: Sequence[str]) -> None:
    """The Python tests on the oldest and the newest CPython found, the smoke tests on those between."""
    found, passed_over = interpreters.find()
    for reason in passed_over:
        totals.skip("pythons", reason)
    found = found or [current_interpreter()]
    if len(found) == 1:
        totals.skip("pythons", f"no CPython except {found[0].tag} is found here; uv python install 3.10 3.12 3.13")
    for interpreter in found:
        between = interpreter not in (found[0], found[-1])
        print(f"-- {interpreter}{', smoke tests' if between else ''}", flush=True)
        try:
            dist.build([interpreter])
        except headers.NoHeaders as reason:
            totals.skip(f"pythons: {interpreter.tag}", str(reason))
            continue
        tests = [ROOT / file for file in SMOKE_FILES] if between else [ROOT / "tests" / "python"]
        left_out = [] if interpreter == found[-1] else [f"--ignore=tests/python/{file}" for file in OF_NO_PYTHON]
        pytest(test_environment(interpreter), tests, f"python {interpreter.tag}", totals, [*options, *left_out])


@tier(WITH_ALL)
def serving(totals: Totals, options: Sequence[str]) -> None:
    """hami-serve with Ray Serve and other systems; ci/requirements/serving-NAME.txt is the environment of each."""
    interpreter = build_current()
    env = environment(
        RAY_USAGE_STATS_ENABLED="0",
        RAY_AUTH_MODE="disabled",  # else Ray writes a token into the home folder
        RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S="60",  # on a machine with other tiers
        RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S="60",
    )
    quiet = (*options, "-W", "ignore")  # the other systems give warnings
    for test in sorted((ROOT / "hami-plugins/hami-serve/tests/conformance").glob("test_*.py")):
        name = f"serving-{test.stem.removeprefix('test_')}"
        print(f"-- {name}", flush=True)
        python = wheel_env.ensure(name, interpreter, ["hami-serve[test]"], ["-r", str(REQUIREMENTS / f"{name}.txt")])
        pytest(python, [test], name, totals, quiet, env)
        if name == "serving-ray" and not options:
            document, chosen = ROOT / "tests" / "python" / "test_docs.py", ("-k", "scale-out-with-ray")
            pytest(python, [document], f"{name} document", totals, (*quiet, *chosen), env)


@tier(ALWAYS)
def wheels(totals: Totals, options: Sequence[str]) -> None:
    """The wheels for the running Python pass the audit and install in every way that the guides describe."""
    from . import audit

    interpreter = build_current()
    for finding in audit.findings(wheel_env.usable(interpreter)):
        if not finding.passed:
            print(finding)
        totals.check(finding.passed, f"wheels: {finding}")
    # The tier `pythons` may add wheels for other CPythons to dist/ while this runs.
    env = environment(HAMI_TEST_TAGS=interpreter.tag)
    folder = ROOT / "tests" / "wheels" / "matrix"
    pytest(Path(sys.executable), [folder], "wheels", totals, options, env, hangs_after_s=OUTSIDE_S)


TIERS["python"] = Tier(
    partial(suite, "python", "tests/python"), WITHOUT_ALL, "The Python tests on the running Python (see pythons)."
)


@tier(WITH_ALL)
def systems(totals: Totals, options: Sequence[str]) -> None:
    """The wheels on an older Debian and on an emulated aarch64."""
    build_current()
    pythons, _ = interpreters.select([other_systems.PYTHON])
    if pythons:
        dist.build(pythons, zig.ARCHITECTURES, [])
    folder = ROOT / "tests" / "wheels" / "systems"
    pytest(Path(sys.executable), [folder], "systems", totals, options, hangs_after_s=OUTSIDE_S)


@tier(WITH_ALL)
def again(totals: Totals, options: Sequence[str]) -> None:
    """Every wheel and source distribution, built again in another folder, has the same bytes."""
    interpreter = current_interpreter()
    dist.build([interpreter], with_sdists=True)
    for second in dist.in_another_folder(interpreter):
        first = DIST / second.name
        same = first.is_file() and first.read_bytes() == second.read_bytes()
        totals.check(same, f"again: {second} is not the same as {first}")


TIERS["abi"] = Tier(
    partial(suite, "abi", "tests/abi"),
    ALWAYS,
    "Native plugins, built by g++ and by the compiler of the wheels, against the installed wheels.",
)


@tier(ALWAYS)
def ci(totals: Totals, options: Sequence[str]) -> None:
    """The tests of the commands in ci/."""
    zig.warm_up()
    pytest(Path(sys.executable), [ROOT / "tests" / "ci"], "ci", totals, options)


TIERS["installed"] = Tier(
    partial(suite, "installed", "tests/plugins"),
    ALWAYS,
    "Small plugins, correct and faulty, built by pip and installed into temporary environments.",
)


for name, each in (("python-tsan", in_place.THREAD), ("python-asan", in_place.ADDRESS)):
    doc = f"The stress test in Python, with the core compiled with -fsanitize={each.flags}."
    TIERS[name] = Tier(partial(stress, name, each), WITH_ALL, doc)


@tier(WITH_ALL)
def edges(totals: Totals, options: Sequence[str]) -> None:
    """The tests of plugins with the oldest and the newest version of their library, if `plugins` has another."""
    interpreter = build_current()
    for name, library in EDGES.items():
        (plugin,) = dist.folders([name])
        tested = {version_in(plugin_environment(plugin, interpreter), library)}
        for edge, requirement in edges_of(plugin, library).items():
            python = wheel_env.ensure(f"{name}-{edge}", interpreter, [f"{name}[test]"], [requirement])
            used = version_in(python, library)
            print(f"-- {name}, {edge}: {library} {used}{', tested already' if used in tested else ''}", flush=True)
            if used not in tested:
                tested.add(used)
                pytest(python, [plugin / "tests"], f"{name} with {library} {used}", totals, options)


@tier(ALWAYS)
def cpp(totals: Totals, options: Sequence[str]) -> None:
    """The C++ unit tests, with the compiler and flags of the wheels."""
    folder = dist.build_target("hami_tests", "compiling the C++ tests")
    doctest(folder / "tests" / "cpp" / "hami_tests", "cpp", totals)


# ci/check compiles and runs them so too, and asan and tsan run them with assertions.
TIERS["dev"] = Tier(
    partial(preset, "dev", "c++", "", "g++"), ON_REQUEST, "The C++ tests with the system's compiler and assertions."
)


@tier(ALWAYS)
def types(totals: Totals, options: Sequence[str]) -> None:
    """mypy and pyright over core, plugins, what `hami new-plugin` writes, and the Python blocks of the documents."""
    from . import type_checks

    for name, passed in type_checks.run_all(environments.ensure("check")).items():
        totals.check(passed, f"types: {name}, see above")


@tier(WITH_ALL)
def docs(totals: Totals, options: Sequence[str]) -> None:
    """The documentation site builds without a warning, and loads nothing from other hosts."""
    from . import site

    site.check(totals)


@tier(ALWAYS)
def lint(totals: Totals, options: Sequence[str]) -> None:
    """Linters, formatters, layers, spelling, prose, and the types of ci/ and the package."""
    from .check_steps import hooks

    totals.check(hooks(environments.ensure("check"), files=known_files(ROOT))[0], "lint: see above")


@tier(ON_REQUEST)
def free_threaded(totals: Totals, options: Sequence[str]) -> None:
    """The Python tests, the stress test under ThreadSanitizer, and callers in parallel, on free-threaded CPython."""
    found = [interpreter for interpreter in interpreters.find()[0] if interpreter.free_threaded]
    if not found:
        totals.skip("free-threaded", "no free-threaded CPython is found here; uv python install 3.14t")
        return
    interpreter = found[-1]
    dist.build([interpreter])
    python, name = test_environment(interpreter), f"python {interpreter.tag}"
    pytest(python, [ROOT / "tests" / "python"], name, totals, options, environment(HAMI_STRESS_THREADS="16"))
    if shows_its_locks(interpreter.executable):
        tools = environments.ensure("free-threaded", str(interpreter.executable))
        stress(f"{name} tsan", in_place.THREAD, totals, options, tools)
    else:
        totals.skip(f"{name} tsan", f"{interpreter.executable} is not configured --with-thread-sanitizer")
    program = ROOT / "tests" / "reliability" / "free_threaded.py"
    ended = subprocess.run([python, program, "--strict"], check=False).returncode
    totals.check(ended == 0, f"{name}: {program.name}, see above")


@tier(ON_REQUEST)
def containers(totals: Totals, options: Sequence[str]) -> None:
    """cibuildwheel in a local image, for the core and for a project of `hami new-plugin`; a runtime image."""
    dist.build(other_systems.newest_two(interpreters.find()[0]) or [current_interpreter()])
    folder = ROOT / "tests" / "wheels" / "containers"
    pytest(Path(sys.executable), [folder], "containers", totals, options, hangs_after_s=OUTSIDE_S)


@tier(ON_REQUEST)
def coverage(totals: Totals, options: Sequence[str]) -> None:
    """Line coverage of core, package and plugins, written to tests/coverage.md; the core needs 90 %."""
    from . import coverage_report

    coverage_report.measure(totals)
