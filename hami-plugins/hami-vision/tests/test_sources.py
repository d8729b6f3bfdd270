"""Sources: frames of every kind, in order and in turns, while others fail, hang or are lost."""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import weakref
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import PIL.Image
import pytest
from small_models import picture
from together import run_forked

from hami_vision.readers import Reader, Reading, SourceError, _free_frames, _Pool, quiet
from hami_vision.sources import Sources

WAIT = 20  # seconds, for what takes milliseconds on a machine that is not busy


def frames_of(count: int, times=None):
    for i in range(count):
        image = np.full((8, 8, 3), i, np.uint8)
        yield image if times is None else (times[i], image)


@pytest.fixture(scope="module")
def video(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("video") / "squares.webm"
    writer = cv2.VideoWriter(str(file), cv2.VideoWriter.fourcc(*"VP90"), 10, (64, 64))
    for i in range(12):
        writer.write(picture(("red", 4 * i, 24)))
    writer.release()
    return file


def test_one_list_mixes_files_folders_patterns_and_arrays(video, tmp_path):
    for name in "ba":
        cv2.imwrite(str(tmp_path / f"{name}.png"), picture(width=20 if name == "a" else 30))
    (tmp_path / "notes.txt").write_text("not a picture")
    with Sources([video, tmp_path, str(tmp_path / "b*"), frames_of(3)]) as sources:
        found = list(sources)
        states = sources.states()
    assert {state.state for state in states.values()} == {"ended"}
    assert [frame.index for frame in found if frame.source == str(video)] == list(range(12))
    assert [frame.image.shape[1] for frame in found if frame.source == str(tmp_path)] == [20, 30]
    assert [frame.image.shape[1] for frame in found if frame.source.endswith("b*")] == [30]
    assert [int(frame.image[0, 0, 0]) for frame in found if frame.source == "source3"] == [0, 1, 2]
    times = [frame.time for frame in found if frame.source == str(video)]
    np.testing.assert_allclose(np.diff(times), 0.1, atol=0.002)
    assert found[0].request().keys() == {"data", "req_id", "color", "source", "frame", "time"}


def test_a_picture_is_read_as_decode_mat_does(tmp_path):
    exif = PIL.Image.Exif()
    exif[0x112] = 6  # turn right; the file has it as a property that OpenCV ignores
    PIL.Image.new("RGB", (60, 40)).save(tmp_path / "turned.avif", exif=exif)
    PIL.Image.new("RGB", (8, 8), (200, 30, 60)).convert("YCbCr").save(tmp_path / "video.jp2")
    with Sources([tmp_path / "turned.avif", tmp_path / "video.jp2"]) as sources:
        images = {Path(frame.source).name: frame.image for frame in sources}
    assert images["turned.avif"].shape == (60, 40, 3)
    assert np.abs(images["video.jp2"][0, 0].astype(int) - (60, 30, 200)).max() <= 2


def test_refused_packets_are_counted_and_are_not_the_end(video, tmp_path):
    """The first byte of two packets in the middle is 0, which no frame of VP9 has."""
    data = bytearray(video.read_bytes())
    size = rb"(?:[\x80-\xff]|[\x40-\x7f].|[\x20-\x3f]..|[\x10-\x1f]...)"  # of a block in WebM
    packets = [found.end() for found in re.finditer(rb"\xa3" + size + rb"\x81..[\x00\x80]", data, re.DOTALL)]
    assert len(packets) == 12
    data[packets[5]] = data[packets[6]] = 0
    (tmp_path / "damaged.webm").write_bytes(data)
    with Sources([tmp_path / "damaged.webm"]) as sources:
        found = list(sources)
        (state,) = sources.states().values()
    assert (state.state, len(found), state.refused) == ("ended", 10, 2)
    assert (np.diff([frame.time for frame in found]) > 0).all()


def test_a_frame_that_cannot_be_converted_is_refused():
    class Camera(Reader):
        def __iter__(self):
            for i in range(3):
                yield Reading(lambda i=i: None if i == 1 else np.zeros((4, 4, 3), np.uint8))

    with Sources({"camera": Camera()}) as sources:
        assert [frame.index for frame in sources] == [0, 2]
        assert sources.states()["camera"].refused == 1


@pytest.mark.parametrize("wrong", [{"take": "all"}, {"max_rate": 0}, {"retry": -1}, {"retry": float("nan")}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Sources([], **wrong)


def test_a_source_that_fails_says_why_and_the_others_go_on(tmp_path):
    (tmp_path / "text.webm").write_text("not a video")
    (tmp_path / "broken.png").write_text("not a picture")

    def raising():
        yield from frames_of(1)
        raise RuntimeError("the camera is gone")

    given = {
        "good": frames_of(5),
        "none": tmp_path / "none.webm",
        "text": tmp_path / "text.webm",
        "picture": tmp_path / "broken.png",
        "empty": str(tmp_path / "*.jpg"),
        "raising": raising(),
        "gray": [np.zeros((4, 4), np.uint8)],
        "other": 1.5,
    }
    with Sources(given) as sources:
        found = [frame.source for frame in sources]
        states = sources.states()
    assert sorted(found) == ["good"] * 5 + ["raising"]
    assert {name: state.state for name, state in states.items()} == {
        name: "ended" if name == "good" else "failed" for name in given
    }
    reasons = {name: state.reason for name, state in states.items()}
    assert "does not exist" in reasons["none"]
    assert "cannot be opened as a video" in reasons["text"]
    assert re.search(r'broken\.png: DecodeMat: "data" is not an image file', reasons["picture"])
    assert "has no pictures" in reasons["empty"]
    assert reasons["raising"] == "RuntimeError: the camera is gone"
    assert "not uint8, H x W x 3, but uint8 [4, 4]" in reasons["gray"]
    assert "got float" in reasons["other"]


class Own(BaseException):
    def __str__(self) -> str:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "error", [Own(), SystemExit(1), GeneratorExit(), KeyboardInterrupt()], ids=lambda error: type(error).__name__
)
def test_a_source_has_failed_for_each_class_that_a_generator_raises(error):
    def raising():
        yield from frames_of(1)
        raise error

    with Sources({"raising": raising(), "good": frames_of(2)}) as sources:
        assert len(list(sources)) == 3  # the iteration ends
        state = sources.states()["raising"]
    assert state.state == "failed"
    assert type(error).__name__ in state.reason


def test_a_generator_may_use_its_memory_again():
    memory = np.zeros((4, 4, 3), np.uint8)

    def frames():
        for i in range(4):
            memory[:] = i
            yield memory

    with Sources([frames()]) as sources:
        assert [int(frame.image[0, 0, 0]) for frame in sources] == [0, 1, 2, 3]


def test_the_memory_of_a_frame_is_used_again_when_no_array_over_it_is_left(video):
    """Each frame with memory of its own took 385 faults of pages, and a seventh of all processor time."""
    capture, pool = cv2.VideoCapture(str(video)), _Pool()

    def next_image():
        assert capture.grab()
        return pool.retrieve(capture)

    next_image()  # says the shape
    image = next_image()
    address = image.ctypes.data
    part, copied = image[8:40, 8:40], image[8:40, 8:40].copy()
    del image
    other = next_image()
    assert other.ctypes.data != address
    assert np.array_equal(part, copied)
    del part
    assert next_image().ctypes.data == address
    capture.release()


def test_a_frame_that_is_kept_after_its_video_keeps_no_memory_of_others(video):
    capture, pool = cv2.VideoCapture(str(video)), _Pool()
    frames = []
    for _ in range(4):
        capture.grab()
        frames.append(pool.retrieve(capture))
    kept = frames[-1]
    content, memory = kept.copy(), weakref.ref(pool._free)
    del frames, pool
    assert memory() is None
    assert (kept == content).all()


def test_videos_of_one_size_share_the_memory_of_their_frames_and_the_last_one_frees_it(video):
    captures, pools = [cv2.VideoCapture(str(video)) for _ in range(2)], [_Pool() for _ in range(2)]

    def next_image(i):
        assert captures[i].grab()
        return pools[i].retrieve(captures[i])

    for i in range(2):
        next_image(i)  # says the shape
    addresses = {next_image(i % 2).ctypes.data for i in range(6)}
    assert len(addresses) == 1
    shape = next_image(0).shape
    assert shape in _free_frames
    for capture in captures:
        capture.release()
    pools.clear()
    gc.collect()
    assert shape not in _free_frames


def test_frames_that_are_kept_are_not_changed_by_later_ones(video):
    with Sources([video]) as sources:
        parts = [(frame.image[8:40, 8:40], frame.image[8:40, 8:40].copy()) for frame in sources if frame.index % 3]
    assert len(parts) == 8
    for part, copied in parts:
        assert np.array_equal(part, copied)


@pytest.mark.parametrize("timeout", [1e12, 1e300, float("inf")])
def test_the_next_frame_may_take_any_time(timeout):
    asked = threading.Event()

    def frames():
        asked.wait(WAIT)
        yield from frames_of(1)

    with Sources({"a": frames()}) as sources:
        threading.Timer(0.05, asked.set).start()
        assert sources.next(timeout) is not None


def test_sources_take_turns():
    done = threading.Event(), threading.Event()

    def frames(end):
        yield from frames_of(3)
        end.set()

    with Sources({"a": frames(done[0]), "b": frames(done[1])}) as sources:
        assert all(each.wait(WAIT) for each in done)  # both wait with all their frames
        assert [frame.source for frame in sources] == ["a", "b"] * 3


def test_a_reader_never_runs_far_ahead_of_the_program():
    asked = []

    def endless():
        for i in range(1000):
            asked.append(i)
            yield np.zeros((4, 4, 3), np.uint8)

    with Sources([endless()]) as sources:
        for _ in range(10):
            sources.next(WAIT)
        assert len(asked) <= 10 + 4 + 2


def test_latest_drops_older_frames_and_counts_them():
    done = threading.Event()

    def quick():
        yield from frames_of(9)
        done.set()

    with Sources([quick()], take="latest") as sources:
        assert done.wait(WAIT)
        (frame,) = list(sources)
        assert int(frame.image[0, 0, 0]) == frame.index == 8
        assert sources.states()["source0"].dropped == 8


def test_times_never_go_back():
    raw = [0.0, 0.1, 0.1, -5.0, float("nan"), 0.2, 0.3]
    with Sources([frames_of(7, raw)]) as sources:
        found = list(sources)
    assert [frame.raw_time for frame in found][:4] == raw[:4]
    assert (np.diff([frame.time for frame in found]) > 0).all()


def test_a_rate_limit_converts_only_what_is_taken():
    with Sources([frames_of(50, [i / 25 for i in range(50)])], max_rate=5) as sources:
        found = list(sources)
        assert sources.states()["source0"].dropped == 40
    assert [frame.index for frame in found] == list(range(0, 50, 5))


def test_a_rate_limit_takes_all_frames_that_have_no_time():
    """They were taken for ones of 1000 per second, so that a folder of pictures lost nearly all."""
    with Sources([frames_of(50)], max_rate=5) as sources:
        assert [frame.index for frame in sources] == list(range(50))


def test_sources_are_added_and_removed_while_they_run():
    hold = threading.Event()

    def held():
        hold.wait(WAIT)
        yield from frames_of(1)

    with Sources({"held": held()}) as sources:
        sources.add("late", frames_of(1))
        assert sources.next(WAIT).source == "late"
        with pytest.raises(ValueError, match="is there already"):
            sources.add("late", frames_of(1))
        assert sources.next(0.01) is None
        sources.remove("held")
        assert list(sources) == []
        assert list(sources.states()) == ["late"]
        hold.set()


def test_sources_are_closed_while_others_are_added(monkeypatch):
    starting, closing = threading.Event(), threading.Event()
    start = threading.Thread.start

    def started_late(self):
        if self.name == "source a":
            starting.set()
            closing.wait(0.05)  # `close` waits for this thread, or it has passed it by
        start(self)

    monkeypatch.setattr(threading.Thread, "start", started_late)
    sources = Sources({})
    adding = threading.Thread(target=sources.add, args=("a", frames_of(1)))
    adding.start()
    assert starting.wait(WAIT)
    sources.close()
    closing.set()
    adding.join(WAIT)
    assert sources.states()["a"].state in ("closed", "ended")


def test_sources_that_were_removed_and_have_ended_are_forgotten():
    with Sources({}) as sources:
        for _ in range(50):
            sources.add("short", frames_of(1))
            assert sources.next(WAIT).index == 0
            (reading,) = [each for each in threading.enumerate() if each.name == "source short"] or [None]
            sources.remove("short")
            if reading is not None:
                reading.join(WAIT)
        assert len(sources._removed) <= 1


def test_a_handler_of_signals_closes_the_sources_in_the_middle_of_next(monkeypatch):
    notify, handled = threading.Condition.notify, []

    def notify_interrupted(self, n=1):
        if threading.current_thread() is threading.main_thread() and not handled:
            signal.raise_signal(signal.SIGUSR1)
        notify(self, n)

    def close(*_):
        handled.append(True)
        sources.close()

    before = signal.signal(signal.SIGUSR1, close)
    try:
        with Sources([frames_of(3)]) as sources, monkeypatch.context() as patch:
            patch.setattr(threading.Condition, "notify", notify_interrupted)
            assert sources.next(WAIT).index == 0
            assert handled
            assert sources.next() is None
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_source_without_a_thread_is_none_and_two_of_one_name_are_refused(monkeypatch):
    def no_thread(_):
        raise RuntimeError("can't start new thread")

    with Sources({}) as sources, monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="can't start"):
            sources.add("a", frames_of(1))
        assert sources.next() is None
    with pytest.raises(ValueError, match=r"'missing\.webm' is there already"):
        Sources(["missing.webm", "missing.webm"])


def test_a_live_source_is_opened_again_after_any_number_of_failures():
    class Camera(Reader):
        is_live = True
        opened = 0

        def __iter__(self):
            self.opened += 1
            if self.opened < 1100:  # a float is below 2 ** 1024
                raise SourceError("rtsp://user:secret@camera/live cannot be opened")
            while True:
                yield Reading(lambda: np.zeros((4, 4, 3), np.uint8))

    with Sources({"camera": Camera()}, retry=0.0) as sources:
        assert sources.next(WAIT) is not None
        state = sources.states()["camera"]
    assert state.losses == 1099
    assert state.reason == "rtsp://***@camera/live cannot be opened"


@pytest.mark.parametrize(("runs_for", "most"), [(0.0, 27), (2.0, 27), (29.0, 27), (31.0, 20), (300.0, 3)])
def test_a_stream_that_flaps_is_opened_less_and_less_often(runs_for, most, monkeypatch):
    """While it gave a frame each time it was opened each half second. Ten minutes, by a clock of the test."""
    now, opened = [0.0], []
    monkeypatch.setattr("hami_vision.sources.time", SimpleNamespace(monotonic=lambda: now[0]))

    def wait(seconds):
        assert seconds >= 0.5
        now[0] += seconds

    class Camera(Reader):
        is_live = True

        def __iter__(self):
            stream = sources._streams["camera"]
            stream.stopped.wait = wait
            opened.append(now[0])
            yield Reading(lambda: np.zeros((4, 4, 3), np.uint8))
            now[0] += runs_for
            if now[0] >= 600:
                stream.stopped.set()

    with Sources({}, take="latest") as sources:
        sources.add("camera", Camera())
        list(sources)
        assert sources.states()["camera"].state == "closed"
    assert len(opened) <= most
    if runs_for > 30:
        assert opened[-1] - opened[-2] == runs_for + 0.5


def test_names_have_no_passwords():
    with Sources(["rtsp://user:secret@127.0.0.1:1/live"], live_retries=0) as sources:
        assert list(sources.states()) == ["rtsp://***@127.0.0.1:1/live"]


@pytest.mark.parametrize("last", ["", "[s.remove(name) for name in s.states()]"])
def test_the_end_of_a_program_closes_sources_that_read(video, last):
    """A thread that returned from OpenCV to a Python that has ended aborted the process."""
    program = (
        "import sys; from hami_vision.sources import Sources; "
        f"s = Sources({{str(i): sys.argv[1] for i in range(3)}}); s.next(); {last}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, video], capture_output=True, text=True, check=False, timeout=WAIT
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def server(video):
    """An address that serves the video to its first two visitors, and then refuses."""
    visits = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            visits.append(self.path)
            if len(visits) > 2:
                return self.send_error(503)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(video.read_bytes())
            return None

        def log_message(self, *_):
            pass

    running = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}/live.webm"
    running.shutdown()
    thread.join()
    running.server_close()


def test_a_stream_that_ends_is_lost_and_opened_again(server):
    with Sources({"camera": server}, retry=0.01, live_retries=1) as sources:
        found = list(sources)
        state = sources.states()["camera"]
    assert [frame.index for frame in found] == list(range(24))
    assert (np.diff([frame.time for frame in found]) > 0).all()
    assert (state.state, state.losses) == ("failed", 2)


@pytest.mark.parametrize("name", ["video.webm", "picture.png"])
def test_close_returns_while_a_named_pipe_without_a_writer_is_opened(name, tmp_path, monkeypatch):
    monkeypatch.setattr("hami_vision.sources._CLOSE_TIMEOUT", 0.05)
    os.mkfifo(tmp_path / name)
    sources = Sources({"fifo": tmp_path / name, "good": frames_of(2)})
    assert [sources.next(WAIT).source for _ in range(2)] == ["good"] * 2
    (reading,) = [each for each in threading.enumerate() if each.name == "source fifo"]
    sources.close()
    assert reading.is_alive()
    open(tmp_path / name, "wb").close()  # a writer that comes and leaves, so that no thread outlives the test
    reading.join(WAIT)
    assert sources.states()["fifo"].state in ("failed", "closed")


def test_close_returns_while_a_stream_hangs(monkeypatch):
    """A server that accepts and sends nothing: OpenCV waits for it much longer than close may take."""
    monkeypatch.setattr("hami_vision.sources._CLOSE_TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sources = Sources({"silent": f"http://127.0.0.1:{silent.getsockname()[1]}/", "good": frames_of(2)})
        accepted, _ = silent.accept()
        with accepted:
            assert [sources.next(WAIT).source for _ in range(2)] == ["good"] * 2
            (reading,) = [each for each in threading.enumerate() if each.name == "source silent"]
            sources.close()
            assert reading.is_alive()
            assert sources.next() is None
    reading.join(WAIT)  # so that no thread outlives the test
    assert not reading.is_alive()


def test_an_address_that_hangs_does_not_hold_up_the_opening_of_others(video, monkeypatch):
    """OpenCV opened the videos of all threads one after the other, so that all waited for the timeout of each."""
    monkeypatch.setattr("hami_vision.readers._TIMEOUT", 600_000)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Sources({"silent": f"http://127.0.0.1:{silent.getsockname()[1]}/"}, live_retries=0) as sources,
    ):
        silent.settimeout(WAIT)
        connection, _ = silent.accept()
        with connection:
            sources.add("video", video)
            frames = []
            while len(frames) < 12 and (frame := sources.next(WAIT)) is not None:
                frames.append(frame.index)
            assert frames == list(range(12))
            assert sources.states()["silent"].state == "connecting"
        assert sources.next(WAIT) is None  # the silent one has failed, as its connection is closed


def test_warnings_of_opencv_are_kept_back_only_while_a_thread_opens_a_video():
    log = cv2.utils.logging
    before = log.getLogLevel()
    try:
        for level, inside in ((log.LOG_LEVEL_WARNING, log.LOG_LEVEL_ERROR), (log.LOG_LEVEL_INFO, log.LOG_LEVEL_INFO)):
            log.setLogLevel(level)
            with quiet:
                with quiet:
                    assert log.getLogLevel() == inside
                assert log.getLogLevel() == inside
            assert log.getLogLevel() == level
    finally:
        log.setLogLevel(before)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a process with threads forks
def test_a_process_that_forks_while_a_video_is_opened_has_warnings_again():
    log = cv2.utils.logging
    before = log.getLogLevel()

    def levels():
        assert log.getLogLevel() == log.LOG_LEVEL_WARNING
        with quiet:
            assert log.getLogLevel() == log.LOG_LEVEL_ERROR
        assert log.getLogLevel() == log.LOG_LEVEL_WARNING

    try:
        log.setLogLevel(log.LOG_LEVEL_WARNING)
        with quiet, quiet._lock:  # as if a thread was forked there
            run_forked(levels)
    finally:
        log.setLogLevel(before)


def test_a_frame_whose_conversion_fails_is_refused_and_not_a_frame_before() -> None:
    class Video:
        fails = False

        def retrieve(self, memory):
            """Return what OpenCV does: a failed conversion gives back the memory that it was given."""
            return not self.fails, np.zeros((2, 2, 3), np.uint8) if memory is None else memory

    video, pool = Video(), _Pool()
    assert pool.retrieve(video) is not None
    assert pool.retrieve(video) is not None
    video.fails = True
    assert pool.retrieve(video) is None
    video.fails = False
    assert pool.retrieve(video).shape == (2, 2, 3)
