"""cibuildwheel without an image registry: with podman, in a local image of Debian and CPythons of this machine.

The wheels test the configuration, not the platform: auditwheel names them after Debian's glibc.
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

from _lib import environments
from _lib.other_systems import prefix
from _lib.paths import CACHE, DIST, ROOT
from hami_build import apt, zig
from hami_build.interpreters import Interpreter
from hami_build.steps import Failure, environment, run, step
from roots import MMDEBSTRAP, ROOTS, SUITE, Missing, require

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
