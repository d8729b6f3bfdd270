"""Makes the image for ci/cibuildwheel-local: Debian with a compiler and CPythons of this machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hami_build import zig
from hami_build.interpreters import Interpreter
from hami_build.steps import Failure, environment, run, step

from . import environments, preflight
from .paths import CACHE, DIST, ROOT

PROGRAMS = {"podman": "podman", "runc": "runc", "mmdebstrap": "mmdebstrap"}
SUITE = "bookworm"
PACKAGES = (
    *("ca-certificates", "cmake", "g++", "git", "ninja-build"),
    # Libraries that the CPythons link.
    *("libbz2-1.0", "libffi8", "liblzma5", "libncursesw6", "libreadline8", "libsqlite3-0", "libssl3", "libuuid1"),
    "zlib1g",
)
BASE = "localhost/hami-debian"
NAME = "localhost/hami-manylinux"
DOCKERFILE = ROOT / "docker" / "local" / "Dockerfile"
FOLDER = CACHE / "image"
# runc works without a cgroup manager; some hosts do not allow higher limits.
CREATE_ARGUMENTS = ("--network=host", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


def missing() -> str:
    """Return which programs or rights are missing; "" if nothing is."""
    programs = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    if programs:
        return f"{', '.join(programs)} not found (Debian, Ubuntu: apt install {' '.join(programs)})"
    return "" if os.geteuid() == 0 else "this needs root: mmdebstrap and podman run without user namespaces"


def can_carry(interpreter: Interpreter) -> bool:
    """Return whether the interpreter has its own folder that can be copied; the system's Python does not."""
    return prefix(interpreter) not in (Path("/usr"), Path("/usr/local"))


def newest_two(found: Sequence[Interpreter]) -> list[Interpreter]:
    """Return the interpreters for an image by default: the newest two that can be copied."""
    return list(filter(can_carry, found))[-2:]


def prefix(interpreter: Interpreter) -> Path:
    return interpreter.executable.parents[1]


def podman(*arguments: object, log: str) -> str:
    env = {**os.environ, **engine_settings()}
    return run(["podman", *arguments], log=f"podman-{log}", env=env)


def engine_settings() -> dict[str, str]:
    """Return settings for podman with runc and without a cgroup manager; they override containers.conf."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    configuration = FOLDER / "containers.conf"
    configuration.write_text('[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n')
    return {"CONTAINERS_CONF": str(configuration)}


def ensure(interpreters: Sequence[Interpreter]) -> str:
    """Return the name of the image with these interpreters; make the image if it does not exist."""
    text = "\n".join([SUITE, *PACKAGES, DOCKERFILE.read_text("utf-8"), *map(str, interpreters)])
    image = f"{NAME}:{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if image in podman("images", "--format", "{{.Repository}}:{{.Tag}}", log="images").split():
        return image
    preflight.require_room(CACHE, 4_000)
    base = ensure_base()
    with step("copying the CPythons into the image"):
        context = FOLDER / "context"
        shutil.rmtree(context, ignore_errors=True)
        for interpreter in interpreters:
            copy_python(interpreter, context)
        shutil.copy(ssl.get_default_verify_paths().cafile or CERTIFICATES, context / "certificates.crt")
        arguments = ["--network=host", "--build-arg", f"BASE={base}", "--tag", image, "--file", DOCKERFILE]
        podman("build", *arguments, context, log="build")
        shutil.rmtree(context)
    return image


def ensure_base() -> str:
    """Return the name of an image of Debian with a compiler; make it from packages of this machine's mirror."""
    image = f"{BASE}:{hashlib.sha256(' '.join((SUITE, *PACKAGES)).encode()).hexdigest()[:12]}"
    if image not in podman("images", "--format", "{{.Repository}}:{{.Tag}}", log="images").split():
        archive = FOLDER / "root.tar"
        with step(f"making an image of Debian {SUITE} (once, some minutes)"):
            include = f"--include={','.join(PACKAGES)}"
            run(["mmdebstrap", "--variant=minbase", include, SUITE, archive], log="mmdebstrap")
            podman("import", archive, image, log="import")
        archive.unlink()
    return image


def copy_python(interpreter: Interpreter, context: Path) -> None:
    """Copy the interpreter's folder to the same absolute path, without installed packages and its tests."""
    folder = prefix(interpreter)
    name = "python{}.{}".format(*interpreter.version)
    ignored = shutil.ignore_patterns("__pycache__", "test", "site-packages", "*.a")
    shutil.copytree(folder, context / "root" / folder.relative_to("/"), symlinks=True, ignore=ignored)
    site = context / "root" / folder.relative_to("/") / "lib" / name / "site-packages"
    site.mkdir(parents=True)
    link = context / "root" / "opt" / "python" / f"{interpreter.tag.rstrip('t')}-{interpreter.tag}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)


def cibuildwheel(folder: Path, interpreters: Sequence[Interpreter]) -> list[Path]:
    """Run cibuildwheel for the project in `folder`, show its output, and return the wheels."""
    python = environments.ensure("cibuildwheel")
    env = settings(ensure(interpreters), interpreters)
    output = folder / "wheelhouse"
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


def settings(image: str, interpreters: Sequence[Interpreter]) -> dict[str, str]:
    """Return environment variables that make cibuildwheel use this image; settings of pip are passed on."""
    create = list(CREATE_ARGUMENTS)
    passed = {name: value for name, value in os.environ.items() if name.startswith("PIP_") and "/" not in value}
    if DIST.is_dir():
        create.append(f"--volume={DIST}:/opt/dist:ro")
        passed["PIP_FIND_LINKS"] = "/opt/dist"
    return {
        **engine_settings(),
        "CIBW_CONTAINER_ENGINE": f"podman; create_args: {' '.join(create)}; disable_host_mount: true",
        f"CIBW_MANYLINUX_{zig.HOST.upper()}_IMAGE": image,
        "CIBW_BUILD": " ".join(f"{i.tag.rstrip('t')}-manylinux_*" for i in interpreters),
        "CIBW_BUILD_FRONTEND": "pip",
        "CIBW_ENVIRONMENT_PASS_LINUX": " ".join(passed),
        **passed,
    }
