"""The timing cache file, with a mock of the builder configuration: TensorRT-RTX has no timing cache."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from hami_trt._timing_cache import TimingCache


class Measured(bytes):
    def serialize(self) -> bytes:
        return bytes(self)


class Configuration:
    """Accepts a timing cache of its own version, rejects others, and adds one measurement."""

    def __init__(self) -> None:
        self.given = None

    def create_timing_cache(self, content: bytes) -> Measured:
        return Measured(content)

    def set_timing_cache(self, cache: Measured, ignore_mismatch: bool) -> bool:
        self.given = cache
        return cache == b"" or cache.startswith(b"v1")

    def get_timing_cache(self) -> Measured:
        return Measured(b"v1" + self.given.removeprefix(b"v1") + b".")


def built_with(path) -> Configuration:
    library = SimpleNamespace(has_timing_cache=True)
    timing_cache, config = (
        TimingCache(SimpleNamespace(owner="Owner", timing_cache=path, library=library)),
        Configuration(),
    )
    timing_cache.load_into(config)
    timing_cache.save_from(config)
    return config


def test_measurements_are_saved_and_loaded_by_the_next_build(tmp_path):
    path = tmp_path / "new" / "timing.cache"
    assert built_with(path).given == b""
    assert built_with(path).given == b"v1."
    assert path.read_bytes() == b"v1.."
    assert [file.name for file in path.parent.iterdir()] == ["timing.cache"]


def test_a_damaged_file_is_replaced(tmp_path, caplog):
    path = tmp_path / "timing.cache"
    path.write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING, "hami.trt"):
        assert built_with(path).given == b""
    assert (
        f'Owner: the timing cache "{path}" is damaged or of another version; a new one is used instead' in caplog.text
    )
    assert path.read_bytes() == b"v1."


def test_a_file_that_cannot_be_written_does_not_fail_the_build(tmp_path, caplog):
    (tmp_path / "file").write_bytes(b"")
    with caplog.at_level(logging.WARNING, "hami.trt"):
        built_with(tmp_path / "file" / "timing.cache")
    assert "cannot be written" in caplog.text


def test_a_file_that_cannot_be_read_does_not_fail_the_build(tmp_path, caplog, monkeypatch):
    def read_bytes(path):
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "timing.cache"
    path.write_bytes(b"v1.")
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    with caplog.at_level(logging.WARNING, "hami.trt"):
        assert built_with(path).given == b""
    assert (
        f'Owner: the timing cache "{path}" cannot be read ([Errno 13] Permission denied); a new one is used'
        in caplog.text
    )


@pytest.mark.parametrize("has_timing_cache", [True, False])
def test_without_a_file_the_timing_cache_does_nothing(has_timing_cache):
    given = SimpleNamespace(
        owner="Owner", timing_cache=None, library=SimpleNamespace(has_timing_cache=has_timing_cache)
    )
    TimingCache(given).load_into(None)
    TimingCache(given).save_from(None)
