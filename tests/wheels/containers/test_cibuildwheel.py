"""The alternative way to build wheels: cibuildwheel with podman, in images that are made locally."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import local_images
import pytest
from _lib import dist
from _lib.other_systems import newest_two
from _lib.paths import DIST, ROOT
from conftest import FOUND
from hami_build import archive, audit, wheel_file
from hami_build.interpreters import Interpreter

REASON = local_images.why_no_image()
CARRIED = newest_two(FOUND)
NATIVE = [folder for folder in dist.folders() if dist.is_native(folder)]

pytestmark = [
    pytest.mark.skipif(bool(REASON), reason=REASON),
    pytest.mark.skipif(
        not CARRIED, reason="no CPython that can be copied into an image is installed (those of pyenv and uv can)"
    ),
]


def run(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_core_is_built_repaired_and_tested() -> None:
    """`test-command` runs its tests inside the container."""
    wheels = local_images.cibuildwheel(ROOT, CARRIED)
    assert sorted(wheel.name.split("-")[2] for wheel in wheels) == sorted(found.tag for found in CARRIED)
    for wheel in wheels:
        require_finished(wheel, "hami", ROOT / "CHANGELOG.md")


@pytest.mark.parametrize("plugin", NATIVE, ids=lambda folder: folder.name)
def test_each_native_plugin_is_built_repaired_and_tested(plugin: Path) -> None:
    """`test-command` runs its tests inside the container, with the core of dist/."""
    (wheel,) = local_images.cibuildwheel(plugin, CARRIED[:1])
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    require_finished(wheel, plugin.name.replace("-", "_"), plugin / "CHANGELOG.md")


def require_finished(wheel: Path, package: str, changelog: Path) -> None:
    """Check a wheel with the audit, except for the platform tag: here it is that of Debian."""
    files = wheel_file.read(wheel)
    found = [
        archive.file_name(wheel, files),
        archive.top_level_names(files, package),
        archive.licences(files),
        archive.bill_of_materials(files),
        audit.versions(wheel, files, changelog),
    ]
    assert [check for check in found if not check[1]] == []
    assert "manylinux_2_" in wheel.name


def test_a_new_project_builds_against_the_wheel_of_the_core(tmp_path: Path) -> None:
    """It uses its own configuration and no file of the checkout; its tests run inside the container."""
    python = tmp_path / "env" / "bin" / "python"
    run(CARRIED[0].executable, "-m", "venv", tmp_path / "env")
    run(python, "-m", "pip", "install", "--quiet", "--find-links", DIST, "hami-core[tools]")
    project = tmp_path / "acme-fresh"
    run(python.with_name("hami"), "new-plugin", "acme-fresh", "--cpp", "--folder", project)
    (wheel,) = local_images.cibuildwheel(project, CARRIED[:1])
    assert wheel.name.startswith("acme_fresh-0.1.0-py3-none-manylinux_2_")
    run(python, "-m", "pip", "install", "--quiet", "--no-index", wheel)
    assert run(python.with_name("hami"), "run", "AcmeFresh(step=2)", "--data", "40") == "42\n"


@pytest.mark.skipif("cp312" not in {found.tag for found in CARRIED}, reason="the image has no CPython 3.12")
def test_the_build_image_contains_all_build_requirements(tmp_path: Path) -> None:
    """In docker/manylinux, based on the local image, building the core needs neither a network nor another cmake."""
    shutil.copytree(ROOT / "ci" / "requirements", tmp_path / "ci" / "requirements")
    build_image("manylinux", tmp_path, CARRIED)
    script = (
        "cmake --version && ninja --version && pip download --no-index --no-deps -d /tmp scikit-build-core pybind11"
    )
    python = f"/opt/python/{CARRIED[-1].tag}-{CARRIED[-1].tag}/bin"
    output = run_image("manylinux", "sh", "-c", f"PATH={python}:$PATH; {script}")
    pinned = dict(
        line.split("==") for line in (ROOT / "ci/requirements/tools.txt").read_text().split() if line.count("==") == 1
    )
    assert f"cmake version {pinned['cmake']}" in output
    assert "Successfully downloaded scikit-build-core pybind11" in output


def test_the_runtime_image_contains_the_plugins_and_doctor_finds_no_problems(tmp_path: Path) -> None:
    """docker/cpu, based on the local image, uses the newest Python of that image."""
    shutil.copytree(DIST, tmp_path / "dist", ignore=shutil.ignore_patterns("*.tar.gz"))
    build_image("cpu", tmp_path, CARRIED[-1:])
    assert run_image("cpu", "doctor").rstrip().endswith("no problems found")


def test_the_image_of_the_server_takes_options_of_hami_serve(tmp_path: Path) -> None:
    shutil.copytree(DIST, tmp_path / "dist", ignore=shutil.ignore_patterns("*.tar.gz"))
    build_image("serve", tmp_path, CARRIED[-1:])
    assert "--allow-control" in run_image("serve", "--help")


def build_image(name: str, context: Path, pythons: list[Interpreter]) -> None:
    """Build docker/NAME on the image with these Pythons, as localhost/hami-test-NAME."""
    base, dockerfile = local_images.image_with(pythons), ROOT / "docker" / name / "Dockerfile"
    options = ["--network=host", "--build-arg", f"BASE={base}", "--tag", f"localhost/hami-test-{name}"]
    local_images.podman("build", *options, "--file", dockerfile, context, log=name)


def run_image(name: str, *command: str) -> str:
    """Return the output of `command` in that image."""
    options = ["--rm", *local_images.CREATE_ARGUMENTS]
    return local_images.podman("run", *options, f"localhost/hami-test-{name}", *command, log=f"{name}-run")
