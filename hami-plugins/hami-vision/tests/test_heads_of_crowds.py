"""CountHeads and its pipeline: the heads of generated crowds."""

from __future__ import annotations

import cv2
import hami
import numpy as np
import pytest
from hami.cli import main
from small_models import SQUARE, picture

from hami_vision import Detections
from hami_vision.tiles import find_in_tiles

STEP = 3 * SQUARE  # from head to head: the detector sees one at a time


def crowd(
    columns: int, rows: int, seats: list[tuple[int, int]], others: tuple[tuple[int, int], ...] = ()
) -> np.ndarray:
    """Return a picture with red heads at seats (column, row), and blue squares, which are not heads."""
    places = [("red", x, y) for x, y in seats] + [("blue", x, y) for x, y in others]
    width, height = (STEP * (seats - 1) + SQUARE for seats in (columns, rows))
    return picture(*((colour, STEP * x, STEP * y) for colour, x, y in places), width=width, height=height)


@pytest.fixture
def settings(detector):
    return {
        "model": str(detector),
        "labels": str(detector.with_name("labels.txt")),
        "classes": ["red"],
        "score_threshold": 0.5,
    }


def test_heads_are_counted_by_a_node_with_statistics_of_its_own(settings):
    image = crowd(2, 2, [(0, 0), (0, 1), (1, 1)], others=((1, 0),))
    settings["zones"] = ["left: 0,0, 32,0, 32,64, 0,64", "empty: 0,0, 4,0, 4,4"]
    with hami.pipe({"extends": "count-heads", "global": settings}) as pipe:
        requests = [{"data": cv2.imencode(".png", each)[1].tobytes()} for each in (image, crowd(2, 2, []))]
        pipe(requests)
        stats = pipe.stats()
    full, empty = (request["result"] for request in requests)
    assert (full["heads"], full["zones"]) == (3, {"left": {"inside": 2}, "empty": {"inside": 0}})
    assert {full["detections"].name_of(i) for i in range(3)} == {"red"}
    assert (empty["heads"], empty["zones"]["left"]) == (0, {"inside": 0})
    assert (stats["count"].completed, stats["count-heads"].completed, stats["count"].failed) == (2, 2, 0)


def test_the_heads_of_a_crowd_are_found_in_tiles(settings):
    seats = [divmod(int(seat), 9) for seat in np.random.default_rng(0).permutation(90)[:57]]
    count_red = {"backend": "CountHeads", "classes": settings.pop("classes")}
    with hami.pipe({"extends": "detect", "global": settings}) as detect, hami.pipe(count_red) as count:
        found = find_in_tiles(detect, crowd(10, 9, seats), size=64, overlap=0.5, whole=False)
        counted = count({"data": found})["result"]
    assert counted["heads"] == 57
    middles = (counted["detections"].boxes[:, :2] + counted["detections"].boxes[:, 2:]) / 2
    assert sorted(map(tuple, (middles // STEP).astype(int).tolist())) == sorted(seats)


def test_boxes_with_nan_are_not_heads_and_are_counted():
    found = Detections([[0, 0, 4, 4], [np.nan, 0, 4, 4], [8, 8, 12, 12]], [0.9, 0.8, 0.7], [0, 0, 1])
    with hami.pipe({"backend": "CountHeads", "zones": ["all: -1,-1, 99,-1, 99,99, -1,99"]}) as count:
        counted = count({"data": found})["result"]
        assert count.stats()["default"].counters == {"nan_boxes": 1}
        with pytest.raises(hami.DataTypeError, match=r"CountHeads: .* must be hami_vision\.Detections"):
            count({"data": [1, 2]})
    assert (counted["heads"], counted["zones"]["all"]["inside"], len(counted["detections"])) == (2, 2, 2)


def test_a_zone_of_two_points_is_refused():
    with (
        pytest.raises(hami.ConfigError, match="CountHeads: zones has a name and at least 3 points in pixels"),
        hami.pipe({"backend": "CountHeads", "zones": ["stage: 0,0, 9,9"]}),
    ):
        pass


def test_a_run_on_a_folder_of_pictures_says_how_many_heads_they_have(settings, tmp_path, capsys):
    for name, seats in (("a", [(0, 0)]), ("b", [(0, 0), (1, 1)])):
        cv2.imwrite(str(tmp_path / f"{name}.png"), crowd(2, 2, seats))
    given = [f"{key}={settings[key]}" for key in ("model", "labels", "score_threshold")]
    options = [each for setting in [*given, "zones=all: 0,0, 64,0, 64,64, 0,64"] for each in ("--set", setting)]
    assert main(["run", "count-heads", *options, str(tmp_path), "--save", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == ["  all: 2 inside", "  objects in all frames: 3"]
    assert {file.name for file in (tmp_path / "out").iterdir()} >= {"run.json"}
