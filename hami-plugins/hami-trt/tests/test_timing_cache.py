"""The file of the timing cache, with a stand-in for a build's configuration: TensorRT-RTX measures nothing."""

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
    """Takes what a build of its own version wrote, refuses the rest, and adds one measurement."""

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
    library = SimpleNamespace(times_tactics=True)
    cache, config = TimingCache(SimpleNamespace(owner="Owner", timing_cache=path, library=library)), Configuration()
    cache.give_to(config)
    cache.keep(config)
    return config


def test_what_is_measured_is_kept_and_given_to_the_next_build(tmp_path):
    path = tmp_path / "new" / "timing.cache"
    assert built_with(path).given == b""
    assert built_with(path).given == b"v1."
    assert path.read_bytes() == b"v1.."
    assert [file.name for file in path.parent.iterdir()] == ["timing.cache"]


def test_a_damaged_file_counts_as_empty(tmp_path, caplog):
    path = tmp_path / "timing.cache"
    path.write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING, "hami.trt"):
        assert built_with(path).given == b""
    assert f'Owner: the timing cache "{path}" is of another version or damaged; it begins anew' in caplog.text
    assert path.read_bytes() == b"v1."


def test_a_file_that_cannot_be_written_does_not_spoil_the_build(tmp_path, caplog):
    (tmp_path / "file").write_bytes(b"")
    with caplog.at_level(logging.WARNING, "hami.trt"):
        built_with(tmp_path / "file" / "timing.cache")
    assert "cannot be written" in caplog.text


def test_a_file_that_cannot_be_read_does_not_spoil_the_build(tmp_path, caplog, monkeypatch):
    def read_bytes(path):
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "timing.cache"
    path.write_bytes(b"v1.")
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    with caplog.at_level(logging.WARNING, "hami.trt"):
        assert built_with(path).given == b""
    assert f'Owner: the timing cache "{path}" cannot be read, it begins anew: [Errno 13]' in caplog.text


@pytest.mark.parametrize("times_tactics", [True, False])
def test_without_a_file_nothing_is_done(times_tactics):
    given = SimpleNamespace(owner="Owner", timing_cache=None, library=SimpleNamespace(times_tactics=times_tactics))
    TimingCache(given).give_to(None)
    TimingCache(given).keep(None)
