"""`hami run` on sources: the count of the sample, files that open, Ctrl-C and the next run, and sources that fail."""

from __future__ import annotations

import json
import os
import pickle
import pty
import re
import signal
import subprocess
import sys
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
from browsers import browser as browser  # a fixture
from hami.cli import main
from make_sample import FRAMES, IN, OUT, SCALE, frame
from small_models import SIZE, picture

import hami_vision
from hami_vision import Detections, run_command
from hami_vision.live_page import LivePage
from hami_vision.saving import SaveFolder
from hami_vision.sinks import VideoWriter
from hami_vision.sources import Sources

WALK = Path(hami_vision.__file__).parent / "sample" / "walk.webm"
WAIT = 20  # seconds, until a test fails
NAMES = "detect, segment, count-heads, track, count-people"
MODEL = ["--set", f"model={WALK.with_name('squares.onnx')}", "--set", f"labels={WALK.with_name('squares.txt')}"]


@pytest.fixture
def walks(tmp_path) -> list[str]:
    """Two short videos of a square."""
    files = [str(tmp_path / f"{name}.webm") for name in ("a", "b")]
    for file in files:
        with VideoWriter(file, 10) as video:
            for i in range(12):
                video.write(picture(("red", 4 * i, 24)))
    return files


def shown(file) -> list[np.ndarray]:
    video = cv2.VideoCapture(str(file))
    frames = [image for ok, image in iter(video.read, (False, None)) if ok]
    video.release()
    return frames


def test_the_sample_is_the_video_that_is_described():
    for i, image in enumerate(shown(WALK)):
        assert np.abs(image.astype(int) - frame(i)).mean() < 6
    assert i == FRAMES - 1


def test_counting_the_sample_prints_the_true_count_and_its_video_opens_in_a_browser(tmp_path, capsys, browser):
    assert main(["run", "count-people", "--sample", "--save", str(tmp_path)]) == 0
    first, door, objects = capsys.readouterr().out.splitlines()[1:]
    assert first.split(",")[0].strip() == f"{FRAMES} frames"
    assert (door, objects) == (f"  door: in {IN}, out {OUT}", f"  objects: {IN + OUT}")
    lines = (tmp_path / "walk.jsonl").read_text().splitlines()
    assert [json.loads(line)["frame"] for line in lines] == list(range(FRAMES))
    tab = browser.new_page()
    tab.goto(f"file://{tmp_path}/walk.webm")
    tab.wait_for_function("document.querySelector('video').readyState >= 2")
    assert tab.evaluate("document.querySelector('video').videoWidth") == SIZE * SCALE
    assert tab.evaluate("document.querySelector('video').duration") == pytest.approx(FRAMES / 25, abs=0.2)
    tab.close()


def test_videos_pictures_and_a_file_that_is_none_are_mixed(walks, tmp_path, capsys):
    image, broken = tmp_path / "one.png", tmp_path / "broken.webm"
    cv2.imwrite(str(image), picture(("red", 8, 8), ("blue", 40, 40)))
    broken.write_bytes(b"not a video")
    out = tmp_path / "out"
    given = [*walks, str(image), str(broken), "--save", str(out)]
    assert main(["run", "detect", *MODEL, *given]) == 1
    printed = capsys.readouterr()
    assert f"{broken}:\n  0 frames, 0.0/s; failed: {broken} cannot be opened as a video" in printed.out
    found = re.escape(f"{image}:\n") + r"  1 frames, \d+\.\d/s; ended\n  objects in all frames: 2"
    assert re.search(found, printed.out)
    files = {"a.jsonl", "a.webm", "b.jsonl", "b.webm", "one.jsonl", "one_000000.png", "run.json"}
    assert {file.name for file in out.iterdir()} == files
    assert len(shown(out / "a.webm")) == 12
    assert main(["run", "detect", *MODEL, *given]) == 1  # again: only the broken one is tried
    assert capsys.readouterr().err.count("complete since an earlier run") == 3


def test_pictures_of_a_folder_that_are_refused_are_named_and_shift_no_other(tmp_path, capsys):
    """The last one made its folder fail, so that the next run made all of it again; one without its end was gray."""
    (folder := tmp_path / "folder").mkdir()
    for name in ("a", "c"):
        cv2.imwrite(str(folder / f"{name}.png"), picture(("red", 8, 8)))
    cut = cv2.imencode(".jpg", np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))[1].tobytes()[:-500]
    (folder / "b.jpg").write_bytes(cut)
    (folder / "d.png").write_text("not a picture")
    given = [str(folder), "--save", str(out := tmp_path / "out")]
    assert main(["run", "detect", *MODEL, *given]) == 0
    first = capsys.readouterr().out.splitlines()[1]
    reason = rf"{folder}/d\.png: DecodeMat: .*not an image"
    assert re.match(rf"  2 frames, .*/s, refused: 2; ended; last failure: {reason}", first)
    assert {file.name for file in out.glob("*.png")} == {"folder_000000.png", "folder_000002.png"}
    assert main(["run", "detect", *MODEL, *given]) == 0
    assert "complete since an earlier run" in capsys.readouterr().err


def test_an_address_that_is_lost_is_named_at_once_and_counted_at_the_end(walks, capsys, monkeypatch):
    monkeypatch.setattr(run_command, "Sources", partial(run_command.Sources, retry=0, live_retries=1))
    address = "http://127.0.0.1:1/live"
    assert main(["run", "detect", *MODEL, walks[0], address]) == 1
    printed = capsys.readouterr()
    assert f"{address}: {address} cannot be opened as a video; it is opened again" in printed.err
    assert f"  0 frames, 0.0/s, losses: 1; failed: {address} cannot be opened as a video" in printed.out
    assert "  12 frames, " in printed.out


def test_addresses_whose_passwords_alone_differ_are_two_sources(walks, capsys, monkeypatch):
    """The second one ended the run, with all its other sources."""
    monkeypatch.setattr(run_command, "Sources", partial(run_command.Sources, live_retries=0))
    assert main(["run", "detect", *MODEL, walks[0], *(f"http://{one}:x@127.0.0.1:1/live" for one in "ab")]) == 1
    printed = capsys.readouterr().out
    assert re.findall(r"^(http.*):$", printed, re.MULTILINE) == [
        "http://***@127.0.0.1:1/live",
        "http://***@127.0.0.1:1/live (2)",
    ]
    assert "  12 frames, " in printed


def test_a_model_that_gives_nan_is_not_taken_for_one_that_finds_nothing(walks, capsys):
    assert main(["run", "detect", *MODEL, "--set", "scale=nan", walks[0]]) == 0
    printed = capsys.readouterr()
    assert "objects in all frames: 0" in printed.out
    assert re.fullmatch(r"left out by detect: nan_boxes: \d+", printed.err.splitlines()[-1])


def test_json_has_a_line_for_each_frame(walks, capsys):
    assert main(["run", "track", *MODEL, walks[0], "--json"]) == 0
    *frames, end = map(json.loads, capsys.readouterr().out.splitlines())
    assert [each["result"][0]["id"] for each in frames] == [0] * 12
    counts = {"frames": 12, "failed": 0, "dropped": 0, "refused": 0, "losses": 0}
    assert end == {"source": walks[0], "state": "ended", "reason": "", **counts}


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_closes_the_files_and_the_next_run_goes_on(walks, tmp_path, capsys, monkeypatch, number, status):
    out = tmp_path / "out"
    take = run_command._Source.take
    monkeypatch.setattr(run_command, "_MOST_OPEN", 1)  # one after the other
    monkeypatch.setattr(run_command, "_MOST_RUNNING", 1)

    def take_and_interrupt(self, result):
        take(self, result)
        if run_command._Source.interrupts_after is not None:
            run_command._Source.interrupts_after -= 1
            if run_command._Source.interrupts_after == 0:
                signal.raise_signal(number)

    monkeypatch.setattr(run_command._Source, "interrupts_after", 15, raising=False)  # in the second source
    monkeypatch.setattr(run_command._Source, "take", take_and_interrupt)
    assert main(["run", "track", *MODEL, *walks, "--save", str(out)]) == status
    assert {file.name for file in out.iterdir()} == {"a.jsonl", "a.webm", "b.part.jsonl", "b.part.webm", "run.json"}
    assert 3 <= len(shown(out / "b.part.webm")) < 12
    assert re.search(r"b\.webm:\n  \d+ frames, .*; closed\n", capsys.readouterr().out)
    run_command._Source.interrupts_after = None
    assert main(["run", "track", *MODEL, *walks, "--save", str(out)]) == 0
    assert {file.name for file in out.iterdir()} == {"a.jsonl", "a.webm", "b.jsonl", "b.webm", "run.json"}
    assert len((out / "b.jsonl").read_text().splitlines()) == 12
    assert f"{walks[0]}: complete since an earlier run" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_source_whose_frames_have_all_been_read_but_not_run_is_closed_by_a_signal(tmp_path, capsys, monkeypatch):
    for i in range(4):
        cv2.imwrite(str(tmp_path / f"{i}.png"), picture(("red", 8 * i, 24)))
    take_next = Sources.next

    def next_after_all_is_read(self, timeout):
        with self._arrived:
            assert self._arrived.wait_for(lambda: all(state.is_done for state in self.states().values()), WAIT)
        signal.raise_signal(signal.SIGINT)
        return take_next(self, timeout)

    monkeypatch.setattr(Sources, "next", next_after_all_is_read)
    assert main(["run", "track", *MODEL, str(tmp_path), "--json"]) == 130
    end = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (end["state"], end["frames"]) == ("closed", 1)


def test_a_file_that_has_changed_is_read_again_and_other_settings_are_refused(walks, tmp_path):
    out = tmp_path / "out"
    with SaveFolder(out, {"pipeline": "track"}) as save:
        save.complete("none")
        assert not save.is_complete(walks[0])
    (out / "run.json").write_text(
        json.dumps({"settings": {"pipeline": "track"}, "complete": {walks[0]: {"name": "a", "file": [1, 2]}}})
    )
    with SaveFolder(out, {"pipeline": "track"}) as save:
        assert not save.is_complete(walks[0])
    with pytest.raises(ValueError, match=r"results of other settings, .*use another folder"):
        SaveFolder(out, {"pipeline": "detect"})


def test_a_full_disk_is_an_error_of_the_files_and_the_frames_are_still_counted(walks, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("hami_vision.saving.LabelWriter.write", full)
    assert main(["run", "track", *MODEL, walks[0], "--save", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr()
    assert "12 frames" in printed.out
    assert "error: files: 12 results failed, 0 dropped: OSError: [Errno 28] No space left" in printed.err
    assert not (tmp_path / "out" / "a.webm").exists()


def test_a_source_whose_results_are_not_written_does_not_keep_the_others_from_completing(
    walks, tmp_path, monkeypatch, capsys
):
    out, write = tmp_path / "out", SaveFolder.__call__

    def write_but_not_the_last_one_of_a(self, frame, result):
        with monkeypatch.context() as patch:
            if (frame.source, frame.index) == (walks[0], 11):
                patch.setattr("hami_vision.saving.LabelWriter.write", full)
            write(self, frame, result)

    monkeypatch.setattr(SaveFolder, "__call__", write_but_not_the_last_one_of_a)
    assert main(["run", "track", *MODEL, *walks, "--save", str(out)]) == 1
    assert {file.name for file in out.iterdir()} == {"a.part.jsonl", "a.part.webm", "b.jsonl", "b.webm", "run.json"}
    assert "error: files: 1 results failed, 0 dropped: OSError: [Errno 28]" in capsys.readouterr().err


class Ready:
    """A pipe whose results are ready at once, without a bar and signals."""

    received = 0

    def __init__(self):
        self.events: list[tuple[str, str, int]] = []

    def submit(self, request):
        self.events.append(("start", request["source"], request["frame"]))
        future: Future = Future()
        future.set_result({"result": Detections(np.zeros((0, 4)), [], [])})
        return future

    def send(self, frame, result):
        self.events.append(("deliver", frame.source, frame.index))

    def update(self, *_):
        pass

    def run(self, inputs: list[str]) -> None:
        run_command._Work(self, {}, self, None, False).run(inputs, self, self)


def test_a_result_that_is_ready_is_delivered_before_the_next_frame_is_started(walks):
    """A frame of a stream would wait for the 32 after it otherwise."""
    ready = Ready()
    ready.run(walks[:1])
    assert ready.events == [(event, walks[0], i) for i in range(12) for event in ("start", "deliver")]


def test_what_is_kept_of_a_source_does_not_grow_with_its_objects(walks):
    """A camera sees new objects for years; each of the last 32 frames has its time."""
    source, sizes = run_command._Source(), []
    for i in range(3000):
        source.take(Detections(np.zeros((2, 4)), [1, 1], [0, 0], ids=[i // 2, -1]))
        if i in (999, 2999):
            sizes.append(len(pickle.dumps(vars(source))))
    assert source.lines()[-1] == "objects: 1500"
    assert sizes[1] - sizes[0] < 100


def test_files_are_read_beside_any_number_of_streams(walks, monkeypatch):
    monkeypatch.setattr(run_command, "_MOST_OPEN", 1)
    ready, add, ended_for = Ready(), run_command.Sources.add, []

    def stream():
        for _ in range(5000):  # a real one has no end
            if ("deliver", walks[0], 11) in ready.events:
                return ended_for.append("the file")
            yield np.zeros((8, 8, 3), np.uint8)

    monkeypatch.setattr(
        run_command.Sources, "add", lambda self, name, place: add(self, name, stream() if "://" in place else place)
    )
    ready.run(["rtsp://camera/live", walks[0]])
    assert ended_for == ["the file"]


def test_the_bar_on_a_terminal_fits_and_is_removed():
    """A real terminal: a bar, how many of all have ended, and, if they last, the name and rate of open ones."""
    ours, theirs = pty.openpty()
    program = [sys.executable, "-m", "hami", "run", "count-people", "--sample"]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment) as done:
        os.close(theirs)
        drawn = b""
        while part := read_terminal(ours):
            drawn += part
        printed, _ = done.communicate(timeout=60)
    os.close(ours)
    assert done.returncode == 0
    assert "door: in" in printed
    before, *lines = [re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", line) for line in drawn.decode().split("\r\x1b[K")]
    assert (before, lines[-1].strip()) == ("", "")
    assert all(len(line) < 80 for line in lines)
    assert all(re.fullmatch(r"\S{30,32} 0/1(  walk\.webm \d+\.\d/s)?", line.strip()) for line in lines[:-1])


def read_terminal(number: int) -> bytes:
    """Return what is there to read; nothing when the program has closed its side."""
    try:
        return os.read(number, 1 << 16)
    except OSError:  # EIO of Linux
        return b""


@pytest.mark.parametrize(("given", "named"), [([], "no input"), (["array.npy"], "array.npy")])
def test_options_of_sinks_without_videos_say_what_they_are_for(given, named, tmp_path, capsys):
    assert main(["run", "track", *MODEL, *given, "--save", str(tmp_path / "out")]) == 1
    assert f"--save, --show and --sample are for videos, cameras, folders and pictures of {NAMES}" in (
        printed := capsys.readouterr().err
    )
    assert f"got track with {named}" in printed
    assert not (tmp_path / "out").exists()


def test_a_video_starts_at_no_chosen_node(capsys):
    assert main(["run", "track", *MODEL, "walk.webm", "--node", "other"]) == 1
    assert capsys.readouterr().err.startswith("error: --node is not for videos, cameras, folders and pictures")


def full(*_, **__):
    raise OSError(28, "No space left on device")


def test_show_serves_the_frames_while_it_runs(walks, capsys, monkeypatch):
    names = []
    close = LivePage.close
    monkeypatch.setattr(LivePage, "close", lambda self: (names.extend(self.names()), close(self)))
    assert main(["run", "track", *MODEL, walks[0], "--show", "--port", "0"]) == 0
    assert names == [walks[0]]
    assert capsys.readouterr().err.startswith("live: http://127.0.0.1:")


def test_pictures_without_a_sink_are_printed_as_before(tmp_path, capsys):
    image = tmp_path / "one.png"
    cv2.imwrite(str(image), picture(("red", 8, 8)))
    assert main(["run", "detect", *MODEL, str(image)]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["box", "score", "class", "name"]
    assert main(["run", "Identity", "--text", "detect"]) == 0
    assert capsys.readouterr().out == "detect\n"


def test_the_first_requests_that_fail_are_reported_with_their_frames_and_all_are_counted(walks, capsys):
    """A model that does not fit wrote a line for each frame of a stream, for as long as it ran."""
    assert main(["run", "track", *MODEL, "--set", "head=detr", walks[0]]) == 1
    printed = capsys.readouterr()
    assert "failed: 12; ended" in printed.out
    assert re.findall(r"frame (\d+): .*the head detr needs boxes, logits", printed.err) == ["0", "1", "2"]
    assert printed.err.splitlines()[-1] == f"{walks[0]}: further failures are only counted"


def test_the_rate_that_is_printed_is_that_of_all_frames(monkeypatch):
    """It was that of the last results, which come at once where a batch ends: 18964.9/s for two pictures."""
    now = [0.0]
    monkeypatch.setattr(run_command.time, "monotonic", lambda: now[0])
    source = run_command._Source()
    for _ in range(2):
        source.start()
    now[0] = 4.0
    for _ in range(2):
        source.take(Detections(np.zeros((0, 4)), [], []))
        now[0] += 1e-4
    assert source.lines()[0].startswith("2 frames, 0.5/s")


def test_the_sample_says_which_pipeline_needs_another_model(capsys):
    assert main(["run", "segment", "--sample"]) == 1
    assert "the model of --sample has no masks" in capsys.readouterr().err
