"""ci/check: the table from paths to tests has a row for every file, and the parts of the command do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from _lib import affected, checkout, dist, environments, in_place, runners
from _lib.affected import Selection
from _lib.paths import REQUIREMENTS, ROOT, pyproject
from _lib.runners import Totals
from _lib.tiers import TIERS
from hami_build.steps import Failure

# Files in the root folder that no test reads; the static checks look at them.
UNTESTED = {
    ".clang-format",
    ".codespellrc",
    ".dockerignore",
    ".gitignore",
    ".pre-commit-config.yaml",
    "AGENTS.md",
    "CODE_OF_CONDUCT.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "LICENSE",
}


def chosen(path: str) -> list[str]:
    found = affected.affected(ROOT, [path])
    return sorted([*["C++"] * found.cpp, *found.files, *found.pages])


def test_every_file_has_a_row() -> None:
    missing = [name for name in checkout.known_files(ROOT) if affected.row_of(name) is None]
    assert missing == []


def test_every_file_in_the_root_folder_has_a_row_of_its_own() -> None:
    loose = {name for name in checkout.known_files(ROOT) if affected.row_of(name) == "[!/]*"}
    assert loose <= UNTESTED


def test_every_row_is_the_first_that_matches_some_file() -> None:
    names = checkout.known_files(ROOT)
    used = {affected.row_of(name) for name in names}
    assert [pattern for pattern in affected.TABLE if pattern not in used] == []


def test_a_file_in_an_unknown_folder_has_no_row() -> None:
    assert affected.row_of("newfolder/file.py") is None


def test_every_test_that_the_table_names_exists() -> None:
    named = {word for row in affected.TABLE.values() for word in row.split() if word.startswith(("tests/", "hami-"))}
    assert [file for file in (*affected.SMOKE_FILES, *named) if not (ROOT / file).exists()] == []


def test_every_tier_that_the_table_names_exists() -> None:
    assert {tier for row in affected.ELSEWHERE.values() for tier in row.split()} <= TIERS.keys()


def test_a_source_of_the_core_runs_the_unit_tests_and_the_smoke_tests() -> None:
    source = next(iter(sorted((ROOT / "hami-core" / "src").rglob("*.cpp"))))
    assert chosen(str(source.relative_to(ROOT))) == ["C++", *affected.SMOKE_FILES]


def test_a_test_runs_itself() -> None:
    assert chosen("tests/python/test_pipe.py") == ["tests/python/test_pipe.py"]


def test_a_document_runs_its_own_blocks() -> None:
    page = "hami-core/docs/tutorial/first-pipe.md"
    assert chosen(page) == [page]


def test_a_folder_stands_for_the_files_in_it() -> None:
    found = affected.affected(ROOT, ["tests/python/conftest.py", "tests/python/test_pipe.py"])
    assert found.files == {"tests/python"}


def test_a_file_that_is_gone_is_no_test_to_run() -> None:
    assert affected.affected(ROOT, ["tests/python/test_gone.py"]) == Selection()


def test_a_plugin_runs_its_own_tests() -> None:
    assert chosen("hami-plugins/hami-onnx/python/hami_onnx/plugin.py") == ["hami-plugins/hami-onnx/tests"]
    assert chosen("hami-plugins/hami-onnx/tests/test_plugin.py") == ["hami-plugins/hami-onnx/tests/test_plugin.py"]


def package(root: Path, **tests: str) -> Path:
    for name, text in tests.items():
        path = root / "tests" / "python" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("module", "found"),
    [
        ("hami/_loose_dict.py", ["named"]),
        ("hami/config/values.py", ["a", "b"]),
        ("hami/config/__init__.py", ["a", "b"]),
        ("hami/other.py", []),
    ],
)
def test_a_module_runs_the_tests_that_import_it_or_have_its_name(tmp_path: Path, module: str, found: list[str]) -> None:
    texts = {
        "test_a": "from hami.config import values\n",
        "test_b": "import hami.config.values\n",
        "test_loose_dict": "",
        "test_c": "import hami\n",
    }
    names = {"named": "test_loose_dict", "a": "test_a", "b": "test_b"}
    root = package(tmp_path, **texts)
    files = affected.affected(root, [f"hami-core/python/{module}"]).files
    assert sorted(files) == sorted(f"tests/python/{names[each]}.py" for each in found)


def test_everything_is_every_suite_of_a_development_build() -> None:
    found = affected.everything(ROOT)
    plugins = {f"hami-plugins/{folder.name}/tests" for folder in dist.folders()}
    assert found.cpp
    assert found.files == {"tests/python", "tests/abi", "tests/ci", *plugins}


# ---- what changed ----


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A branch that left main, with a committed, a changed, a deleted and a new file."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    commit(root, kept="1", changed="1", deleted="1")
    git(root, "checkout", "-q", "-b", "topic")
    commit(root, committed="1")
    git(root, "checkout", "-q", "main")
    commit(root, kept="2")  # on main alone
    git(root, "checkout", "-q", "topic")
    (root / "changed").write_text("2")
    (root / "deleted").unlink()
    (root / "new").write_text("1")
    return root


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def commit(root: Path, **files: str) -> None:
    for name, text in files.items():
        (root / name).write_text(text)
    git(root, "add", "--all")
    git(root, "commit", "-q", "-m", "x")


def test_changes_are_those_since_the_branch_left_main(repository: Path) -> None:
    assert checkout.changed_files(repository) == (["changed", "committed", "deleted", "new"], "main")


def test_without_main_the_last_commit_is_compared(repository: Path) -> None:
    git(repository, "branch", "-D", "main")
    assert checkout.changed_files(repository) == (["changed", "deleted", "new"], "the last commit")


def test_known_files_are_those_that_are_there_and_not_ignored(repository: Path) -> None:
    (repository / ".gitignore").write_text("new\n")
    assert checkout.known_files(repository) == [".gitignore", "changed", "committed", "kept"]


# ---- running tests in parallel ----


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two folders of tests; a file in one of them fails."""
    monkeypatch.setattr(runners, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    texts = {
        "one/test_good.py": "def test_it(): pass\n",
        "one/test_bad.py": "def test_it(): assert 0, 'because'\n",
        "two/test_good.py": "def test_it(): pass\n",  # a module of the same name
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_file_runs_and_only_a_run_that_fails_is_shown(suites: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = runners.test_files(suites, ["one", "two/test_good.py"])
    assert files == ["one/test_bad.py", "one/test_good.py", "two/test_good.py"]
    totals = Totals()
    runners.in_parallel(files, lambda folder: Path(sys.executable), totals)
    assert (totals.passed, totals.failed) == (2, ["one: one.test_bad::test_it"])
    shown = capsys.readouterr().out
    assert "because" in shown
    assert shown.count(" in ") == 1


def test_files_that_are_skipped_as_a_whole_have_not_failed(suites: Path) -> None:
    (suites / "one" / "test_peers.py").write_text("import pytest\npytest.importorskip('absent_package')\n")
    totals = Totals()
    runners.in_parallel(["one/test_peers.py"], lambda folder: Path(sys.executable), totals)
    assert (totals.passed, totals.failed, len(totals.skipped)) == (0, [], 1)


# ---- the development build ----


def test_metadata_name_everything_that_an_installed_wheel_would(tmp_path: Path) -> None:
    info = in_place.write_metadata(ROOT, tmp_path)
    project = pyproject(ROOT)["project"]
    assert info.name == f"hami_core-{project['version']}.dist-info"
    text = (info / "METADATA").read_text("utf-8")
    assert f"Version: {project['version']}\n" in text
    assert all(f"Requires-Dist: {each}" in text for each in project["dependencies"])
    assert "[console_scripts]\nhami = " in (info / "entry_points.txt").read_text("utf-8")


def test_a_plugin_without_its_requirements_is_left_out_with_the_reason() -> None:
    installed = ["numpy", "opencv_python_headless", "pillow", "pytest", "scikit-image"]
    usable, left_out = in_place.usable_plugins(installed)
    assert [folder.name for folder in usable] == ["hami-cuda", "hami-image", "hami-process", "hami-tensor"]
    assert left_out["hami-onnx"].startswith("ml-dtypes, onnx, onnxruntime not installed")


def test_a_module_is_replaced_only_where_it_is_new(tmp_path: Path) -> None:
    built, folder = tmp_path / "x.so", tmp_path / "package"
    folder.mkdir()
    built.write_text("1")
    in_place.place(built, folder)
    first = (folder / "x.so").stat().st_ino
    in_place.place(built, folder)
    assert (folder / "x.so").stat().st_ino == first
    built.unlink()
    built.write_text("2")
    in_place.place(built, folder)
    assert [path.name for path in folder.iterdir()] == ["x.so"]
    assert (folder / "x.so").read_text() == "2"


def test_the_environment_has_what_the_plugins_need() -> None:
    """Plugins with a requirements file of their own need more than an inner loop should install."""
    files = environments.included(REQUIREMENTS / "check.txt")
    lines = "\n".join(file.read_text("utf-8") for file in files).splitlines()
    plugins = (folder for folder in dist.folders() if not (REQUIREMENTS / f"{folder.name}.txt").is_file())
    for folder in plugins:
        project = pyproject(folder)["project"]
        wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
        ours = [each for each in wanted if not each.startswith(("hami-", "pytest"))]
        assert [each for each in ours if each not in lines] == [], folder.name


def test_included_requirements_change_the_key(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text("# comment\n-r some.txt\nb==1\n")
    (tmp_path / "some.txt").write_text("a==1\n")
    assert environments.included(tmp_path / "all.txt") == [tmp_path / "all.txt", tmp_path / "some.txt"]


def test_git_is_told_from_a_folder_without_it(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="not a git repository"):
        checkout.changed_files(tmp_path)
