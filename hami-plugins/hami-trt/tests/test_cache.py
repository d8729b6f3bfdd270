"""The cache: an engine is built once, taken again only if it is of the same recipe, and whole."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import filelock
import hami
import pytest

from hami_trt import _cache
from hami_trt._cache import Stored, find_or_build, place_of, read, sidecar_of

RECIPE = {"model": "abc", "max": "4"}
OTHER = {"model": "abc", "max": "8"}


class Builder:
    """Builds engines whose content tells how many were built before."""

    def __init__(self, recipe=RECIPE):
        self.recipe = recipe
        self.count = 0

    def __call__(self) -> Stored:
        self.count += 1
        return Stored(b"engine %d" % self.count, self.recipe, {"shapes": {}})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "model.trt"


@pytest.fixture
def build():
    return Builder()


def got(path, build):
    stored, new = find_or_build(path, build.recipe, build, "Owner")
    assert stored.recipe == build.recipe
    return stored.blob, new


def test_the_second_start_reads_without_building(path, build):
    assert got(path, build) == (b"engine 1", True)
    assert got(path, build) == (b"engine 1", False)
    assert build.count == 1


def test_an_engine_that_is_replaced_while_it_is_read_is_read_again(path, build, monkeypatch):
    got(path, build)
    read_bytes = Path.read_bytes

    def slow(file):
        content = read_bytes(file)
        monkeypatch.undo()
        _cache.write(path, Stored(b"the new engine", OTHER, {}))
        return content

    monkeypatch.setattr(Path, "read_bytes", slow)
    assert read(path) == Stored(b"the new engine", OTHER, {})


def test_brackets_in_a_name_are_brackets(tmp_path, build):
    half = tmp_path / ".net[1].trt.abc.part"
    half.write_bytes(b"half an engine")
    got(tmp_path / "net[1].trt", build)
    assert not half.exists()


def test_what_an_interrupted_build_of_another_left_need_not_go(path, build, monkeypatch):
    path.parent.mkdir()
    path.parent.joinpath(f".{path.name}.abc.part").write_bytes(b"half an engine")
    unlink = Path.unlink

    def refused(file, **options):
        if file.suffix == ".part":
            raise PermissionError(1, "Operation not permitted", str(file))
        unlink(file, **options)

    monkeypatch.setattr(Path, "unlink", refused)
    assert got(path, build) == (b"engine 1", True)


def test_what_is_there_is_read_without_the_lock(path, build, monkeypatch):
    got(path, build)
    monkeypatch.setattr(_cache, "_locked", None)  # as where nothing can be written
    assert got(path, build) == (b"engine 1", False)


def test_the_file_beside_the_engine_is_readable(path, build):
    got(path, build)
    told = json.loads(sidecar_of(path).read_text())
    assert sidecar_of(path).name == "model.trt.json"
    assert told["recipe"] == RECIPE
    assert told["engine"]["size"] == len(b"engine 1")
    assert told["shapes"] == {}
    assert read(path) == Stored(b"engine 1", RECIPE, {"shapes": {}})


def test_another_recipe_is_built_anew_and_the_log_says_why(path, build, caplog):
    got(path, build)
    with caplog.at_level(logging.WARNING, "hami.trt"):
        assert got(path, Builder(OTHER)) == (b"engine 1", True)
    assert f'Owner: "{path}" is built anew: max is "4", wanted "8"' in caplog.messages


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def damage(path):
    path.write_bytes(b"x" + path.read_bytes()[1:])


def forget(path):
    sidecar_of(path).unlink()


def garble(path):
    sidecar_of(path).write_text('{"engine": ')


def lie(path):
    told = json.loads(sidecar_of(path).read_text())
    sidecar_of(path).write_text(json.dumps({**told, "recipe": OTHER}))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (truncate, 'it has 7 bytes, "model.trt.json" says 8: truncated, or another file'),
        (damage, 'its content is not what "model.trt.json" says: damaged, or another file'),
        (forget, 'there is no "model.trt.json" beside it that says what it was made of'),
        (garble, '"model.trt.json" beside it is not readable: '),
        (lie, 'max is "8", wanted "4"'),
    ],
)
def test_what_is_not_whole_or_not_ours_is_never_taken(path, build, caplog, harm, reason):
    got(path, build)
    harm(path)
    with caplog.at_level(logging.WARNING, "hami.trt"):
        assert got(path, build) == (b"engine 2", True)
    assert any(message.startswith(f'Owner: "{path}" is built anew: {reason}') for message in caplog.messages)
    assert got(path, build) == (b"engine 2", False)


def test_a_build_that_fails_leaves_the_engine_that_was_there(path, build):
    got(path, build)

    def fails():
        raise hami.ConfigError("no")

    with pytest.raises(hami.ConfigError, match="no"):
        find_or_build(path, OTHER, fails, "Owner")
    assert got(path, build) == (b"engine 1", False)


def test_who_waits_takes_what_the_other_built(path, build):
    waiting, answers = threading.Event(), []

    class Waits(logging.Handler):
        def emit(self, record):
            if "waiting for it" in record.getMessage():
                waiting.set()

    log, handler = logging.getLogger("hami.trt"), Waits()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    path.parent.mkdir()
    thread = threading.Thread(target=lambda: answers.append(got(path, build)))
    try:
        with filelock.FileLock(f"{path}.lock"):  # as another process holds it
            thread.start()
            assert waiting.wait(60)
            _cache.write(path, Stored(b"of the other", RECIPE, {}))
        thread.join()
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
    assert answers == [(b"of the other", False)]
    assert build.count == 0


KILLED = """
import sys
from pathlib import Path
from hami_trt._cache import find_or_build

def build():
    (Path(sys.argv[1]).parent / ".model.trt.abc.part").write_bytes(b"half an engine")
    print("building", flush=True)
    sys.stdin.read()

find_or_build(Path(sys.argv[1]), {}, build, "Owner")
"""


def test_a_build_that_was_killed_is_done_anew_and_its_lock_holds_nobody(path, build):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "building\n"
        with pytest.raises(filelock.Timeout):
            filelock.FileLock(f"{path}.lock").acquire(timeout=0)
        process.send_signal(signal.SIGKILL)
    assert got(path, build) == (b"engine 1", True)
    assert sorted(file.name for file in path.parent.iterdir() if not file.name.endswith(".lock")) == [
        "model.trt",
        "model.trt.json",
    ]


def test_a_place_that_cannot_be_written_is_told_before_the_build(tmp_path, build):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder.trt" / "x").mkdir(parents=True)
    for path, reason in (
        (tmp_path / "file" / "model.trt", f'"{tmp_path / "file"}" is no folder'),
        (tmp_path / "file" / "below" / "model.trt", "Not a directory"),
        (tmp_path / "folder.trt", f'"{tmp_path / "folder.trt"}" is a folder'),
    ):
        with pytest.raises(hami.ConfigError) as caught:
            got(path, build)
        assert str(caught.value) == (
            f'Owner: the engine cannot be kept as "{path}" ("model::cache"): {reason}; '
            "name a file or a folder that this process may write"
        )
    assert build.count == 0


def test_a_folder_that_may_not_be_written_is_told(path, build, monkeypatch):
    def denied(**given):
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(_cache.tempfile, "TemporaryFile", denied)  # a mode of the folder would not keep root out
    with pytest.raises(hami.ConfigError, match=r'\("model::cache"\): Permission denied; name a file or a folder'):
        got(path, build)
    assert build.count == 0


def test_a_disk_that_gets_full_leaves_no_half_engine(path, build, monkeypatch):
    def full(handle):
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(hami.ConfigError, match="No space left on device"):
            got(path, build)
    assert [file.name for file in path.parent.iterdir() if not file.name.endswith(".lock")] == []
    assert got(path, build) == (b"engine 2", True)


@pytest.mark.parametrize(
    ("cache", "place"),
    [
        ("a.trt", "a.trt"),
        ("folder/a.engine", "folder/a.engine"),
        ("a.plan", "a.plan"),
        ("folder", "folder/model-KEY.trt"),
        ("is.a.folder.trt", "is.a.folder.trt/model-KEY.trt"),
    ],
)
def test_a_folder_has_one_engine_for_each_recipe(tmp_path, cache, place):
    (tmp_path / "is.a.folder.trt").mkdir()
    key = _cache.key_of(RECIPE)[:16]
    assert place_of(tmp_path / cache, Path("some/model.onnx"), RECIPE) == tmp_path / place.replace("KEY", key)
    assert _cache.key_of(RECIPE) != _cache.key_of(OTHER)
