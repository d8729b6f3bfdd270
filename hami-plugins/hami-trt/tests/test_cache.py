"""The cache: an engine is built once, and used again only if it is intact and has the same recipe."""

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
from hami_trt._atomic_write import write_atomically
from hami_trt._cache import StoredEngine, find_or_build, path_in_cache, read, sidecar_path

RECIPE = {"model": "abc", "max": "4"}
OTHER = {"model": "abc", "max": "8"}


class Builder:
    """Builds engines whose content is their number."""

    def __init__(self, recipe=RECIPE):
        self.recipe = recipe
        self.count = 0

    def __call__(self) -> StoredEngine:
        self.count += 1
        return StoredEngine(b"engine %d" % self.count, self.recipe, {"shapes": {}})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "model.trt"


@pytest.fixture
def build():
    return Builder()


def get(path, build):
    stored, built = find_or_build(path, build.recipe, build, "Owner")
    assert stored.recipe == build.recipe
    return stored.blob, built


def test_a_cached_engine_is_not_built_again(path, build):
    assert get(path, build) == (b"engine 1", True)
    assert get(path, build) == (b"engine 1", False)
    assert build.count == 1


def test_an_engine_that_is_replaced_during_a_read_is_read_again(path, build, monkeypatch):
    get(path, build)
    read_bytes = Path.read_bytes

    def slow(file):
        content = read_bytes(file)
        monkeypatch.undo()
        _cache.write(path, StoredEngine(b"the new engine", OTHER, {}))
        return content

    monkeypatch.setattr(Path, "read_bytes", slow)
    assert read(path) == StoredEngine(b"the new engine", OTHER, {})


def test_brackets_in_a_file_name_are_not_a_pattern(tmp_path, build):
    part = tmp_path / ".net[1].trt.abc.part"
    part.write_bytes(b"half an engine")
    get(tmp_path / "net[1].trt", build)
    assert not part.exists()


def test_a_part_file_of_another_user_does_not_stop_a_build(path, build, monkeypatch):
    path.parent.mkdir()
    path.parent.joinpath(f".{path.name}.abc.part").write_bytes(b"half an engine")
    unlink = Path.unlink

    def denied(file, **options):
        if file.suffix == ".part":
            raise PermissionError(1, "Operation not permitted", str(file))
        unlink(file, **options)

    monkeypatch.setattr(Path, "unlink", denied)
    assert get(path, build) == (b"engine 1", True)


def test_a_cached_engine_is_read_without_the_lock(path, build, monkeypatch):
    get(path, build)
    monkeypatch.setattr(_cache, "_locked", None)  # as in a folder that cannot be written
    assert get(path, build) == (b"engine 1", False)


def test_the_sidecar_describes_the_engine(path, build):
    get(path, build)
    content = json.loads(sidecar_path(path).read_text())
    assert sidecar_path(path).name == "model.trt.json"
    assert content["recipe"] == RECIPE
    assert content["engine"]["size"] == len(b"engine 1")
    assert content["shapes"] == {}
    assert read(path) == StoredEngine(b"engine 1", RECIPE, {"shapes": {}})


def test_another_recipe_is_built_again_and_the_log_has_the_reason(path, build, caplog):
    get(path, build)
    with caplog.at_level(logging.WARNING, "hami.trt"):
        assert get(path, Builder(OTHER)) == (b"engine 1", True)
    assert f'Owner: "{path}" is built again: max is "4", expected "8"' in caplog.messages


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def damage(path):
    path.write_bytes(b"x" + path.read_bytes()[1:])


def remove_sidecar(path):
    sidecar_path(path).unlink()


def garble_sidecar(path):
    sidecar_path(path).write_text('{"engine": ')


def change_recipe(path):
    content = json.loads(sidecar_path(path).read_text())
    sidecar_path(path).write_text(json.dumps({**content, "recipe": OTHER}))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (truncate, 'it has 7 bytes, but "model.trt.json" says 8: it is truncated or another file'),
        (damage, 'its content does not match "model.trt.json": it is damaged or another file'),
        (remove_sidecar, 'it has no sidecar "model.trt.json" with its recipe'),
        (garble_sidecar, 'its sidecar "model.trt.json" cannot be read: '),
        (change_recipe, 'max is "8", expected "4"'),
    ],
)
def test_a_damaged_engine_or_one_of_another_recipe_is_built_again(path, build, caplog, harm, reason):
    get(path, build)
    harm(path)
    with caplog.at_level(logging.WARNING, "hami.trt"):
        assert get(path, build) == (b"engine 2", True)
    assert any(message.startswith(f'Owner: "{path}" is built again: {reason}') for message in caplog.messages)
    assert get(path, build) == (b"engine 2", False)


def test_a_failed_build_keeps_the_previous_engine(path, build):
    get(path, build)

    def fails():
        raise hami.ConfigError("no")

    with pytest.raises(hami.ConfigError, match="no"):
        find_or_build(path, OTHER, fails, "Owner")
    assert get(path, build) == (b"engine 1", False)


def test_a_waiting_process_uses_the_engine_that_another_one_built(path, build):
    waiting, results = threading.Event(), []

    class WaitHandler(logging.Handler):
        def emit(self, record):
            if "waiting for it" in record.getMessage():
                waiting.set()

    log, handler = logging.getLogger("hami.trt"), WaitHandler()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    path.parent.mkdir()
    thread = threading.Thread(target=lambda: results.append(get(path, build)))
    try:
        with filelock.FileLock(f"{path}.lock"):  # as another process does
            thread.start()
            assert waiting.wait(60)
            _cache.write(path, StoredEngine(b"engine of the other", RECIPE, {}))
        thread.join()
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
    assert results == [(b"engine of the other", False)]
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


def test_a_killed_build_is_repeated_and_releases_its_lock(path, build):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "building\n"
        with pytest.raises(filelock.Timeout):
            filelock.FileLock(f"{path}.lock").acquire(timeout=0)
        process.send_signal(signal.SIGKILL)
    assert get(path, build) == (b"engine 1", True)
    assert sorted(file.name for file in path.parent.iterdir() if not file.name.endswith(".lock")) == [
        "model.trt",
        "model.trt.json",
    ]


def test_an_invalid_cache_path_is_an_error_before_the_build(tmp_path, build):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder.trt" / "x").mkdir(parents=True)
    for path, reason in (
        (tmp_path / "file" / "model.trt", f'"{tmp_path / "file"}" is not a folder'),
        (tmp_path / "file" / "below" / "model.trt", "Not a directory"),
        (tmp_path / "folder.trt", f'"{tmp_path / "folder.trt"}" is a folder'),
    ):
        with pytest.raises(hami.ConfigError) as caught:
            get(path, build)
        assert str(caught.value) == (
            f'Owner: cannot write the engine to "{path}" ("model::cache"): {reason}; '
            "name a file or a folder that this process can write"
        )
    assert build.count == 0


def test_a_folder_that_cannot_be_written_is_an_error(path, build, monkeypatch):
    def denied(**given):
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(_cache.tempfile, "TemporaryFile", denied)  # root can write a folder of any mode
    with pytest.raises(hami.ConfigError, match=r'\("model::cache"\): Permission denied; name a file or a folder'):
        get(path, build)
    assert build.count == 0


def test_a_full_disk_leaves_no_partial_engine(path, build, monkeypatch):
    def full(handle):
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(hami.ConfigError, match="No space left on device"):
            get(path, build)
    assert [file.name for file in path.parent.iterdir() if not file.name.endswith(".lock")] == []
    assert get(path, build) == (b"engine 2", True)


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        ("a.trt", "a.trt"),
        ("folder/a.engine", "folder/a.engine"),
        ("a.plan", "a.plan"),
        ("folder", "folder/model-KEY.trt"),
        ("is.a.folder.trt", "is.a.folder.trt/model-KEY.trt"),
    ],
)
def test_a_folder_has_one_file_for_each_recipe(tmp_path, cache, expected):
    (tmp_path / "is.a.folder.trt").mkdir()
    key = _cache.recipe_key(RECIPE)[:16]
    assert path_in_cache(tmp_path / cache, Path("some/model.onnx"), RECIPE) == tmp_path / expected.replace("KEY", key)
    assert _cache.recipe_key(RECIPE) != _cache.recipe_key(OTHER)


def test_a_stored_file_has_the_mode_of_the_umask_which_never_changes(tmp_path, monkeypatch):
    """The umask is that of all threads: while it is another one, files of other threads get another mode."""
    umask = os.umask(0o077)
    try:
        with monkeypatch.context() as patched:
            patched.delattr(os, "umask")
            write_atomically(tmp_path / "engine", b"content")
    finally:
        os.umask(umask)
    assert (tmp_path / "engine").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["engine"]
