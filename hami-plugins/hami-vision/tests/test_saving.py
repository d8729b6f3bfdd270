"""SaveFolder: what counts as complete, and what a rerun makes again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import cv2
import numpy as np
import pytest
from small_models import picture

from hami_vision import Detections, saving
from hami_vision.saving import LabelWriter, SaveFolder
from hami_vision.sources import Frame

FOUND = Detections([[8, 8, 24, 24]], [0.5], [0])


def frame(source: object, index: int = 0) -> Frame:
    return Frame(str(source), index, picture(("red", 8, 8)), index / 10, index / 10)


def test_a_source_one_of_whose_results_is_not_written_is_never_complete(tmp_path, monkeypatch):
    video = tmp_path / "a.webm"
    video.write_bytes(b"1")
    out = tmp_path / "out"
    with SaveFolder(out) as save:
        save(frame(video), FOUND)
        with monkeypatch.context() as patch:
            patch.setattr(LabelWriter, "write", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                save(frame(video, 1), FOUND)
        save(frame(video, 2), FOUND)
        assert save.has_failed(str(video))
        with pytest.raises(OSError, match=r"a\.webm do not have all results"):
            save.complete(str(video))
    assert {file.name for file in out.iterdir()} == {"a.part.jsonl", "a.part.webm"}
    with SaveFolder(out) as save:
        assert not save.is_complete(str(video))


TIMES = {
    "steady, in milliseconds": [round(i / 29.97, 3) for i in range(90)],
    "steady and slow": [i / 2 for i in range(6)],
    "variable": [0, 0.04, 0.08, 0.3, 0.34, 0.7, 0.72, 0.9, 1.6, 1.64],
    "variable from the start": [0, 1, 1.04, 1.08, 1.12, 3, 3.04],
    "two frames": [0, 0.2],
    "one frame": [0],
}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_a_frame_of_a_video_is_shown_at_its_time(times, tmp_path):
    """A frame has the place of its number in the upper row: a video that is played shows it when its time has come."""
    with SaveFolder(tmp_path / "out") as save:
        for i, time in enumerate(times):
            image = np.zeros((16, 8 * len(times), 3), np.uint8)
            image[:, 8 * i : 8 * i + 8] = 255
            save(Frame("a", i, image, 5 + time, time), Detections([], [], []))
        save.complete("a")
    video = cv2.VideoCapture(str(tmp_path / "out" / "a.webm"))
    began: dict[int, float] = {}
    while video.grab():
        at = video.get(cv2.CAP_PROP_POS_MSEC) / 1000
        began.setdefault(int(video.retrieve()[1][8, 4::8, 0].argmax()), at)
    rate = video.get(cv2.CAP_PROP_FPS)
    video.release()
    assert list(began) == list(range(len(times)))  # none is missing
    np.testing.assert_allclose(list(began.values()), times, atol=1.5 / rate + 0.002)


def test_a_camera_that_comes_back_with_another_size_is_scaled_in_its_video(tmp_path):
    with SaveFolder(tmp_path / "out") as save:
        for i, width in enumerate([64, 64, 32, 32, 96, 96]):
            image = picture(("red", 0, 0), width=width, height=width)
            save(Frame("a", i, image, i / 10, i / 10), FOUND)
        save.complete("a")
    video = cv2.VideoCapture(str(tmp_path / "out" / "a.webm"))
    frames = [image for ok, image in iter(video.read, (False, None)) if ok]
    video.release()
    assert [image.shape for image in frames] == [(64, 64, 3)] * 6


def test_a_file_that_grows_while_it_is_read_is_read_again(tmp_path):
    video = tmp_path / "a.webm"
    video.write_bytes(b"1")
    with SaveFolder(tmp_path / "out") as save:
        save(frame(video), FOUND)
        video.write_bytes(b"12")
        save.complete(str(video))
        assert not save.is_complete(str(video))
        save(frame(video), FOUND)
        save.complete(str(video))
    with SaveFolder(tmp_path / "out") as save:
        assert save.is_complete(str(video))


def test_a_folder_with_a_picture_that_has_changed_is_read_again(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    cv2.imwrite(str(folder / "one.png"), picture(("red", 8, 8)))
    with SaveFolder(tmp_path / "out") as save:
        save(frame(folder), FOUND)
        save.complete(str(folder))
        assert save.is_complete(str(folder))
        cv2.imwrite(str(folder / "one.png"), picture(("red", 8, 8), ("blue", 40, 40)))
        assert not save.is_complete(str(folder))


@pytest.mark.parametrize("content", ["{", "[]", '{"settings": {}}', '{"settings": {}, "complete": {"a": 1}}'])
def test_a_folder_of_another_program_is_refused(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(OSError, match=r"run\.json does not say which results are complete; use another folder"):
        SaveFolder(tmp_path)


def test_two_runs_do_not_write_to_one_folder(tmp_path):
    """Each removed and replaced what the other one had not completed."""
    with SaveFolder(tmp_path):
        with pytest.raises(OSError, match=r"another run is writing to .*; wait for its end, or use another folder"):
            SaveFolder(tmp_path)
        program = "import sys; from hami_vision.saving import SaveFolder; SaveFolder(sys.argv[1])"
        other = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=False)
        assert "another run is writing to" in other.stderr
    for refused in ({}, {"other": "settings"}):
        with SaveFolder(tmp_path, refused):
            pass


def test_the_frames_of_several_threads_are_in_one_video(tmp_path, monkeypatch):
    """Two threads with the frame that begins the video and the next one began a video each, of one name."""
    begin, begun, both = saving._Results._begin_video, [], threading.Event()

    def begin_late(self):
        begun.append(self)
        if len(begun) == 2:
            both.set()
        both.wait(0.1)  # for the other thread, which comes or waits for this one
        begin(self)

    monkeypatch.setattr(saving._Results, "_begin_video", begin_late)
    with SaveFolder(tmp_path) as save:
        for i in range(3):
            save(frame("a.webm", i), FOUND)
        threads = [threading.Thread(target=save, args=(frame("a.webm", i), FOUND)) for i in (3, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        save.complete("a.webm")
    assert len(begun) == 1
    video = cv2.VideoCapture(str(tmp_path / "a.webm"))
    assert sum(1 for _ in iter(video.grab, False)) == 5
    video.release()


def test_a_source_that_is_called_like_an_unfinished_file_gets_files_of_its_own(tmp_path):
    with SaveFolder(tmp_path) as save:
        for source in ("a.webm", "old/a.part.webm"):
            for i in range(2):
                save(frame(source, i), FOUND)
        save.complete("a.webm")
        save.complete("old/a.part.webm")
    assert {file.name for file in tmp_path.iterdir()} == {
        "a.webm",
        "a.jsonl",
        "a_part.webm",
        "a_part.jsonl",
        "run.json",
    }
    assert [len((tmp_path / f"{name}.jsonl").read_text().splitlines()) for name in ("a", "a_part")] == [2, 2]


def test_a_closed_folder_leaves_the_files_of_the_next_run_as_they_are(tmp_path):
    first = SaveFolder(tmp_path / "out")
    first(frame("a.mp4"), FOUND)
    first.close()
    with SaveFolder(tmp_path / "out") as second:
        second(frame("a.mp4"), FOUND)
        with pytest.raises(ValueError, match="the folder of the results is closed"):
            first(frame("a.mp4", 1), FOUND)
        second(frame("a.mp4", 1), FOUND)
    assert len((tmp_path / "out" / "a.part.jsonl").read_text("utf-8").splitlines()) == 2


def test_a_result_that_a_thread_writes_while_the_folder_closes_is_refused(tmp_path, monkeypatch):
    """It was written into the folder of the next run."""
    write, at, go_on = saving._Results.write, threading.Event(), threading.Event()

    def late(self, *given):
        at.set()
        assert go_on.wait(60)
        write(self, *given)

    def write_late():
        with pytest.raises(ValueError, match=r"the files of camera are closed"):
            first(late_frame, FOUND)
        refused.set()

    late_frame = Frame("camera", 1, picture(("red", 8, 8)), 0.1, None)
    first, refused = SaveFolder(tmp_path), threading.Event()
    first(Frame("camera", 0, picture(("red", 8, 8)), 0, None), FOUND)
    monkeypatch.setattr(saving._Results, "write", late)
    thread = threading.Thread(target=write_late)
    thread.start()
    assert at.wait(60)
    first.close()
    with SaveFolder(tmp_path):
        go_on.set()
        thread.join(60)
    assert refused.is_set()
    assert {file.name for file in tmp_path.iterdir()} == {"camera_000000.png", "camera.part.jsonl"}


def test_a_folder_belongs_to_its_run_until_a_source_is_complete(tmp_path, monkeypatch):
    rename, at, go_on, order = saving._Results.rename, threading.Event(), threading.Event(), []

    def late(self):
        at.set()
        assert go_on.wait(60)
        rename(self)
        order.append("renamed")

    monkeypatch.setattr(saving._Results, "rename", late)
    save = SaveFolder(tmp_path)
    save(frame("a.webm"), FOUND)
    threads = [threading.Thread(target=save.complete, args=("a.webm",))]
    threads[0].start()
    assert at.wait(60)
    threads.append(threading.Thread(target=lambda: (save.close(), order.append("closed"))))
    threads[1].start()
    with pytest.raises(OSError, match="another run is writing to"):
        SaveFolder(tmp_path)
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert order == ["renamed", "closed"]
    with SaveFolder(tmp_path):
        assert (tmp_path / "run.json").exists()


def test_a_forked_child_neither_keeps_nor_ends_the_lock_of_a_folder(tmp_path):
    read, write = os.pipe()
    save = SaveFolder(tmp_path)
    child = os.fork()
    if child == 0:
        save.close()  # of the child alone
        os.read(read, 1)
        os._exit(0)
    try:
        with pytest.raises(OSError, match="another run is writing to"):
            SaveFolder(tmp_path)
        save.close()
        SaveFolder(tmp_path).close()
    finally:
        os.write(write, b"1")
        assert os.waitpid(child, 0)[1] == 0
        os.close(read)
        os.close(write)
