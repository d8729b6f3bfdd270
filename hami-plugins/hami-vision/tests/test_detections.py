"""Detections: columns and rows, JSON, crops, drawing, and supervision."""

from __future__ import annotations

import json
import sys
import types

import numpy as np
import pytest
from small_models import picture

from hami_vision import Detections
from hami_vision.drawing import blur, draw

NAMES = ("red", "blue")


def some(**columns) -> Detections:
    defaults = {"boxes": [[0, 0, 4, 4], [2, 3, 9, 8]], "scores": [0.9, 0.5], "classes": [0, 1], "names": NAMES}
    return Detections(**{**defaults, **columns})


def test_columns_of_another_length_or_shape_are_refused():
    with pytest.raises(ValueError, match=r"scores must be N with N = 2, got \(1,\)"):
        some(scores=[0.5])
    with pytest.raises(ValueError, match=r"boxes must be N x 4 with N = 2, got \(2, 3\)"):
        some(boxes=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="keypoints must be N x any x 3"):
        some(keypoints=np.zeros((2, 5, 2)))


def test_no_objects_need_no_shapes():
    none = Detections([], [], [], ids=[])
    assert none.boxes.shape == (0, 4)
    assert (len(none), none.to_json(), list(none.crop(picture()))) == (0, "[]", [])


def test_rows_keep_all_their_columns():
    found = some(ids=[7, -1], keypoints=np.ones((2, 1, 3)), time=1.5)
    second = found[[1]]
    assert second.tolist()[0] == found.tolist()[1]
    assert (found[found.scores > 0.6].ids.tolist(), found[1].name_of(0), second.time) == ([7], "blue", 1.5)


def test_classes_are_chosen_by_name_or_number():
    assert some().of_class("blue").scores.tolist() == [0.5]
    assert len(some().of_class(0, "blue")) == 2
    assert some(names=()).name_of(1) == "1"


def test_nan_becomes_null_in_json():
    rows = json.loads(some(scores=[float("nan"), 0.5], ids=[0, -1]).to_json())
    assert [row["score"] for row in rows] == [None, 0.5]
    assert [row["id"] for row in rows] == [0, -1]


def test_crops_are_inside_the_picture():
    image = picture(("red", 4, 4))
    found = some(boxes=[[-5, -5, 8.2, 6], [200, 10, 300, 20], [4, 4, np.nan, np.inf]], scores=[1] * 3, classes=[0] * 3)
    assert [part.shape[:2] for part in found.crop(image)] == [(6, 9), (10, 0), (60, 0)]


def test_drawing_changes_a_copy_where_the_objects_are():
    image = picture()
    mask = np.zeros((2, 64, 64), bool)
    mask[0, 30:40, 30:40] = True
    found = some(
        boxes=[[20, 20, 50, 50], [np.nan] * 4],
        masks=mask,
        ids=[0, 1],
        keypoints=np.full((2, 1, 3), 25),
        angles=[0.1, 0],
    )
    drawn = draw(found, image)
    assert not image.any()
    assert drawn[35, 35].any()  # the mask
    assert drawn[25, 25].any()  # the key point
    assert not drawn[55, 55].any()
    with pytest.raises(ValueError, match="uint8, H x W x 3"):
        draw(found, image[..., 0])


def test_a_blurred_class_cannot_be_recognised():
    image = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    blurred = blur(some(boxes=[[0, 0, 32, 32], [32, 32, 64, 64]]).of_class("blue"), image)
    np.testing.assert_array_equal(blurred[:32], image[:32])
    assert blurred[32:, 32:].std() < image[32:, 32:].std() / 3


def test_supervision_gets_and_returns_every_column(monkeypatch):
    class Theirs:  # the constructor and attributes of supervision.Detections
        def __init__(self, xyxy, confidence, class_id, mask, tracker_id, data, metadata):
            vars(self).update(locals())

    monkeypatch.setitem(sys.modules, "supervision", types.SimpleNamespace(Detections=Theirs))
    found = some(
        ids=[0, -1],
        masks=np.ones((2, 5, 5)),
        keypoints=np.ones((2, 2, 3)),
        angles=[0, 1],
        source="a",
        frame=3,
        time=0.5,
    )
    back = Detections.from_supervision(found.to_supervision())
    for name in vars(found):
        np.testing.assert_array_equal(getattr(back, name), getattr(found, name))
    assert len(some(boxes=[[0, 0, 1, 1], [np.nan] * 4]).to_supervision().xyxy) == 1
    bare = Theirs(np.zeros((1, 4)), None, None, None, None, {"class_name": np.array(["cat"])}, {})
    assert Detections.from_supervision(bare).tolist() == [{"box": [0, 0, 0, 0], "score": 1, "class": 0, "name": "cat"}]
