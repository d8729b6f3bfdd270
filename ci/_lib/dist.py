"""Builds the wheels and source distributions of this checkout, and fills dist/ for `pip install --find-links`.

Finished files are kept in the cache until a source changes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path

from hami_build import build_requirements, headers, platforms, sbom, sdist, wheel_file, wheels, zig
from hami_build.interpreters import Interpreter, running
from hami_build.parallel import in_parallel
from hami_build.project import NOT_SOURCE, read
from hami_build.sources import WITHOUT
from hami_build.steps import Failure, environment, exclusive, run, step

from .environments import require_room
from .paths import CACHE, DIST, PACKAGING, REQUIREMENTS, ROOT, content_key, pinned, pyproject

FINISHED = CACHE / "wheels"
PLUGINS = ROOT / "hami-plugins"
CMAKE_PACKAGE = ROOT / "hami-core" / "cmake"
PURE = "any"
CORE_SOURCES = (
    *("pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE"),
    *(f"hami-core/{name}" for name in ("CMakeLists.txt", "cmake", "include", "python", "src")),
)
# What the files depend on, in addition to their sources.
TOOLS = [
    ROOT / "ci" / "_lib" / "dist.py",
    *(PACKAGING / f"{name}.py" for name in ("pep517", "platforms", "project", "sbom", "sdist", "sources")),
    *(PACKAGING / f"{name}.py" for name in ("wheel_file", "wheels")),
    REQUIREMENTS / "backend.txt",
]
NATIVE_TOOLS = [PACKAGING / "zig.cmake", REQUIREMENTS / "tools.txt", ROOT / "hami-core" / "include", CMAKE_PACKAGE]


def folders(asked: Sequence[str] = ()) -> list[Path]:
    """Return the folders of all plugins, or of the plugins that `asked` names."""
    found = {path.parent.name: path.parent for path in sorted(PLUGINS.glob("*/pyproject.toml"))}
    for name in asked:
        if name not in found:
            raise Failure(f'unknown plugin "{name}"; hami-plugins/ contains {", ".join(found)}')
    return [folder for name, folder in found.items() if not asked or name in asked]


def with_needed(plugin: str) -> list[Path]:
    """Return the folders of a plugin and of the plugins that it requires."""
    found, waiting = {}, folders([plugin])
    while waiting:
        folder = waiting.pop()
        found[folder.name] = folder
        names = names_of(pyproject(folder)["project"]["dependencies"])
        waiting += [other for other in folders() if other.name in names - found.keys()]
    return list(found.values())


def installed_with(plugin: Path) -> set[str]:
    """Return the names of the packages that the tests of a plugin need, directly or through plugins of ours."""
    project = pyproject(plugin)["project"]
    own = names_of([*project["dependencies"], *project.get("optional-dependencies", {}).get("test", [])])
    needed = [folder for other in folders() if other.name in own for folder in with_needed(other.name)]
    return own.union(*(names_of(pyproject(folder)["project"]["dependencies"]) for folder in needed))


def names_of(requirements: Iterable[str]) -> set[str]:
    """Return the canonical names of the packages that are required."""
    from packaging.requirements import Requirement  # of the environments in the cache
    from packaging.utils import canonicalize_name

    return {canonicalize_name(Requirement(text).name) for text in requirements}


def is_native(project: Path) -> bool:
    return read(project).is_native


# ---- finished files ----


def sources(project: Path) -> list[Path]:
    """Return the files for the source distribution of this project: a plugin's folder, or the checkout for the core.

    Only files that git tracks: other files in the release manager's folder must not be published.
    """
    if project != ROOT:
        return sdist.tracked(project)
    rules = pyproject(ROOT)["tool"]["scikit-build"]["sdist"]["exclude"]
    included = [ROOT / rule.removeprefix("!/") for rule in rules if rule.startswith("!/")]
    return [file for file in sdist.tracked(ROOT) if any(map(file.is_relative_to, included))]


@cache
def key_of(project: Path) -> str:
    """Return the start of the names under which the wheels of a project are kept."""
    own = [ROOT / name for name in CORE_SOURCES] if project == ROOT else [project]
    inputs = [*own, *TOOLS, *(NATIVE_TOOLS if is_native(project) else ())]
    return f"{read(project).module}-{content_key(inputs, zig.GLIBC, os.environ.get(WITHOUT, ''))}"


def sdist_name(project: Path) -> str:
    return f"{read(project).module}-sdist-{content_key([*TOOLS, *sources(project)], os.environ.get(WITHOUT, ''))}"


def kept(name: str, make: Callable[[Path], object]) -> Path:
    """Return the file that is kept under `name`; if there is none, `make` writes it into finished/ in a work folder."""
    folder, work = FINISHED / name, CACHE / "build" / f"{name}-work"
    with exclusive(name):
        if not folder.is_dir():
            shutil.rmtree(work, ignore_errors=True)
            make(work)
            folder.parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / "finished", folder)  # an interrupted build leaves no incomplete files
            shutil.rmtree(work)
    return next(folder.iterdir())


def build_sdist(project: Path) -> Path:
    """Build the source distribution of `project`, for `pip install --no-binary`; it includes the tests."""
    name = sdist_name(project)
    backend = read(project).backend
    return kept(name, lambda work: sdist.of_files(project, sources(project), work, backend, name, work / "finished"))


def build_plugin(plugin: Path, platform: str) -> Path:
    """Build the wheel of a plugin: for PURE, or for an architecture."""
    aims = [] if platform == PURE else [platforms.parse(f"manylinux2014_{platform}")]
    return kept(
        f"{key_of(plugin)}-{platform}",
        lambda work: wheels.build(plugin, aims, work / "finished", cmake_dir=CMAKE_PACKAGE),
    )


def build_target(target: str, title: str, architecture: str = zig.HOST) -> Path:
    """Compile one target of the core as it is released, without Python, and return the build folder, which is kept."""
    aim, folder = zig.target(architecture), CACHE / "build" / f"core-{architecture}"
    command = [
        *("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja"),
        *(f"-DCMAKE_TOOLCHAIN_FILE={zig.TOOLCHAIN}", f"-DHAMI_ZIG_TARGET={aim}", "-DCMAKE_BUILD_TYPE=Release"),
        *("-DHAMI_PYTHON=OFF", "-DHAMI_TESTS=ON", "-DHAMI_SYSTEM_DOCTEST=OFF", "-DHAMI_WERROR=ON"),
        "-DCMAKE_UNITY_BUILD=ON",  # compiles in half the time; the preset `dev` compiles each file alone
    ]
    with exclusive(f"core-{architecture}"), step(title):
        zig.warm_up(aim)
        run(command, log=f"core-configure-{architecture}", env=zig.build_environment(aim))
        build = ["cmake", "--build", folder, "--target", target]
        run(build, log=f"build-{target}-{architecture}", env=zig.build_environment(aim))
    return folder


def build_core(interpreter: Interpreter, architecture: str = zig.HOST) -> Path:
    """Build the wheel of the core for `interpreter` on `architecture`, around the static core of the architecture."""
    platform = platforms.parse(f"manylinux2014_{architecture}")
    variant = f"{interpreter.tag}-{'.'.join(map(str, interpreter.version))}-{architecture}"

    def make(work: Path) -> None:
        static = build_target("hami_core", f"compiling the core for {architecture}", architecture)
        project = read(ROOT)
        core = static / "hami-core" / "libhami_core.a"
        other = interpreter != running()
        wheel = wheels.compile_wheel(
            ROOT,
            work / "raw",
            f"wheel-{variant}",
            platform,
            python=interpreter,
            backends=build_requirements.linked(project, interpreter, work / "backends") if other else None,
            build_folder=CACHE / "build" / variant,
            define={"HAMI_CORE_LIBRARY": core, **wheels.cmake_packages(project, CMAKE_PACKAGE)},
        )
        inside = [sbom.pybind11(pinned("pybind11")), sbom.cxx_library(zig.cxx_library_version())]
        wheel_file.finish(wheel, work / "finished", platform.tags, inside)

    return kept(f"{key_of(ROOT)}-{variant}", make)


# ---- dist/ ----


def build(
    interpreters: Sequence[Interpreter],
    architectures: Sequence[str] = (zig.HOST,),
    plugins: Sequence[Path] | None = None,
    *,
    with_sdists: bool = False,
) -> tuple[list[Path], list[str]]:
    """Build the core for `interpreters`, and `plugins` (None: all); return the files in dist/ and skipped Pythons."""
    plugins = folders() if plugins is None else plugins
    buildable, skipped = with_headers(interpreters)
    if skipped and not buildable:
        raise headers.NoHeaders("\n".join(["hami-core could be built for no Python:", *skipped]))
    jobs: dict[str, Callable[[], Path]] = {}
    for architecture in architectures:
        for each in buildable:
            jobs[f"{each.tag} {architecture}"] = partial(build_core, each, architecture)
    for plugin in plugins:
        for platform in architectures if is_native(plugin) else [PURE]:
            jobs[f"{plugin.name} {platform}"] = partial(build_plugin, plugin, platform)
    for project in [*([ROOT] if interpreters else []), *plugins] if with_sdists else ():
        jobs[f"{read(project).name} sdist"] = partial(build_sdist, project)
    with exclusive("dist"):
        require_room(CACHE, room_needed(len(interpreters), architectures))
        in_parallel("building", jobs)
        return collect(), skipped


def room_needed(pythons: int, architectures: Sequence[str]) -> int:
    """Return the megabytes needed. Measured: 60 for the libraries of a target, 12 for a static core, 14 per Python."""
    cold = [architecture for architecture in architectures if not zig.is_warm(zig.target(architecture))]
    return 50 + 100 * len(cold) + (20 * pythons + 20) * len(architectures)


def with_headers(interpreters: Sequence[Interpreter]) -> tuple[list[Interpreter], list[str]]:
    """Return the interpreters with headers, and for each of the others the reason why nothing can be built for it."""
    buildable, skipped = [], []
    for interpreter in interpreters:
        try:
            headers.include_folder(interpreter)
            buildable.append(interpreter)
        except headers.NoHeaders as reason:
            skipped.append(str(reason))
    return buildable, skipped


def collect() -> list[Path]:
    """Make dist/ contain exactly the files of the current sources, and remove outdated files from the cache.

    Files of earlier runs for other Pythons stay, as their sources are the same.
    """
    projects = (ROOT, *folders())
    current = (*(f"{key_of(project)}-" for project in projects), *map(sdist_name, projects))
    for outdated in (folder for folder in FINISHED.glob("*") if not folder.name.startswith(current)):
        shutil.rmtree(outdated)
    files = sorted(FINISHED.glob("*/*"), key=lambda file: file.name)
    DIST.mkdir(exist_ok=True)
    for old in archives():
        if old.name not in {file.name for file in files}:
            old.unlink()
    return [publish(file) for file in files]


def publish(file: Path) -> Path:
    """Copy `file` into dist/ in one step, unless it is there: other processes may be installing from dist/."""
    target = DIST / file.name
    same = target.is_file() and target.stat().st_mtime_ns == file.stat().st_mtime_ns
    if not same or target.stat().st_size != file.stat().st_size:
        work = DIST / f".{file.name}.work"
        shutil.copy2(file, work)
        os.replace(work, target)
    return target


def archives() -> list[Path]:
    """Return the wheels and source distributions in dist/."""
    return sorted([*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")])


def what_to_do(files: Sequence[Path]) -> str:
    """Return how to install from dist/, or how to build the core if dist/ has none, as after a run for one plugin."""
    if any(file.name.startswith("hami_core-") and file.suffix == ".whl" for file in files):
        return f"pip install --find-links {DIST} hami-core"
    return f"{DIST.name}/ has no hami-core of these sources: ci/wheels --python current builds it"


def in_another_folder(interpreter: Interpreter) -> list[Path]:
    """Build every file again, from a copy of the checkout in another folder, to compare the bytes; return the files."""
    place = CACHE / "another" / "place"
    shutil.rmtree(place.parent, ignore_errors=True)
    checkout, second = place / "checkout", place / "cache"
    ignored = [pattern for pattern in NOT_SOURCE if pattern != ".git"]
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns("wheelhouse", *ignored))
    for shared in ("envs/tools", f"zig/{zig.TARGET}", "sources"):  # none of it is built from the checkout
        (second / shared).parent.mkdir(parents=True, exist_ok=True)
        (second / shared).symlink_to(CACHE / shared)
    python = second / "envs" / "tools" / "bin" / "python"
    command = [python, checkout / "ci" / "wheels", "--python", interpreter.executable, "--sdist"]
    with step("building everything from another folder"):
        env = environment(HAMI_CACHE=str(second), CCACHE_DISABLE="1")  # every file is compiled
        run(command, log="another-folder", env=env, cwd=Path(os.sep))
    return sorted((checkout / "dist").iterdir())
