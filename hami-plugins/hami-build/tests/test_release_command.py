"""`hami-build release` changes the files of a project completely or not at all."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from hami_build import cache, grades, project, release
from hami_build.commands import main

PYPROJECT = """\
[build-system]
build-backend = "scikit_build_core.build"

[project]
name = "acme-inc"
version = "1.0"

[tool.acme]
version = "7"
"""
LOG = "# Changelog\n\n## 1.1.0, not released yet\n\nFaster.\n\n## 1.0, 2026-01-01\n\nFirst.\n"
SOURCE = '#include <hami/backend.hpp>\nHAMI_PLUGIN("acme-inc", "1.0")\n'


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project in a git repository."""
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    monkeypatch.setattr(cache, "_chosen", tmp_path / "cache")
    folder = tmp_path / "acme-inc"
    (folder / "src").mkdir(parents=True)
    for name, text in {"pyproject.toml": PYPROJECT, "CHANGELOG.md": LOG, "src/acme.cpp": SOURCE}.items():
        (folder / name).write_text(text)
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for arguments in (("init", "-q"), ("add", "--all"), (*identity, "commit", "-qm", "x")):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return folder


def test_every_place_of_the_version_changes(acme: Path) -> None:
    release.require_ready(acme, "1.1.0")
    with release.bumped(acme, "1.1.0", "2026-02-03") as files:
        pass
    assert sorted(path.name for path in files) == ["CHANGELOG.md", "acme.cpp", "pyproject.toml"]
    found = project.read(acme)
    assert (found.version, found.table["tool"]["acme"]["version"]) == ("1.1.0", "7")
    assert 'HAMI_PLUGIN("acme-inc", "1.1.0")' in (acme / "src" / "acme.cpp").read_text()
    assert (acme / "CHANGELOG.md").read_text() == LOG.replace("not released yet", "2026-02-03")
    assert main(["release", "1.1.0", str(acme), "--check"]) == 0


def test_a_release_is_described_in_json(acme: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = tmp_path / "acme_inc-1.1.0-py3-none-any.whl"
    wheel.write_bytes(b"x")
    assert release.Ready("acme-inc", "1.1.0", "v1.1.0", [wheel]).as_json() == {
        "name": "acme-inc",
        "version": "1.1.0",
        "tag": "v1.1.0",
        "files": [{"file": str(wheel), "sha256": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}],
        "commands": {
            "workflow": 'git commit --all --message "acme-inc 1.1.0" && git tag v1.1.0 && git push origin HEAD v1.1.0',
            "by hand": f"twine upload {wheel}",
        },
    }
    with release.bumped(acme, "1.1.0", "2026-02-03"):
        assert main(["release", "1.1.0", str(acme), "--check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": "acme-inc", "version": "1.1.0"}


def test_a_python_project_is_released(
    acme: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("hatchling")
    text = PYPROJECT.replace("scikit_build_core.build", "hatchling.build")
    (acme / "pyproject.toml").write_text(f"{text}\n[tool.hatch.build.targets.wheel]\nbypass-selection = true\n")
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qam", "x"], cwd=acme)
    # The grade is that of an empty wheel; whether a wheel reaches one is tested in test_check.py.
    monkeypatch.setattr(grades, "grade", lambda wheel: grades.Report(wheel.name, "gold", 0.0, []))
    assert main(["release", "1.1.0", str(acme), "--json", "--to", str(tmp_path / "dist")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["name"], said["version"], said["tag"]) == ("acme-inc", "1.1.0", "v1.1.0")
    (file,) = said["files"]
    assert file["file"] == str(next((tmp_path / "dist").glob("acme_inc-1.1.0-*.whl")))


def test_a_release_that_cannot_be_built_changes_nothing(acme: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PYPROJECT.replace("scikit_build_core.build", "acme_backend")
    (acme / "pyproject.toml").write_text(text)
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qam", "x"], cwd=acme)
    assert main(["release", "1.1.0", str(acme)]) == 1
    assert "acme-backend is not installed" in capsys.readouterr().err
    assert release.git(acme, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("version", "past", "message"),
    [
        ("two", [], '"two" is not a version; write it like 0.2.0 or 1.0rc1'),
        ("v1.1", [], '"v1.1" is not normalised; write 1.1'),
        ("1.1", ["1.0", "1.2"], "acme-inc 1.2 is already released; 1.1 is not newer"),
    ],
)
def test_a_version_that_cannot_follow_is_an_error(acme: Path, version: str, past: list[str], message: str) -> None:
    with pytest.raises(release.Failure) as raised:
        release.require_ready(acme, version, past)
    assert str(raised.value) == message


def test_uncommitted_changes_and_a_changelog_without_the_release_are_errors(acme: Path) -> None:
    (acme / "src" / "acme.cpp").write_text("")
    with pytest.raises(release.Failure, match=r"uncommitted changes:\n M src/acme\.cpp$"):
        release.require_ready(acme, "1.1.0")
    (acme / "CHANGELOG.md").write_text("# Changelog\n")
    with pytest.raises(release.Failure, match=r'must begin with "## 1\.1\.0, not released yet" and a list of changes$'):
        release.require_ready(acme, "1.1.0")


def test_files_of_another_version_are_named(acme: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["release", "1.1.0", str(acme), "--check"]) == 1
    assert capsys.readouterr().err == (
        "error: pyproject.toml of acme-inc says 1.0\n"
        "the changelog of acme-inc does not name 1.1.0 with the day of its release\n"
    )
