"""LabelWriter and VideoWriter: files that others read."""

from __future__ import annotations

import csv
import json
import resource
import sys
import threading

import cv2
import numpy as np
import pytest
from small_models import picture

from hami_vision import Detections
from hami_vision.sinks import LabelWriter, VideoWriter

SIZE = {"width": 100, "height": 80}


def pictures() -> list[Detections]:
    nan = float("nan")
    first = Detections(
        [[0, 0, 50, 40], [nan] * 4], [0.5, nan], [2, 0], names=("a", "b", "c"), source="cam/1.webm", frame=0
    )
    return [
        first,
        Detections([[10, 20, 30, 60]], [0.25], [0], names=("a", "b", "c"), ids=[0], source="cam/1.webm", frame=1),
    ]


def write(path, form: str):
    with LabelWriter(path, form) as labels:
        for found in pictures():
            labels.write(found, **SIZE)


def test_jsonl_has_a_line_for_each_picture_and_nan_is_null(tmp_path):
    write(tmp_path / "labels.jsonl", "jsonl")
    first, second = map(json.loads, (tmp_path / "labels.jsonl").read_text().splitlines())
    assert first["objects"][1] == {"box": [None] * 4, "score": None, "class": 0, "name": "a"}
    assert (second["frame"], second["objects"][0]["id"], second["width"]) == (1, 0, 100)


def test_csv_has_the_same_columns_for_every_object(tmp_path):
    write(tmp_path / "labels.csv", "csv")
    with open(tmp_path / "labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["frame"], row["id"], row["name"], row["x2"]) for row in rows] == [
        ("0", "", "c", "50.0"),
        ("1", "0", "a", "30.0"),
    ]


def test_yolo_has_a_file_for_each_picture(tmp_path):
    write(tmp_path / "labels", "yolo")
    assert {file.name: file.read_text() for file in (tmp_path / "labels").iterdir()} == {
        "1_000000.txt": "2 0.25 0.25 0.5 0.5\n",
        "1_000001.txt": "0 0.2 0.5 0.2 0.5\n",
    }


def test_coco_numbers_from_one_and_has_the_area(tmp_path):
    write(tmp_path / "labels.json", "coco")
    content = json.loads((tmp_path / "labels.json").read_text())
    assert [(each["id"], each["image_id"], each["bbox"], each["area"]) for each in content["annotations"]] == [
        (1, 1, [0, 0, 50, 40], 2000),
        (2, 2, [10, 20, 20, 40], 800),
    ]
    assert content["categories"] == [{"id": 0, "name": "a"}, {"id": 2, "name": "c"}]
    assert [image["id"] for image in content["images"]] == [1, 2]


def test_pictures_of_two_sources_with_one_file_name_have_two_files(tmp_path):
    with LabelWriter(tmp_path, "yolo") as labels:
        for source in ("rtsp://left/live", "rtsp://right/live", "rtsp://left/live"):
            labels.write(Detections([[0, 0, 5, 5]], [0.5], [0], source=source, frame=0), **SIZE)
        with pytest.raises(ValueError, match="above 0, got 0 x 5"):
            labels.write(pictures()[0], width=0, height=5)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["live_000000.txt", "live_2_000000.txt"]


def in_threads(work, count: int = 4) -> list[BaseException]:
    """Run `work` in several threads that switch often; return what they raise."""
    raised: list[BaseException] = []

    def run():
        try:
            work()
        except BaseException as error:
            raised.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    return raised


def test_labels_are_written_and_closed_by_several_threads(tmp_path):
    labels = LabelWriter(tmp_path / "labels.json", "coco")
    assert not in_threads(lambda: [labels.write(pictures()[1], **SIZE) for _ in range(100)])
    assert not in_threads(labels.close)
    content = json.loads((tmp_path / "labels.json").read_text())
    for part in ("images", "annotations"):
        assert [each["id"] for each in content[part]] == list(range(1, 401))


def test_frames_are_written_by_several_threads(tmp_path):
    """Two threads in one writer of OpenCV end the process."""
    video, frame = VideoWriter(tmp_path / "found.webm", 30), picture()
    assert not in_threads(lambda: [video.write(frame) for _ in range(5)])
    assert not in_threads(video.close)
    read = cv2.VideoCapture(str(tmp_path / "found.webm"))
    assert read.get(cv2.CAP_PROP_FRAME_COUNT) == 20
    with pytest.raises(ValueError, match="the video is closed"):  # and not begun again
        video.write(frame)


@pytest.mark.parametrize("form", ["csv", "coco"])
def test_labels_on_a_full_disk_raise_and_are_closed(form):
    labels = LabelWriter("/dev/full", form)
    with pytest.raises(OSError, match="No space left"):
        labels.close()
    labels.close()


@pytest.mark.parametrize(("frames", "size"), [(5, 4_000), (60, 200_000)])  # none of the frames, and some of them
def test_a_video_without_all_its_frames_says_so(tmp_path, frames, size):
    """OpenCV only logs that a file cannot be written. One whose begin was there was taken for complete."""
    random = np.random.default_rng(0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    video = VideoWriter(tmp_path / "found.webm", 30)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        for _ in range(frames):
            video.write(random.integers(0, 255, (120, 160, 3), np.uint8))
        with pytest.raises(OSError, match=f"does not have all {frames} frames; is the disk full"):
            video.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_wrong_format_or_closed_labels_are_refused(tmp_path):
    with pytest.raises(ValueError, match="format must be"):
        LabelWriter(tmp_path / "x", "xml")
    labels = LabelWriter(tmp_path / "x", "csv")
    labels.close()
    with pytest.raises(ValueError, match="the labels are closed"):
        labels.write(pictures()[0], **SIZE)
    with pytest.raises(OSError, match="none"):
        LabelWriter(tmp_path / "none" / "x", "csv")


def test_a_video_is_vp9_and_odd_sizes_are_padded(tmp_path):
    file = tmp_path / "found.webm"
    with VideoWriter(file, 10) as video:
        for i in range(5):
            video.write(picture(("red", 4 * i, 20), width=63, height=61))
        with pytest.raises(ValueError, match=r"one shape, \(61, 63, 3\), got"):
            video.write(picture())
    assert file.read_bytes()[:4] == b"\x1a\x45\xdf\xa3"  # Matroska and WebM
    read = cv2.VideoCapture(str(file))
    assert int(read.get(cv2.CAP_PROP_FOURCC)).to_bytes(4, "little") in (b"VP90", b"vp09")
    frames = [frame for ok, frame in iter(read.read, (False, None)) if ok]
    read.release()
    assert [frame.shape for frame in frames] == [(62, 64, 3)] * 5
    assert np.abs(frames[4][25:30, 20:28].astype(int) - (0, 0, 255)).max() < 40


@pytest.mark.parametrize("wrong", [np.zeros((8, 8), np.uint8), np.zeros((8, 8, 4), np.uint8), np.zeros((8, 8, 3)), [1]])
def test_a_frame_of_another_form_is_refused(tmp_path, wrong):
    """OpenCV only logs some of them, and leaves the frame out."""
    with VideoWriter(tmp_path / "found.webm", 10) as video, pytest.raises(ValueError, match="is uint8, H x W x 3, got"):
        video.write(wrong)


def shades_of(file) -> list[int]:
    """Return the shade of each frame of a video of plain pictures, as they are shown one after the other."""
    read = cv2.VideoCapture(str(file))
    frames = [frame for ok, frame in iter(read.read, (False, None)) if ok]
    read.release()
    return [round(frame.mean() / 20) for frame in frames]


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        ([0, 0.1, 0.4, 0.5], [0, 1, 1, 1, 2, 3]),
        ([7, 7.14, 7.16, 7.3], [0, 1, 2, 3]),  # a camera that is not on time loses no frame
        ([0, 0.1, 0.11, 0.12, 0.13, 0.3], [0, 1, 2, 5]),
        ([0, 3600, 3600.1], [*[0] * 20, 1, 2]),
    ],
)
def test_frames_with_times_are_shown_at_them(tmp_path, monkeypatch, times, shown):
    monkeypatch.setattr("hami_vision.sinks._LONGEST_STILL", 1.9)
    memory = np.empty((16, 16, 3), np.uint8)  # that of all frames
    with VideoWriter(tmp_path / "found.webm", 10) as video:
        for shade, time in enumerate(times):
            memory[:] = 20 * shade
            video.write(memory, time)
        with pytest.raises(ValueError, match="time of a frame must be finite, got nan"):
            video.write(memory, float("nan"))
    assert shades_of(tmp_path / "found.webm") == shown


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), 1e9])
def test_a_frame_rate_out_of_range_is_refused(tmp_path, rate):
    with pytest.raises(ValueError, match="frame_rate must be above 0 and at most 1000"):
        VideoWriter(tmp_path / "found.webm", rate)


def test_a_video_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(ValueError, match=r"must end with \.webm"):
        VideoWriter(tmp_path / "found.mp4", 10)
    with pytest.raises(OSError, match="cannot be written as a video of 64 x 64"):
        VideoWriter(tmp_path / "none" / "found.webm", 10).write(picture())
