"""The development build: compiled modules inside the package folders, and metadata as if everything was installed.

No wheel is built and nothing is copied, so that a change of a Python file needs no step at all. Git ignores what is
written into the package folders, and wheels are built without it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from hami_build import development, headers, interpreters, project
from hami_build.development import compiler_settings, place
from hami_build.steps import Failure, environment, guarded, run, step
from packaging.utils import canonicalize_name

from . import dist
from .paths import CACHE, REQUIREMENTS, ROOT, SHARED_CCACHE, pyproject

# The name matters: tests that look at one folder of plugins take everything named so off the path.
SITE = CACHE / "in-place" / "site-packages"
BUILD = CACHE / "build" / "in-place"
FLAGS = "-O1 -g1"
PACKAGE = ROOT / "hami-core" / "python" / "hami"
PTH = "hami-in-place.pth"


def build(*targets: str, folder: Path = BUILD, flags: str = FLAGS, compiler: Sequence[str] | None = None) -> None:
    """Compile `targets` of the core; its module goes into the package folder."""
    compile_targets(targets, folder, flags, compiler_settings() if compiler is None else compiler)
    if "_core" in targets:
        place(module_in(folder), PACKAGE)


def compile_targets(targets: Sequence[str], folder: Path, flags: str, compiler: Sequence[str]) -> None:
    """Compile `targets` in a build folder of the core and its tests, configured once for each set of settings."""
    env = development.build_environment(**SHARED_CCACHE)
    command = configuration(folder, flags, compiler)
    settings, text = folder / "hami-settings", "\n".join(map(str, command))
    if not (settings.is_file() and settings.read_text("utf-8") == text):
        shutil.rmtree(folder, ignore_errors=True)
        with step("configuring the development build"):
            run(command, log=f"{folder.name}-configure", env=env)
        settings.write_text(text, "utf-8")
    with step(f"compiling {' and '.join(targets)}"):
        run(["cmake", "--build", folder, "--target", *targets], log=f"{folder.name}-build", env=env)


def configuration(folder: Path, flags: str, compiler: Sequence[str]) -> list[object]:
    interpreter = interpreters.running()
    if isinstance(interpreter, str):
        raise Failure(f"nothing can be built for {interpreter}")
    pybind11 = run([sys.executable, "-m", "pybind11", "--cmakedir"], log="in-place-pybind11").strip()
    return [
        *("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug"),
        *(f"-DCMAKE_CXX_FLAGS_DEBUG={flags}", "-DHAMI_PYTHON=ON", "-DHAMI_TESTS=ON", "-DHAMI_WERROR=ON"),
        *(f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11}"),
        f"-DPython_INCLUDE_DIR={headers.include_folder(interpreter)}",
        *("-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *compiler),
    ]


def module_in(folder: Path) -> Path:
    """Return the compiled module of the core in a build folder."""
    return next((folder / "hami-core" / "python").glob("_core*.so"))


def build_plugin(folder: Path) -> None:
    """Compile a native plugin; its library goes into its package folder."""
    with step(f"compiling {folder.name}"):
        work = CACHE / "build" / f"in-place-{folder.name}"
        development.build_in_place(project.read(folder), work, dist.CMAKE_PACKAGE)


def package_of(plugin: Path) -> Path:
    return plugin / "python" / plugin.name.replace("-", "_")


def usable_plugins(installed: Sequence[str]) -> tuple[list[Path], dict[str, str]]:
    """The plugins whose requirements are among `installed`, and why each of the others is left out."""
    known = set(map(canonicalize_name, installed))
    usable, left_out = [], {}
    for folder in dist.folders():
        missing = sorted(name for name in requirements_of(folder) if name not in known)
        if missing:
            left_out[folder.name] = f"{', '.join(missing)} not installed in the environment of ci/check"
        else:
            usable.append(folder)
    return usable, left_out


def requirements_of(plugin: Path) -> set[str]:
    """The names of what a plugin and its tests need, without our own packages."""
    project = pyproject(plugin)["project"]
    wanted = [*project.get("dependencies", []), *project.get("optional-dependencies", {}).get("test", [])]
    own = REQUIREMENTS / f"{plugin.name}.txt"
    if own.is_file():
        lines = (line.partition("#")[0].strip() for line in own.read_text("utf-8").splitlines())
        wanted += [line for line in lines if line and not line.startswith("-")]
    return {name for name in dist.names_of(wanted) if not name.startswith("hami-")}


def link(changed: Callable[[Path], bool] = lambda folder: True) -> dict[str, str]:
    """Make the core and the usable plugins importable in this environment; return why each of the others is not.

    Native plugins are compiled if they are `changed`, or if they never were.
    """
    usable, left_out = usable_plugins([each.metadata["Name"] for each in metadata.distributions()])
    for folder in usable:
        if dist.is_native(folder) and (changed(folder) or not list(package_of(folder).glob("*.so"))):
            build_plugin(folder)
    shutil.rmtree(SITE, ignore_errors=True)
    SITE.mkdir(parents=True)
    for folder in (ROOT, *usable):
        write_metadata(folder, SITE)
    paths = [SITE, PACKAGE.parent, *(folder / "python" for folder in usable)]
    (Path(sysconfig.get_path("purelib")) / PTH).write_text("".join(f"{path}\n" for path in paths), "utf-8")
    write_command()
    return left_out


def write_metadata(folder: Path, site: Path) -> Path:
    """Write what an installer would leave of the project in `folder`, but for the list of its files."""
    project = pyproject(folder)["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Summary: {project['description']}"] if "description" in project else []
    lines += [f"Requires-Dist: {requirement}" for requirement in project.get("dependencies", [])]
    for extra, requirements in project.get("optional-dependencies", {}).items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {requirement}; extra == "{extra}"' for requirement in requirements]
    (info / "METADATA").write_text("\n".join([*lines, ""]), "utf-8")
    groups = {**project.get("entry-points", {}), "console_scripts": project.get("scripts", {})}
    entries = (f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in groups[name].items()) for name in groups)
    (info / "entry_points.txt").write_text("\n".join(entries), "utf-8")
    (info / "INSTALLER").write_text("ci/check\n", "utf-8")
    return info


def write_command() -> None:
    """Write `hami` beside the interpreter."""
    program = Path(sys.executable).with_name("hami")
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hami "$@"\n', "utf-8")
    program.chmod(0o755)


# ---- under a sanitizer, for a Python that is not: the runtime is loaded into the process first ----

SANITIZED_BY = "g++"  # its sanitizers are shared libraries, which Python can load first


@dataclass(frozen=True)
class Sanitizer:
    flags: str  # of -fsanitize
    loaded_first: tuple[str, ...]  # libraries, as the core names them
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return CACHE / "build" / f"python-{self.flags.partition(',')[0]}"


# Python frees nothing when it ends, and libstdc++ is loaded first so that exceptions of C++ are found.
ADDRESS = Sanitizer(
    "address,undefined",
    ("libasan", "libstdc++"),
    {
        "ASAN_OPTIONS": "detect_leaks=0:alloc_dealloc_mismatch=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",  # so that every object of Python is a block of its own
    },
)
THREAD = Sanitizer("thread", ("libtsan",), {"TSAN_OPTIONS": f"suppressions={ROOT / 'tests' / 'python' / 'tsan.txt'}"})


def sanitized_environment(sanitizer: Sanitizer, python: Path) -> dict[str, str]:
    """Compile the core for `python`; return the environment for programs that use it."""
    command = [str(python), "-m", "_lib.in_place", sanitizer.flags]  # main, in the environment of ci/check
    if subprocess.run(command, cwd=ROOT / "ci", env=environment(), check=False).returncode:
        raise Failure(f"the core cannot be compiled with -fsanitize={sanitizer.flags}, see above")
    site = sanitizer.folder / "site"
    module = next((site / "hami").glob("_core*.so"))
    linked = subprocess.run(["ldd", module], capture_output=True, text=True, check=True).stdout
    first = [re.search(rf"{re.escape(name)}\.so\S* => (/\S+)", linked) for name in sanitizer.loaded_first]
    paths = [found[1] for found in first if found]
    return environment(PYTHONPATH=str(site), LD_PRELOAD=":".join(paths), **sanitizer.variables)


def why_unusable(python: Path, env: dict[str, str]) -> str:
    """Return why Python does not start under the sanitizer, for example on a kernel that it does not know; else ""."""
    done = subprocess.run([python, "-c", ""], env=env, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[0]


def main() -> int:
    sanitizer = next(each for each in (ADDRESS, THREAD) if each.flags == sys.argv[1])
    # A unity build and no optimization compile faster, and the stress test takes seconds.
    options = [f"-DCMAKE_CXX_COMPILER={SANITIZED_BY}", f"-DHAMI_SANITIZE={sanitizer.flags}", "-DCMAKE_UNITY_BUILD=ON"]
    compile_targets(["_core"], sanitizer.folder, "-O0 -g1", [*compiler_settings(), *options])
    site = sanitizer.folder / "site"
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(PACKAGE, site / "hami", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    place(module_in(sanitizer.folder), site / "hami")
    write_metadata(ROOT, site)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
