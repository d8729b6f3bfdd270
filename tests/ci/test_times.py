"""ci/wheels records its duration; the kind of run follows from the files that are newer than its start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from _lib import audit_results, times
from hami_build import zig

# Executes another program in the same process, as the commands do.
TWICE = """
import os, sys, time
sys.path.insert(0, {ci!r})
if len(sys.argv) == 1:
    os.execv(sys.executable, [sys.executable, "-c", os.environ["CODE"], str(time.monotonic())])
from _lib import times
print(times.running_s() >= time.monotonic() - float(sys.argv[1]))
"""
CORE = "hami_core-0.1.0-{0}-{0}-manylinux2014_x86_64.whl"
PLUGIN = "hami_onnx-0.1.0-py3-none-any.whl"
PREPARED = {
    "tools": "envs/tools/hami-stamp",
    "library": f"zig/{zig.TARGET}/warm",
    "core": f"build/core-{zig.HOST}/hami-core/libhami_core.a",
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which everything was prepared long ago."""
    monkeypatch.setattr(times, "CACHE", tmp_path)
    monkeypatch.setattr(times, "FILE", tmp_path / "times.jsonl")
    monkeypatch.setattr("hami_build.cache._chosen", tmp_path)
    for name in PREPARED.values():
        write(tmp_path / name, old=True)
    return tmp_path


def write(path: Path, *, old: bool) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    if old:
        os.utime(path, (0, 0))
    return path


def kinds(cache: Path, *new: str, old: tuple[str, ...] = ()) -> list[str]:
    """Return the known kinds of runs after one that built `new` wheels; `old` existed before."""
    made = [write(cache / "dist" / name, old=False) for name in new]
    times.record([*made, *(write(cache / "dist" / name, old=True) for name in old)])
    return list(times.recorded())


def test_time_counts_from_the_start_of_the_command() -> None:
    code = TWICE.format(ci=str(Path(times.__file__).parents[1]))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**os.environ, "CODE": code}, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_run_that_made_everything_for_one_python_is_the_first(cache: Path) -> None:
    for name in PREPARED.values():
        os.utime(cache / name)
    assert kinds(cache, CORE.format("cp312"), PLUGIN) == ["first run in a fresh checkout, for one CPython"]


def test_run_that_made_nothing_is_once_more(cache: Path) -> None:
    assert kinds(cache, old=(CORE.format("cp312"), PLUGIN)) == ["repeated run, without changes"]


def test_run_for_other_pythons_counts_these(cache: Path) -> None:
    new = [CORE.format(tag) for tag in ("cp310", "cp311", "cp313")]
    assert kinds(cache, *new, old=(CORE.format("cp312"), PLUGIN)) == ["for 3 more CPythons"]


@pytest.mark.parametrize("name", PREPARED)
def test_run_that_made_something_else_is_none_of_these(cache: Path, name: str) -> None:
    os.utime(cache / PREPARED[name])
    assert kinds(cache, CORE.format("cp312")) == []
    assert times.FILE.read_text().count("\n") == 1


def test_the_last_run_of_a_kind_counts(cache: Path) -> None:
    kinds(cache)
    first = times.recorded()["repeated run, without changes"]
    kinds(cache)
    last = times.recorded()["repeated run, without changes"]
    assert last.seconds >= first.seconds > 0
    assert last.busy >= first.busy > 0


def test_times_are_a_table() -> None:
    text = audit_results.render_times({"`ci/wheels`, repeated run": "3 (2)"})
    assert text.startswith("## Times\n\nWall time in seconds on ")
    assert text.endswith("| what | seconds |\n|---|---:|\n| `ci/wheels`, repeated run | 3 (2) |\n")
