"""Files and streams that are damaged or strange: each is typed, and the others go on."""

from __future__ import annotations

import re
import socket
import struct
import wave

import cv2
import numpy as np
import pytest
from small_models import picture

from hami_vision.sinks import VideoWriter
from hami_vision.sources import Sources

WAIT = 20  # seconds, until a test fails


def frames_of(source, **settings):
    """Return the frames of a source and its state; another one beside it has all of its own."""
    good = [np.zeros((4, 4, 3), np.uint8)] * 5
    with Sources({"bad": source, "good": good}, **settings) as sources:
        found = list(sources)
        states = sources.states()
    assert sum(frame.source == "good" for frame in found) == 5
    return [frame for frame in found if frame.source == "bad"], states["bad"]


@pytest.fixture
def video(tmp_path):
    file = tmp_path / "squares.webm"
    with VideoWriter(file, 10) as writer:
        for i in range(12):
            writer.write(picture(("red", 4 * i, 24)))
    return file


def packets_of(data: bytes) -> list[int]:
    """Return where the frames of a WebM file begin; the two bytes of the time end one byte before."""
    size = rb"(?:[\x80-\xff]|[\x40-\x7f].|[\x20-\x3f]..|[\x10-\x1f]...)"
    return [found.end() for found in re.finditer(rb"\xa3" + size + rb"\x81..[\x00\x80]", data, re.DOTALL)]


def test_a_sound_file_has_no_video(tmp_path):
    file = tmp_path / "sound.wav"
    with wave.open(str(file), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(16000))
    found, state = frames_of(file)
    assert (found, state.state, state.reason) == ([], "failed", f"{file} cannot be opened as a video")


def test_a_file_whose_end_is_missing_gives_the_frames_that_are_there(video, tmp_path):
    data = video.read_bytes()
    cut = tmp_path / "cut.webm"
    cut.write_bytes(data[: packets_of(data)[8] + 3])
    found, state = frames_of(cut)
    assert state.state == "ended"
    assert 8 <= len(found) <= 9  # of the last one, some bytes are there


def test_frames_of_a_variable_rate_have_the_times_of_the_file(video):
    data = bytearray(video.read_bytes())
    times = [0, 20, 40, 300, 320, 700, 710, 720, 900, 1000, 1001, 1100]  # milliseconds
    for start, time in zip(packets_of(data), times, strict=True):
        data[start - 3 : start - 1] = struct.pack(">h", time)
    video.write_bytes(data)
    found, _ = frames_of(video)
    np.testing.assert_allclose([frame.time for frame in found], np.array(times) / 1000, atol=0.0015)


def test_frames_of_another_size_are_scaled_to_that_of_the_first_and_none_is_lost(tmp_path):
    """OpenCV 5.0.0 does so with its FFmpeg, so that a video that is saved has one size."""
    file = tmp_path / "sizes.mjpeg"
    sizes = [(64, 48)] * 3 + [(96, 64)] * 3
    pictures = [picture(("red", 8, 8), width=width, height=height) for width, height in sizes]
    file.write_bytes(b"".join(cv2.imencode(".jpg", each)[1].tobytes() for each in pictures))
    found, state = frames_of(file)
    assert state.state == "ended"
    assert [frame.image.shape[1::-1] for frame in found] == [sizes[0]] * 6
    for frame in found[3:]:
        assert frame.image[12, 12, 2] > 150 > frame.image[40, 50, 2]  # the square of the larger pictures, smaller


def test_the_rotation_in_the_metadata_is_applied(tmp_path):
    file = tmp_path / "turned.mp4"
    writer = cv2.VideoWriter(str(file), cv2.VideoWriter.fourcc(*"mp4v"), 10, (64, 48))
    for _ in range(3):
        writer.write(picture(("red", 0, 0), width=64, height=48))
    writer.release()
    data = bytearray(file.read_bytes())
    matrix = data.index(b"tkhd") + 44
    data[matrix : matrix + 36] = struct.pack(">9i", 0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)  # a quarter right
    file.write_bytes(data)
    found, _ = frames_of(file)
    assert [frame.image.shape for frame in found] == [(64, 48, 3)] * 3
    assert found[0].image[8, 40, 2] > 150  # the upper left corner is now the upper right one
    assert found[0].image[8, 8, 2] < 50


def test_a_device_that_is_gone_has_failed():
    found, state = frames_of(63, live_retries=0)
    assert (found, state.state, state.reason) == ([], "failed", "device 63 cannot be opened as a video")


@pytest.mark.parametrize("answers", [False, True])
def test_an_address_that_hangs_is_lost_after_the_timeout(answers, monkeypatch):
    """One that accepts and says nothing, and one that promises a video and sends none."""
    monkeypatch.setattr("hami_vision.readers._TIMEOUT", 300)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Sources({"bad": f"http://127.0.0.1:{server.getsockname()[1]}/"}, live_retries=0) as sources,
    ):
        server.settimeout(WAIT)
        connection, _ = server.accept()
        with connection:
            if answers:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: video/webm\r\n\r\n")
            assert sources.next(WAIT) is None
            state = sources.states()["bad"]
    assert (state.state, state.losses) == ("failed", 0)
    assert state.reason.endswith("cannot be opened as a video")
