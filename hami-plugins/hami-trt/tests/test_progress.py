"""The progress of a build: what a bar shows, what a log gets, and that it can be interrupted."""

from __future__ import annotations

import io
import logging
import signal
import threading

import hami
import models
import pytest
from building import engine_of, needs_rtx, options

from hami_trt import _progress
from hami_trt._build import build
from hami_trt._cache import sidecar_of
from hami_trt._progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(*calls):
    """What is drawn after each call: "start a None 2", "step a 0", "finish a"."""
    seen = []
    progress = Progress(lambda phase, done: seen.append((phase, round(done, 3))))
    for call in calls:
        name, phase, *rest = call.split()
        given = [None if value == "None" else int(value) if value.isdigit() else value for value in rest]
        getattr(progress, name)(phase, *given)
    return seen


def test_a_phase_counts_in_its_parent_as_the_step_that_it_is_in():
    assert drawn(
        "start all None 4", "step all 0", "start part all 2", "step part 0", "finish part", "step all 1", "finish all"
    ) == [
        ("all", 0.0),
        ("all", 0.25),
        ("part", 0.25),
        ("part", 0.375),
        ("all", 0.375),
        ("all", 0.5),
        ("all", 0.5),
    ]


def test_what_is_shown_never_goes_back():
    shares = [done for _, done in drawn("start all None 2", "start a all 4", "step a 3", "finish a", "start b all 4")]
    assert shares == sorted(shares)


def test_a_library_that_tells_less_than_it_should_does_no_harm():
    assert drawn("step none 3", "finish none", "start zero None 0")[-1] == ("zero", 1.0)


@needs_rtx
def test_a_terminal_gets_a_bar_that_goes_away(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(_progress, "PAUSE", 0)
    monkeypatch.setenv("COLUMNS", "60")
    build(options(models.convolution(tmp_path / "model.onnx")))
    lines = terminal.getvalue().split("\r\x1b[K")
    assert lines[0] == ""
    assert lines[1].startswith("building model.onnx [..............................]   0%  ")
    assert any("####" in line for line in lines)
    assert lines[-1] == ""
    assert max(map(len, lines)) < 60


@needs_rtx
def test_elsewhere_the_log_gets_a_line_each_tenth_and_nothing_is_printed(tmp_path, caplog, capfd):
    with caplog.at_level(logging.INFO, "hami.trt"):
        build(options(models.convolution(tmp_path / "model.onnx")))
    told = [record.message for record in caplog.records if record.message.startswith("building model.onnx: ")]
    assert 1 < len(told) <= 10
    assert capfd.readouterr() == ("", "")


@needs_rtx
def test_an_interrupted_build_stops_and_leaves_nothing_that_counts(tmp_path, monkeypatch):
    model, cache = models.convolution(tmp_path / "model.onnx"), tmp_path / "model.trt"
    with monkeypatch.context() as patch:

        def interrupt(progress, name, step):
            if not progress.stopped.is_set():
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # as Ctrl-C does
                assert progress.stopped.wait(60)

        patch.setattr(Progress, "step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine_of(options(model), cache)
    assert not cache.exists()
    assert not sidecar_of(cache).exists()
    assert engine_of(options(model), cache).new


@needs_rtx
def test_a_build_stops_when_nobody_waits_for_its_node_any_more(tmp_path, monkeypatch):
    model, cache = models.convolution(tmp_path / "model.onnx"), tmp_path / "model.trt"
    ready = hami.Event()

    def leave(progress, name, step):
        ready.fail(KeyboardInterrupt())  # as the node does when Ctrl-C ended the making of its pipe
        assert progress.stopped.is_set()

    monkeypatch.setattr(Progress, "step", leave)
    with pytest.raises(hami.ConfigError, match="cannot build"):
        engine_of(options(model, ready=ready), cache)
    assert not cache.exists()
    assert not sidecar_of(cache).exists()
