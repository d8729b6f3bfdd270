"""`hami-build wheel` builds a project for the platforms that are named, or says what is missing."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

import pytest

from hami_build import cache, platforms, sdist, wheel_file, wheels
from hami_build.commands import main
from hami_build.errors import Failure

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "acme-inc"
version = "1.0"
license = "Apache-2.0"
requires-python = ">=3.10"

[tool.hatch.build.targets.wheel]
packages = ["acme_inc"]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache, "_chosen", tmp_path / "cache")
    (tmp_path / "project" / "acme_inc").mkdir(parents=True)
    (tmp_path / "project" / "acme_inc" / "__init__.py").touch()
    (tmp_path / "project" / "pyproject.toml").write_text(PROJECT)
    return tmp_path / "project"


def test_a_python_project_becomes_the_same_bytes_twice(project: Path, tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    (first,) = wheels.build(project, [], tmp_path / "first")
    moved = project.rename(tmp_path / "moved")
    (second,) = wheels.build(moved, [], tmp_path / "second")
    assert first.name == "acme_inc-1.0-py3-none-any.whl"
    assert first.read_bytes() == second.read_bytes()
    assert "acme_inc-1.0.dist-info/sboms/acme-inc.cdx.json" in wheel_file.read(first)
    assert sorted(path.name for path in moved.iterdir()) == ["acme_inc", "pyproject.toml"]


@pytest.mark.parametrize(
    ("name", "target", "tags"),
    [
        (
            "manylinux2014_x86_64",
            "x86_64-linux-gnu.2.17",
            ["manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64"],
        ),
        ("manylinux_2_28_aarch64", "aarch64-linux-gnu.2.28", ["manylinux_2_28_aarch64"]),
        ("musllinux_1_2_x86_64", "x86_64-linux-musl", ["musllinux_1_2_x86_64"]),
    ],
)
def test_a_platform_has_a_target_and_tags(name: str, target: str, tags: list[str]) -> None:
    found = platforms.parse(name)
    assert (found.target, found.tags) == (target, tags)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("win_amd64", '"win_amd64" is not a known platform; write one such as manylinux2014_x86_64'),
        ("manylinux_2_28_riscv64", '"manylinux_2_28_riscv64" is not a known platform'),
        ("manylinux_2_5_x86_64", '"manylinux_2_5_x86_64" is older than the oldest supported platform'),
    ],
)
def test_an_unknown_platform_is_an_error(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wheel", "--platform", name]) == 1
    assert capsys.readouterr().err.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "contains no pyproject.toml"),
        ("[", "is not valid TOML"),
        (b'a = "\xff"', "is not valid TOML"),
        ("[project]\nname = 'x'\n", "must name a build-backend in [build-system]"),
        (
            PROJECT.replace("hatchling.build", "acme_backend"),
            "acme-backend is not installed; pip install 'hami-build[wheel]'",
        ),
    ],
)
def test_an_invalid_project_is_an_error(project: Path, tmp_path: Path, text: str | bytes | None, message: str) -> None:
    (project / "pyproject.toml").unlink()
    if text is not None:
        (project / "pyproject.toml").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(Failure) as raised:
        wheels.build(project, [], tmp_path / "dist")
    assert message in str(raised.value)
    assert not (tmp_path / "dist").exists()


def test_hidden_files_outside_of_a_checkout_stay_private(tmp_path: Path) -> None:
    for name in (".env", ".netrc", ".secrets/key", "src/.env.local", "src/acme.py", "pyproject.toml", "build/x.py"):
        file = tmp_path / "acme" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    found = [str(file.relative_to(tmp_path / "acme")) for file in sdist.tracked(tmp_path / "acme")]
    assert found == ["pyproject.toml", "src/acme.py"]


def test_a_checkout_whose_files_git_cannot_list_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "notes.txt").write_text("private")
    monkeypatch.setenv("PATH", str(tmp_path))  # without git
    with pytest.raises(Failure, match="git is not installed; install it, it lists the files of a checkout"):
        sdist.tracked(tmp_path / "acme")


@pytest.mark.parametrize("named", [False, True])
def test_a_user_without_a_home_folder_has_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool) -> None:
    def no_home() -> Path:
        if not named:
            raise RuntimeError("Could not determine home directory.")
        return tmp_path / "absent"

    monkeypatch.setattr(cache, "_chosen", None)
    monkeypatch.delenv("HAMI_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cache.folder() == Path(tempfile.gettempdir()) / f"hami-build-{os.getuid()}"


def test_only_this_user_can_write_into_the_cache_with_every_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_chosen", None)
    for name in ("HAMI_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for users in (tmp_path / ".cache", tmp_path / "other" / "cache"):
        before = os.umask(0)
        try:
            folder = cache.folder()
        finally:
            os.umask(before)
        assert folder == users / "hami-build"
        assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, users)] == [0o700] * 2
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other" / "cache"))


def test_the_cache_may_be_a_link_to_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_chosen", None)
    for name in ("HAMI_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    (tmp_path / "disk").mkdir()
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "hami-build").symlink_to(tmp_path / "disk")
    assert cache.folder() == tmp_path / ".cache" / "hami-build"


@pytest.mark.parametrize("is_absent", [False, True])
def test_folders_that_cannot_be_written_are_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_absent: bool
) -> None:
    """As of a container whose file systems are read-only, also the one for temporary files."""
    error = OSError(errno.EROFS, "Read-only file system", "/home/me/.cache")
    if is_absent:
        error = FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    def no_folder(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(wheels, "build", no_folder)
    assert main(["wheel", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {error}; let this user write there, or set TMPDIR and HAMI_CACHE to")
