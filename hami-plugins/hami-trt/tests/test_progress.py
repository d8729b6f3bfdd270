"""The progress of a build: the bar, the log, and interruption."""

from __future__ import annotations

import io
import logging
import signal
import threading

import hami
import models
import pytest
from building import needs_rtx, options, prepare_engine

from hami_trt._build import build
from hami_trt._cache import sidecar_path
from hami_trt._progress import BuildProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def draw(*calls):
    """Return what is drawn after each call; calls are texts: "start a None 2", "step a 0", "finish a"."""
    drawn = []
    progress = BuildProgress(lambda fraction, phase: drawn.append((phase, round(fraction, 3))))
    for call in calls:
        name, phase, *rest = call.split()
        given = [None if value == "None" else int(value) if value.isdigit() else value for value in rest]
        getattr(progress, name)(phase, *given)
    return drawn


def test_a_phase_counts_as_the_current_step_of_its_parent():
    assert draw(
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


def test_the_progress_never_decreases():
    fractions = [
        fraction for _, fraction in draw("start all None 2", "start a all 4", "step a 3", "finish a", "start b all 4")
    ]
    assert fractions == sorted(fractions)


def test_incomplete_reports_of_the_library_are_harmless():
    assert draw("step none 3", "finish none", "start zero None 0")[-1] == ("zero", 1.0)


@needs_rtx
def test_a_terminal_gets_a_bar_that_is_cleared(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("hami.progress.REDRAW_INTERVAL", 0)
    monkeypatch.setenv("COLUMNS", "60")
    build(options(models.convolution(tmp_path / "model.onnx")))
    lines = terminal.getvalue().split("\r\x1b[K")
    assert lines[0] == ""
    assert lines[1].startswith("building model.onnx [..............................]   0%")
    assert any("####" in line for line in lines)
    assert lines[-1] == ""
    assert max(map(len, lines)) < 60


@needs_rtx
def test_without_a_terminal_the_log_gets_a_line_for_each_tenth(tmp_path, caplog, capfd):
    with caplog.at_level(logging.INFO, "hami.trt"):
        build(options(models.convolution(tmp_path / "model.onnx")))
    lines = [record.message for record in caplog.records if record.message.startswith("building model.onnx: ")]
    assert 1 < len(lines) <= 10
    assert capfd.readouterr() == ("", "")


@needs_rtx
def test_an_interrupted_build_stops_and_leaves_no_engine(tmp_path, monkeypatch):
    model, cache = models.convolution(tmp_path / "model.onnx"), tmp_path / "model.trt"
    with monkeypatch.context() as patch:

        def interrupt(progress, name, step):
            if not progress.cancelled.is_set():
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # as Ctrl-C does
                assert progress.cancelled.wait(60)

        patch.setattr(BuildProgress, "step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare_engine(options(model), cache)
    assert not cache.exists()
    assert not sidecar_path(cache).exists()
    assert prepare_engine(options(model), cache).built


@needs_rtx
def test_a_build_stops_if_the_initialization_of_its_node_fails(tmp_path, monkeypatch):
    model, cache = models.convolution(tmp_path / "model.onnx"), tmp_path / "model.trt"
    init_event = hami.Event()

    def interrupt(progress, name, step):
        init_event.fail(KeyboardInterrupt())  # as the node does when Ctrl-C interrupts the building of its pipe
        assert progress.cancelled.is_set()

    monkeypatch.setattr(BuildProgress, "step", interrupt)
    with pytest.raises(hami.ConfigError, match="cannot build"):
        prepare_engine(options(model, init_event=init_event), cache)
    assert not cache.exists()
    assert not sidecar_path(cache).exists()
