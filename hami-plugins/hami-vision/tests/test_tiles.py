"""find_in_tiles: an object in several tiles is one, wherever the tiles are cut, and small ones are found."""

from __future__ import annotations

import hami
import numpy as np
import pytest
from small_models import SIZE, SQUARE, picture

from hami_vision import Detections
from hami_vision.tiles import find_in_tiles


@pytest.fixture(scope="module")
def pipe(detector):
    keys = {"model": str(detector), "labels": str(detector.with_name("labels.txt")), "pad": 0}
    with hami.pipe({"extends": "detect", "global": keys}) as pipe:
        yield pipe


def test_objects_that_are_too_small_for_the_whole_picture_are_found_once_each(pipe):
    places = [(x, y) for x in (8, 100, 171) for y in (4, 60, 110)]  # some of them at the edges of tiles
    image = picture(*(("red", x, y) for x, y in places), width=200, height=130)
    found = find_in_tiles(pipe, image, size=SIZE, overlap=0.5, whole=False)
    boxes = sorted(found.boxes.round().astype(int).tolist())
    assert boxes == sorted([x, y, x + SQUARE, y + SQUARE] for x, y in places)


def test_a_picture_of_the_size_of_a_tile_is_one_tile(pipe):
    found = find_in_tiles(pipe, picture(("red", 8, 8), ("blue", 40, 40)), size=SIZE, whole=False)
    assert sorted(found.name_of(i) for i in range(len(found))) == ["blue", "red"]


def test_a_large_picture_is_in_the_pipe_in_parts(pipe):
    sizes = []

    def counted(requests):
        sizes.append(len(requests))
        pipe(requests)

    image = picture(("red", 300, 4), ("red", 3, 300), width=320, height=320)
    found = find_in_tiles(counted, image, size=SIZE, overlap=0.5)
    assert sizes == [32, 32, 18]  # 9 x 9 and the whole
    assert sorted(found.boxes.round().astype(int)[:, :2].tolist()) == [[3, 300], [300, 4]]


@hami.register
class TestWhole(hami.Backend):
    """A bright part of a picture as one object, with its mask and the corner as a key point."""

    def forward(self, batch):
        for item in batch:
            mask = item["data"][..., 0] > 0
            rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
            if not len(rows):
                item["result"] = Detections([], [], [], masks=[], keypoints=[])
                continue
            box = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
            corner = [[box[0], box[1], 1]]
            item["result"] = Detections([box], [0.9], [0], masks=mask[None], keypoints=[corner])


def test_a_large_object_is_the_one_of_the_whole_picture_with_its_mask():
    image = np.zeros((100, 300, 3), np.uint8)
    image[20:90, 30:280] = 255
    with hami.pipe("TestWhole") as pipe:
        found = find_in_tiles(pipe, image, size=64, node=None)
        cut = find_in_tiles(pipe, image, size=64, overlap=0, whole=False, node=None)
    assert found.boxes.tolist() == [[30, 20, 280, 90]]
    np.testing.assert_array_equal(found.masks[0], image[..., 0] > 0)
    assert found.keypoints.tolist() == [[[30, 20, 1]]]
    assert len(cut) > 1  # without it, its parts


@pytest.mark.parametrize(("size", "overlap"), [(0, 0.2), (64, 1.0), (64, -0.1)])
def test_sizes_out_of_range_are_refused(pipe, size, overlap):
    with pytest.raises(ValueError, match="size must be at least 1 and overlap from 0 to below 1"):
        find_in_tiles(pipe, picture(), size=size, overlap=overlap)
