"""The second road to wheels, run for real: cibuildwheel with podman, in images made of what this machine can reach."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from _lib import audit_archive, local_image, wheel_file
from _lib.paths import DIST, ROOT
from conftest import INTERPRETERS

REASON = local_image.missing()
CARRIED = [interpreter for interpreter in INTERPRETERS if local_image.can_carry(interpreter)][:2]

pytestmark = [
    pytest.mark.skipif(bool(REASON), reason=REASON),
    pytest.mark.skipif(not CARRIED, reason="dist/ has no wheel for a CPython that an image can carry (pyenv's, uv's)"),
]


def run(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_core_is_built_repaired_and_tested() -> None:
    """Its tests run inside, by `test-command`."""
    wheels = local_image.cibuildwheel(ROOT, CARRIED)
    assert sorted(wheel.name.split("-")[2] for wheel in wheels) == sorted(found.tag for found in CARRIED)
    for wheel in wheels:
        files = wheel_file.read(wheel)
        found = [
            audit_archive.file_name(wheel, files),
            audit_archive.top_level_names(files, "hami"),
            audit_archive.licences(files),
            audit_archive.bill_of_materials(files),
            audit_archive.versions(wheel, files, ROOT / "CHANGELOG.md"),
        ]
        assert [check for check in found if not check[1]] == []
        assert "manylinux_2_" in wheel.name  # Debian's glibc, which is not that of the wheels that are published


def test_written_project_is_built_in_an_empty_folder_against_the_wheel_of_the_core(tmp_path: Path) -> None:
    """With its own configuration and no file of ours; its tests run inside as well."""
    python = tmp_path / "env" / "bin" / "python"
    run(CARRIED[0].executable, "-m", "venv", tmp_path / "env")
    run(python, "-m", "pip", "install", "--quiet", "--find-links", DIST, "hami-core")
    project = tmp_path / "acme-fresh"
    run(python.with_name("hami"), "new-plugin", "acme-fresh", "--cpp", "--folder", project)
    (wheel,) = local_image.cibuildwheel(project, CARRIED[:1])
    assert wheel.name.startswith("acme_fresh-0.1.0-py3-none-manylinux_2_")
    run(python, "-m", "pip", "install", "--quiet", "--no-index", wheel)
    assert run(python.with_name("hami"), "run", "AcmeFresh(step=2)", "--data", "40") == "42\n"


def test_image_to_run_has_the_plugins_and_finds_nothing_wrong(tmp_path: Path) -> None:
    """docker/cpu on the image made here, whose Python is the newest that it carries."""
    shutil.copytree(DIST, tmp_path / "dist", ignore=shutil.ignore_patterns("*.tar.gz"))
    base = local_image.ensure(CARRIED[-1:])
    dockerfile = ROOT / "docker" / "cpu" / "Dockerfile"
    options = ["--network=host", "--build-arg", f"BASE={base}", "--tag", "localhost/hami-cpu", "--file", dockerfile]
    local_image.podman("build", *options, tmp_path, log="cpu")
    told = local_image.podman(
        "run", "--rm", *local_image.CREATE_ARGUMENTS, "localhost/hami-cpu", "doctor", log="doctor"
    )
    assert told.rstrip().endswith("no problems found")
