"""Builds: the same bytes from two folders, complete or not at all, in parallel."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest
from _lib import dist
from _lib.paths import ROOT
from hami_build import pep517, sdist, wheel_file, wheels
from hami_build.parallel import in_parallel
from hami_build.project import read
from hami_build.steps import Failure

PLUGIN = dist.PLUGINS / "hami-ocr"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of finished files."""
    monkeypatch.setattr(dist, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(dist, "FINISHED", tmp_path / "cache" / "wheels")
    return tmp_path / "cache"


def elsewhere(folder: Path) -> Path:
    """Copy the plugin to another place and name, with other dates and modes."""
    copy = Path(shutil.copytree(PLUGIN, folder / "another" / "place", copy_function=shutil.copyfile))
    (copy / "README.md").chmod(0o600)
    return copy


def test_two_folders_build_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for number, source in enumerate((PLUGIN, elsewhere(tmp_path))):
        place = tmp_path / f"made{number}"
        made.append([*wheels.build(source, [], place), sdist.build(source, place)])
    for one, other in zip(*made, strict=True):
        assert one.name == other.name
        assert one.read_bytes() == other.read_bytes()


def test_leftovers_of_an_interrupted_build_are_ignored(cache: Path) -> None:
    left = cache / "build" / f"{dist.key_of(PLUGIN)}-any-work"
    (left / "raw").mkdir(parents=True)
    (left / "raw" / "hami_ocr-0.0.0-py3-none-any.whl").write_bytes(b"half of it")
    wheel = dist.build_plugin(PLUGIN, dist.PURE)
    assert wheel_file.metadata(wheel_file.read(wheel))["Name"] == "hami-ocr"
    assert not left.exists()


def test_failed_build_leaves_nothing_that_looks_finished(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(wheel_file, "finish", full)
    with pytest.raises(OSError, match="no space left"):
        dist.build_plugin(PLUGIN, dist.PURE)
    assert not (cache / "wheels").exists()


def test_finished_wheel_is_not_built_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = dist.build_plugin(PLUGIN, dist.PURE)
    monkeypatch.setattr(wheels, "build", None)
    assert dist.build_plugin(PLUGIN, dist.PURE) == first


def test_unknown_plugin_is_reported_with_the_known_ones() -> None:
    with pytest.raises(Failure, match='unknown plugin "hami-nonsense"; hami-plugins/ contains hami-accel, hami-'):
        dist.folders(["hami-nonsense"])


def test_jobs_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    both = threading.Barrier(2)
    in_parallel("testing", {"one": both.wait, "other": both.wait})
    assert not both.broken


def test_error_of_a_job_is_raised() -> None:
    def fails() -> None:
        raise Failure("it failed")

    with pytest.raises(Failure, match="it failed"):
        in_parallel("testing", {"fails": fails, "works": int})


def names_in(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


@pytest.mark.parametrize("project", [ROOT, PLUGIN], ids=["hami-core", PLUGIN.name])
def test_source_distribution_contains_the_files_of_its_cache_key(project: Path) -> None:
    """Any change of these files makes a new one."""
    known = {str(file.relative_to(project)) for file in dist.sources(project)}
    assert names_in(dist.build_sdist(project)) <= {*known, "PKG-INFO"}


@pytest.fixture
def checkout(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate checkout with the files for the source distribution of the core."""
    root = tmp_path / "checkout"
    for file in dist.sources(ROOT):
        copy = root / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    for command in ("init", "--quiet"), ("add", "--all"):
        subprocess.run(["git", *command], cwd=root, check=True)
    for name, value in {"ROOT": root, "CACHE": cache}.items():
        monkeypatch.setattr(dist, name, value)
    return root


def test_source_distribution_contains_only_tracked_files(checkout: Path) -> None:
    before = names_in(dist.build_sdist(checkout))
    shutil.rmtree(dist.FINISHED)
    for stray in "notes.txt", "hami-core/notes.txt", "hami-core/python/hami/_notes.py":
        (checkout / stray).write_text("mine alone")
    assert names_in(dist.build_sdist(checkout)) == before
    assert {"PKG-INFO", "CMakeLists.txt", "hami-core/python/hami/__init__.py"} <= before


def test_build_backend_leaves_out_files_beside_the_core(checkout: Path) -> None:
    (checkout / "notes").mkdir()
    for stray in "notes.txt", "notes/notes.txt":
        (checkout / stray).write_text("mine alone")
    made = names_in(pep517.build("build_sdist", read(ROOT).backend, checkout, checkout.parent / "made", "sdist-beside"))
    assert made == names_in(dist.build_sdist(checkout))


def test_without_git_every_file_is_a_source(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("")
    assert dist.sources(tmp_path) == [tmp_path / "one.py"]


@pytest.mark.parametrize(
    ("implementation", "pointer", "told"),
    [
        ("PyPy", 8, "this is PyPy 3.11.13, 64 bits: /usr/bin/python"),
        ("Python", 4, "this is Python 3.11.13, 32 bits: /usr/bin/python"),
        ("Python", 8, ""),
        ("Anaconda", 8, ""),
    ],
)
def test_unsupported_python_fails_before_compiling(implementation: str, pointer: int, told: str) -> None:
    found = {"INTERPRETER_ID": implementation, "VERSION": "3.11.13", "EXECUTABLE": "/usr/bin/python"}
    given = [f"-DCMAKE_SIZEOF_VOID_P={pointer}", *(f"-DPython_{name}={value}" for name, value in found.items())]
    command = [Path(sys.executable).with_name("cmake"), *given, "-P", ROOT / "hami-core/python/require_python.cmake"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == bool(told)
    assert told in " ".join(done.stderr.split())
    assert ("hami-core needs CPython 3.10 or newer, 64 bits" in " ".join(done.stderr.split())) == bool(told)


def test_next_steps_depend_on_the_files_in_dist() -> None:
    """A run for one plugin removes an outdated core from dist/ and does not build a new one."""
    plugin = Path("dist/hami_onnx-0.1.0-py3-none-any.whl")
    assert "ci/wheels --python current" in dist.what_to_do([plugin, Path("dist/hami_core-0.1.0.tar.gz")])
    assert dist.what_to_do([plugin, Path("dist/hami_core-0.1.0-cp312-cp312-linux.whl")]).endswith(" hami-core")


@pytest.mark.skipif(shutil.which("c++") is None, reason="no compiler of C++ is installed")
def test_a_folder_named_as_one_of_the_sources_can_contain_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "lang").mkdir()
    (tmp_path / "lang" / "hami").symlink_to(ROOT)
    programs = Path(sys.executable).parent
    command = [programs / "cmake", "-S", tmp_path / "lang" / "hami", "-B", tmp_path / "build", "-G", "Ninja"]
    command += ["-DHAMI_PYTHON=OFF", "-DHAMI_TESTS=OFF", f"-DCMAKE_MAKE_PROGRAM={programs / 'ninja'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
