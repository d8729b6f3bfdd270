"""Other systems for tests: an older Debian, an emulated Python of another architecture, and an image for cibuildwheel.

Each is made once and kept in the cache. If that is not possible, Missing says what to install.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from hami_build import apt, zig
from hami_build.interpreters import Interpreter
from hami_build.steps import Failure, environment, exclusive, run, step

from . import environments
from .paths import CACHE, DIST, ROOT

ROOTS = CACHE / "roots"
OLD_SUITE, SUITE = "bullseye", "bookworm"  # the older has glibc 2.31 with CPython 3.9: the oldest on the mirrors
COMPILERS = "gcc,libc6-dev,make,zlib1g-dev"
PYTHON = "3.11"  # of the newer Debian, built on the older one from its source package
SOURCE = f"python{PYTHON}"
PYTHON_PREFIX = "/opt/python"
MMDEBSTRAP = ["mmdebstrap", f'--aptopt=Acquire::Retries "{apt.RETRIES}"']
# No manuals, no disk synchronisation: a system that was made incompletely is deleted.
LEAN = [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in ("doc", "locale")] + ["--dpkgopt=force-unsafe-io"]


class Missing(Failure):
    """A system cannot be made here; the text says what to install."""


def require(*programs: str) -> None:
    packages = {"bwrap": "bubblewrap", "qemu-aarch64-static": "qemu-user-static"}
    absent = [packages.get(program, program) for program in programs if not shutil.which(program)]
    if absent:
        raise Missing(f"needs {', '.join(absent)} (Debian, Ubuntu: apt install {' '.join(absent)})")


def _made(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder that `make` fills; an incomplete one is deleted."""
    folder, work = ROOTS / name, ROOTS / f"{name}.work"
    with exclusive(f"root-{name}"):
        if not folder.is_dir():
            ROOTS.mkdir(parents=True, exist_ok=True)
            _remove(work)
            try:
                make(work)
            except Failure as failure:
                _remove(work)
                raise Missing(f"{name} could not be made: {failure}") from failure
            os.replace(work, folder)
    return folder


def _remove(folder: Path) -> None:
    if folder.exists():
        run(["rm", "-rf", folder], log="roots-remove")


# ---- without containers: a folder that bubblewrap or an emulator enters ----


def entering(root: Path, *binds: tuple[Path, str], writable: bool = False) -> list[str | Path]:
    """Return the start of a command that runs inside `root`; it may write to the (outer, inner) folders `binds`."""
    mode = "--bind" if writable else "--ro-bind"
    shown = [word for outer, inner in binds for word in ("--bind", outer, inner)]
    empty = ("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp")
    return ["bwrap", mode, root, "/", *empty, *shown, "--die-with-parent"]


def old_debian() -> Path:
    """Return the root of an older Debian with its own Python and a newer one in /opt/python."""
    require("mmdebstrap", "bwrap")

    def make(root: Path) -> None:
        packages = f"python3,python3-pip,ca-certificates,{COMPILERS}"
        command = [*MMDEBSTRAP, "--variant=minbase", *LEAN, f"--include={packages}", OLD_SUITE, root, apt.mirror()]
        with step(f"making a {OLD_SUITE} (once, one to three minutes)"):
            run(command, log=f"root-{OLD_SUITE}", env=environment())
        with step(f"building {SOURCE} on {OLD_SUITE} (once, one to three minutes)"):
            _build_python(root)

    return _made(OLD_SUITE, make)


def _build_python(root: Path) -> None:
    work = ROOTS / "source"
    fetch = apt.private(work, f"deb-src {apt.mirror()} {SUITE} main")
    run([*fetch, "update"], log="source-update")
    run([*fetch, "source", "--download-only", SOURCE], log="source-download", cwd=work)
    source = work / "source"
    source.mkdir()
    run(["tar", "-C", source, "--strip-components=1", "-xf", *work.glob("*.orig.tar.*")], log="source-unpack")
    inside = [*entering(root, (source, "/mnt"), writable=True), "--chdir", "/mnt"]
    configure = ["./configure", f"--prefix={PYTHON_PREFIX}", "--disable-test-modules", "CFLAGS=-O1"]
    clean = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LC_ALL": "C.UTF-8"}
    run([*inside, *configure], log="python-configure", env=clean)
    run([*inside, "make", f"-j{os.cpu_count()}", "install"], log="python-build", env=clean)
    _remove(work)


def foreign_python() -> list[str | Path]:
    """Return the start of a command that runs Debian's Python for aarch64."""
    require("mmdebstrap", "qemu-aarch64-static")

    def make(root: Path) -> None:
        packages = f"python{PYTHON}-minimal,libpython{PYTHON}-stdlib"
        command = [*MMDEBSTRAP, "--variant=extract", "--architectures=arm64", f"--include={packages}"]
        with step("unpacking Python for aarch64 (once)"):
            run([*command, SUITE, root, apt.mirror()], log="root-aarch64", env=environment())

    root = _made("aarch64", make)
    return ["qemu-aarch64-static", "-L", root, root / "usr" / "bin" / f"python{PYTHON}"]


# ---- for ci/cibuildwheel-local: an image of Debian with a compiler and CPythons of this machine ----

PACKAGES = (
    *("ca-certificates", "cmake", "g++", "git", "ninja-build"),
    # Libraries that the CPythons link.
    *("libbz2-1.0", "libffi8", "liblzma5", "libncursesw6", "libreadline8", "libsqlite3-0", "libssl3", "libuuid1"),
    "zlib1g",
)
# runc works without a cgroup manager; some hosts do not allow higher limits.
CREATE_ARGUMENTS = ("--network=host", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000")
ENGINE = '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'


def why_no_image() -> str:
    """Return which programs or rights are missing; "" if nothing is."""
    try:
        require("podman", "runc", "mmdebstrap")
    except Missing as reason:
        return str(reason)
    return "" if os.geteuid() == 0 else "this needs root: mmdebstrap and podman run without user namespaces"


def prefix(interpreter: Interpreter) -> Path:
    return interpreter.executable.parents[1]


def can_carry(interpreter: Interpreter) -> bool:
    """Return whether the interpreter has its own folder that can be copied; the system's Python does not."""
    return prefix(interpreter) not in (Path("/usr"), Path("/usr/local"))


def newest_two(found: Sequence[Interpreter]) -> list[Interpreter]:
    """Return the interpreters for an image by default: the newest two that can be copied."""
    return list(filter(can_carry, found))[-2:]


def engine_settings() -> dict[str, str]:
    """Return settings for podman with runc and without a cgroup manager; they override containers.conf."""
    ROOTS.mkdir(parents=True, exist_ok=True)
    configuration = ROOTS / "containers.conf"
    configuration.write_text(ENGINE)
    return {"CONTAINERS_CONF": str(configuration)}


def podman(*arguments: object, log: str) -> str:
    return run(["podman", *arguments], log=f"podman-{log}", env={**os.environ, **engine_settings()})


def _image(name: str, text: str, make: Callable[[str], None]) -> str:
    """Return the name of an image, which is made if there is none for this text."""
    image = f"localhost/hami-{name}:{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if image not in podman("images", "--format", "{{.Repository}}:{{.Tag}}", log="images").split():
        environments.require_room(CACHE, 4_000)
        make(image)
    return image


def image_with(interpreters: Sequence[Interpreter]) -> str:
    """Return the name of the image with these interpreters."""

    def make_base(image: str) -> None:
        archive = ROOTS / "image.tar"
        with step(f"making an image of Debian {SUITE} (once, some minutes)"):
            include = f"--include={','.join(PACKAGES)}"
            run([*MMDEBSTRAP, "--variant=minbase", include, SUITE, archive, apt.mirror()], log="mmdebstrap")
            podman("import", archive, image, log="import")
        archive.unlink()

    def make(image: str) -> None:
        base = _image("debian", " ".join((SUITE, *PACKAGES)), make_base)
        with step("copying the CPythons into the image"), tempfile.TemporaryDirectory() as folder:
            for interpreter in interpreters:
                copy_python(interpreter, Path(folder))
            certificates = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
            shutil.copy(certificates, Path(folder, "certificates.crt"))
            options = ["--network=host", "--build-arg", f"BASE={base}", "--tag", image, "--file", dockerfile]
            podman("build", *options, folder, log="build")

    dockerfile = ROOT / "docker" / "local" / "Dockerfile"
    text = "\n".join([SUITE, *PACKAGES, dockerfile.read_text("utf-8"), *map(str, interpreters)])
    return _image("manylinux", text, make)


def copy_python(interpreter: Interpreter, context: Path) -> None:
    """Copy the interpreter's folder to the same absolute path, without installed packages and its tests."""
    folder = prefix(interpreter)
    copy = context / "root" / folder.relative_to("/")
    ignored = shutil.ignore_patterns("__pycache__", "test", "site-packages", "*.a")
    shutil.copytree(folder, copy, symlinks=True, ignore=ignored)
    (copy / "lib" / "python{}.{}".format(*interpreter.version) / "site-packages").mkdir(parents=True)
    link = context / "root" / "opt" / "python" / f"{interpreter.tag.rstrip('t')}-{interpreter.tag}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)


def cibuildwheel(folder: Path, interpreters: Sequence[Interpreter]) -> list[Path]:
    """Run cibuildwheel for the project in `folder`, show its output, and return the wheels."""
    create = [*CREATE_ARGUMENTS, *([f"--volume={DIST}:/opt/dist:ro"] if DIST.is_dir() else [])]
    passed = {name: value for name, value in os.environ.items() if name.startswith("PIP_") and "/" not in value}
    passed |= {"PIP_FIND_LINKS": "/opt/dist"} if DIST.is_dir() else {}
    env = {
        **engine_settings(),
        "CIBW_CONTAINER_ENGINE": f"podman; create_args: {' '.join(create)}; disable_host_mount: true",
        f"CIBW_MANYLINUX_{zig.HOST.upper()}_IMAGE": image_with(interpreters),
        "CIBW_BUILD": " ".join(f"{each.tag.rstrip('t')}-manylinux_*" for each in interpreters),
        "CIBW_BUILD_FRONTEND": "pip",
        "CIBW_ENVIRONMENT_PASS_LINUX": " ".join(passed),
        **passed,
    }
    python, output = environments.ensure("cibuildwheel"), folder / "wheelhouse"
    shutil.rmtree(output, ignore_errors=True)
    project = ROOT if folder.is_relative_to(ROOT) else folder  # ci/ finishes the wheels of our plugins
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work) / project.name  # the container gets everything in this folder
        shutil.copytree(project, copy, ignore=shutil.ignore_patterns(".cache", ".git", "build", "dist", "__pycache__"))
        package = copy / folder.relative_to(project)
        command = [python, "-m", "cibuildwheel", "--platform", "linux", "--output-dir", output, package]
        print("$", *(f'{name}="{value}"' for name, value in env.items()), "cibuildwheel", flush=True)
        done = subprocess.run(list(map(str, command)), cwd=copy, env=environment(**env), check=False)
    if done.returncode != 0:
        raise Failure(f"cibuildwheel ended with {done.returncode}, see above")
    return sorted(output.glob("*.whl"))
