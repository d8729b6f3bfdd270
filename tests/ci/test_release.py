"""A release changes one package, completely or not at all; the compatibility table shows the metadata of packages."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from _lib import releases
from _lib.paths import ROOT, pyproject
from hami_build import changelog
from hami_build.git import git
from hami_build.release import VERSION_LINE, Ready
from hami_build.steps import Failure

DAY = "2026-11-21"
BACKEND = '[build-system]\nbuild-backend = "x"\n'
CORE = f'{BACKEND}[project]\nname = "hami-core"\nversion = "0.1.0"\ndependencies = ["pluggy>=1.2"]\n'
PLUGIN = (
    BACKEND + '[project]\nname = "{name}"\nversion = "0.1.0"\ndependencies = ["hami-core>=0.1", "engine[fast]>=2,<4"]\n'
)
PLUGIN += '[project.optional-dependencies]\ntest = ["pytest"]\ngpu = ["cudart>=12"]\n'
LOG = "# Changelog\n\n## 0.1.0, not released yet\n\nFirst version.\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a core, a plugin in Python and a native one, nothing released so far."""
    root = tmp_path / "checkout"
    files = {
        "pyproject.toml": CORE,
        "CHANGELOG.md": LOG,
        "hami-plugins/hami-a/pyproject.toml": PLUGIN.format(name="hami-a"),
        "hami-plugins/hami-a/CHANGELOG.md": LOG,
        "hami-plugins/hami-n/pyproject.toml": PLUGIN.format(name="hami-n"),
        "hami-plugins/hami-n/CHANGELOG.md": LOG,
        "hami-plugins/hami-n/CMakeLists.txt": "",
        "hami-plugins/hami-n/src/n.cpp": "#define HAMI_ABI_USE_MINOR 2\n",
        str(releases.RELEASES): "# Releases\n",
        str(releases.ABI_SOURCE): "inline constexpr std::uint16_t kAbiMinor = 3;\n",
        str(releases.HEADER): "#define HAMI_ABI_MAJOR 1\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    page = root / releases.PAGE
    page.parent.mkdir(parents=True)
    page.write_text(releases.page(root))
    commit(root)
    return root


def commit(root: Path) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for arguments in (("init", "-q"), ("add", "--all"), (*identity, "commit", "-qm", "x", "--allow-empty")):
        subprocess.run(["git", *arguments], cwd=root, check=True)


def table(root: Path) -> list[str]:
    return (root / releases.PAGE).read_text("utf-8").removeprefix(releases.TOP).splitlines()


def test_table_shows_the_metadata_of_the_packages(checkout: Path) -> None:
    assert table(checkout) == [
        "| `hami-core` | 0.1.0 | not yet | - | serves 1.3 | pluggy>=1.2 |",
        "| `hami-a` | 0.1.0 | not yet | >=0.1 | - | engine[fast]>=2,<4, cudart>=12 with [gpu] |",
        "| `hami-n` | 0.1.0 | not yet | >=0.1 | needs 1.2 | engine[fast]>=2,<4, cudart>=12 with [gpu] |",
    ]


def test_page_of_this_checkout_is_not_stale() -> None:
    assert (ROOT / releases.PAGE).read_text("utf-8") == releases.page(ROOT)


def test_release_changes_exactly_its_files(checkout: Path) -> None:
    releases.require_ready(checkout, "hami-a", "0.2.0")
    with releases.bumped(checkout, "hami-a", "0.2.0", DAY) as files:
        changed = git(checkout, "status", "--porcelain").split()[1::2]
    plugin = checkout / "hami-plugins" / "hami-a"
    assert sorted(checkout / name for name in changed) == sorted(files)
    assert pyproject(plugin)["project"]["version"] == "0.2.0"
    assert changelog.newest(plugin / "CHANGELOG.md") == changelog.Entry("0.2.0", DAY, "First version.")
    assert table(checkout) == [
        "| `hami-core` | 0.1.0 | not yet | - | serves 1.3 | pluggy>=1.2 |",
        "| `hami-n` | 0.1.0 | not yet | >=0.1 | needs 1.2 | engine[fast]>=2,<4, cudart>=12 with [gpu] |",
        f"| `hami-a` | 0.2.0 | {DAY} | >=0.1 | - | engine[fast]>=2,<4, cudart>=12 with [gpu] |",
    ]
    assert releases.problems(checkout, "hami-a", "0.2.0") == []


def test_release_that_fails_changes_nothing(checkout: Path) -> None:
    with pytest.raises(Failure, match="it does not build"), releases.bumped(checkout, "hami-core", "0.2.0", DAY):
        raise Failure("it does not build")
    assert git(checkout, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("package", "version", "message"),
    [
        ("hami-x", "0.2.0", 'unknown package "hami-x"; this checkout contains hami-core, hami-a, hami-n'),
        ("hami-a", "two", '"two" is not a version; write it like 0.2.0 or 1.0rc1'),
        ("hami-a", "v0.2", '"v0.2" is not normalised; write 0.2'),
    ],
)
def test_invalid_releases_are_rejected(checkout: Path, package: str, version: str, message: str) -> None:
    with pytest.raises(Failure) as failure:
        releases.require_ready(checkout, package, version)
    assert str(failure.value) == message


def test_nothing_is_released_over_uncommitted_changes(checkout: Path) -> None:
    (checkout / "pyproject.toml").write_text(CORE + "# changed\n")
    with pytest.raises(Failure) as failure:
        releases.require_ready(checkout, "hami-a", "0.2.0")
    assert str(failure.value) == "the checkout has uncommitted changes:\n M pyproject.toml"


def test_release_needs_a_newer_version_and_something_new(checkout: Path) -> None:
    with releases.bumped(checkout, "hami-a", "0.2.0", DAY):
        commit(checkout)
    with pytest.raises(Failure, match=r"^hami-a 0\.2\.0 is already released; 0\.1\.9 is not newer$"):
        releases.require_ready(checkout, "hami-a", "0.1.9")
    with pytest.raises(Failure, match=r'it must begin with "## 0\.3\.0, not released yet" and a list of changes$'):
        releases.require_ready(checkout, "hami-a", "0.3.0")


def test_tag_of_another_version_is_reported(checkout: Path) -> None:
    assert releases.problems(checkout, "hami-a", "0.2.0") == [
        "pyproject.toml of hami-a says 0.1.0",
        "the changelog of hami-a does not name 0.2.0 with the day of its release",
        "ci/releases.toml does not have hami-a 0.2.0",
    ]


def test_instructions_name_the_files_of_the_package_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dist = tmp_path / "dist"
    dist.mkdir()
    names = ["hami_core-0.2.0-py3-none-any.whl", "hami_onnx-0.2.0-py3-none-any.whl", "hami_onnx-0.2.0.tar.gz"]
    for name in names:
        (dist / name).write_bytes(b"x")
    files = releases.of_package(sorted(dist.iterdir()), "hami-onnx")
    text = Ready("hami-onnx", "0.2.0", releases.tag("hami-onnx", "0.2.0"), files).text()
    assert text.splitlines()[2].startswith("  dist/hami_onnx-0.2.0-py3-none-any.whl  0 kB  sha256 2d711642b726b044")
    assert "git tag hami-onnx-v0.2.0 && git push origin HEAD hami-onnx-v0.2.0" in text
    assert text.endswith("  twine upload dist/hami_onnx-0.2.0-py3-none-any.whl dist/hami_onnx-0.2.0.tar.gz")


def test_every_package_here_can_be_bumped(tmp_path: Path) -> None:
    for package, folder in releases.projects(ROOT).items():
        text = (folder / "pyproject.toml").read_text("utf-8")
        assert len(VERSION_LINE.findall(text)) >= 1, package
        changed = VERSION_LINE.sub('version = "9.9.9"', text, count=1)
        (tmp_path / "pyproject.toml").write_text(changed)
        assert pyproject(tmp_path)["project"]["version"] == "9.9.9"
        assert changelog.newest(folder / "CHANGELOG.md") is not None
