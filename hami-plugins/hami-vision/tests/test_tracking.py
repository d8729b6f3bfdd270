"""Tracker and Counter: ids that stay although frames are dropped, and counts of each crossing once."""

from __future__ import annotations

from dataclasses import replace

import hami
import numpy as np
import pytest

from hami_vision import Detections
from hami_vision.counting import Counter
from hami_vision.tracking import Rules, Tracker

STEP = 0.1  # seconds


def at(*places: tuple[float, float], scores=None, classes=None, ids=None) -> Detections:
    """Objects of 20 x 20 pixels whose upper left corners are at these places."""
    boxes = [[x, y, x + 20, y + 20] for x, y in places]
    count = len(places)
    return Detections(boxes, scores or [0.9] * count, classes or [0] * count, ids=ids)


def walk(frame: int) -> list[tuple[float, float]]:
    """Two objects that meet: one goes right, the other left, 3 pixels below each other's way."""
    return [(5.0 * frame, 50.0), (300.0 - 5.0 * frame, 90.0)]


def test_an_object_keeps_its_id_and_zero_is_one():
    tracker = Tracker()
    found = [tracker.update(at(*walk(i)), i * STEP).tolist() for i in range(60)]
    assert found == [[0, 1]] * 60


def test_dropped_frames_do_not_change_ids():
    """15 frames at 25 per second are dropped, as `latest` does."""
    tracker = Tracker()
    frames = [i for i in range(60) if not 20 <= i < 35]
    found = [tracker.update(at(*walk(i)), i / 25).tolist() for i in frames]
    assert found == [[0, 1]] * len(frames)


def test_an_object_with_nan_crosses_no_line_and_is_counted():
    """Ids of another tracker: our own gives such an object none."""
    places = [(0, 50), (np.nan, 50), (100, 50)]
    with hami.pipe({"backend": "StateFul[CountObjects]", "lines": ["door: 60,0, 60,200"]}) as count:
        for i, place in enumerate(places):
            found = replace(at(place, ids=[0]), time=float(i))
            result = count({"data": found, "req_id": "a"})["result"]
        assert count.stats()["default"].counters == {"nan_boxes": 1}
    assert result["lines"] == {"door": {"in": 0, "out": 1}}


def test_ids_follow_the_objects_when_rows_are_permuted():
    tracker = Tracker()
    for i in range(10):
        places = walk(i)[:: 1 if i % 2 else -1]
        assert tracker.update(at(*places), i * STEP).tolist() == ([1, 0] if i % 2 else [0, 1])


def test_a_new_object_has_its_id_at_the_second_sight_and_a_flicker_never():
    tracker = Tracker()
    tracker.update(at((0, 0)), 0)
    assert tracker.update(at((0, 0), (200, 0)), STEP).tolist() == [0, -1]
    assert tracker.update(at((0, 0), (200, 0)), 2 * STEP).tolist() == [0, 1]
    assert tracker.update(at((0, 0), (200, 0), (100, 90)), 3 * STEP).tolist() == [0, 1, -1]
    tracker.update(at((0, 0), (200, 0)), 4 * STEP)
    assert tracker.update(at((0, 0), (200, 0), (100, 90)), 5 * STEP).tolist() == [0, 1, -1]


def test_a_low_score_continues_a_track_and_begins_none():
    tracker = Tracker()
    tracker.update(at((0, 0)), 0)
    assert tracker.update(at((1, 0), (200, 0), scores=[0.2, 0.2]), STEP).tolist() == [0, -1]
    assert tracker.update(at((2, 0), (200, 0), scores=[0.05, 0.2]), 2 * STEP).tolist() == [-1, -1]


def test_an_object_that_is_lost_too_long_gets_a_new_id():
    for gap, expected in ((0.9, 0), (1.2, 1)):
        tracker = Tracker(Rules(max_lost=1.0))
        tracker.update(at((0, 0)), 0)
        tracker.update(at(), 0.05)
        tracker.update(at((0, 0)), gap)
        assert tracker.update(at((0, 0)), gap + STEP).tolist() == [expected]


def test_nan_and_boxes_without_an_area_have_no_id():
    found = Detections([[0, 0, 20, 20], [np.nan, 0, 1, 1], [5, 5, 5, 9], [9, 9, 3, 3]], [0.9] * 4, [0] * 4)
    assert Tracker().update(found, 0).tolist() == [0, -1, -1, -1]
    scores = Detections([[0, 0, 20, 20]], [np.nan], [0])
    assert Tracker().update(scores, 0).tolist() == [-1]
    infinite = Detections([[0, 0, 20, 20]] * 2, [np.inf, 0.9], [0, 0])
    tracker = Tracker()
    assert [tracker.update(infinite, time).tolist() for time in (0, 1)] == [[-1, 0]] * 2


def test_time_that_does_not_go_on_is_refused_and_changes_nothing():
    tracker = Tracker()
    tracker.update(at((0, 0)), 1.0)
    for time in (1.0, 0.5, float("nan")):
        with pytest.raises(ValueError, match=r"must be after that of the frame before, 1\.0 s"):
            tracker.update(at((100, 100)), time)
    assert tracker.update(at((0, 0)), 1.0 + STEP).tolist() == [0]


def ids_of(streams: int, batch: int) -> list[list[int]]:
    registered = "InstancesRegister[Reflect[backend]], Register[StateFul[Batching, InstanceDispatcher]]"
    config = {"node_entrypoint": f"List[{registered}]", "backend": "TrackObjects", "max": batch}
    found: list[list[int]] = []
    with hami.pipe(config) as pipe:
        for i in range(6):
            requests = [{"data": at(*walk(i)), "req_id": f"camera{s}", "time": i * STEP} for s in range(streams)]
            pipe(requests)
            found += [request["result"].ids.tolist() for request in requests]
    return found


@pytest.mark.parametrize(("streams", "batch"), [(1, 1), (32, 16)])
def test_ids_do_not_depend_on_the_number_of_streams_or_the_batch_size(streams, batch):
    assert ids_of(streams, batch) == [[0, 1]] * 6 * streams


def test_without_times_frames_follow_at_the_frame_rate():
    with hami.pipe("StateFul[TrackObjects(frame_rate=10)]") as pipe:
        found = [pipe({"data": at((0, 0)), "req_id": 1})["result"].time for _ in range(3)]
    assert found == pytest.approx([0, 0.1, 0.2])


def test_a_refused_frame_leaves_the_stream_as_it_was():
    with hami.pipe("StateFul[TrackObjects]") as pipe:
        pipe({"data": at((0, 0)), "req_id": 1, "time": 5})
        with pytest.raises(hami.RequestError, match="TrackObjects: the time of a frame"):
            pipe({"data": at((0, 0)), "req_id": 1, "time": 4})
        with pytest.raises(hami.RequestError, match=r"got 5\.0 s \(each program that reads a source needs a `req_id`"):
            pipe({"data": at((0, 0)), "req_id": 1, "time": 5})
        for wrong in ([5.5], 10**400, "soon"):  # a mistake of the client, whose text says so
            with pytest.raises(hami.RequestError, match=r"TrackObjects: .* no effect on the tracks"):
                pipe({"data": at((0, 0)), "req_id": 1, "time": wrong})
        assert pipe({"data": at((0, 0)), "req_id": 1, "time": 6})["result"].ids.tolist() == [0]
        pipe({"data": at((0, 0)), "req_id": 1, "time": 7, "finish": True})
        assert pipe({"data": at((0, 0)), "req_id": 1, "time": 0})["result"].time == 0  # the next reader of this source


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("TrackObjects", "needs StateFul around it"),
        ("StateFul[TrackObjects(low=0.7)]", "low <= high <= new"),
        ("StateFul[CountObjects]", "the objects have no ids; put TrackObjects before it"),
        ("StateFul[CountObjects(lines='door: 1,2,3')]", "lines has a name and 2 points in pixels, .* got \"?'?door"),
        ("StateFul[CountObjects(zones='door: 1,2,3,4')]", "zones has a name and at least 3 points"),
        (
            {"backend": "StateFul[CountObjects]", "lines": ["a: 1,2, 3,4", "a: 1,2, 3,5"]},
            'lines has the name "a" twice',
        ),
        (
            {"backend": "StateFul[CountObjects]", "zones": ["a: 0,0, 9,0, 9,9", "5,5, 6,6"]},
            "zones has a name and at least 3 points in pixels, .* got '5,5, 6,6'",
        ),
    ],
)
def test_a_wrong_configuration_names_what_to_do(backend, message):
    with (
        pytest.raises(hami.ConfigError, match=message)
        if "ids" not in message
        else pytest.raises(hami.RequestError, match=message),
        hami.pipe(backend) as pipe,
    ):
        pipe({"data": at((0, 0)), "req_id": 1})


def test_other_data_fail_with_what_was_expected():
    with (
        pytest.raises(hami.DataTypeError, match=r"must be hami_vision\.Detections"),
        hami.pipe("StateFul[TrackObjects]") as pipe,
    ):
        pipe({"data": 3, "req_id": 1})


LINE = {"door": ((100.0, 200.0), (100.0, 0.0))}  # upwards, so its right is the right of the picture


def count(frames, lines=LINE, zones=None, **keys) -> dict:
    counter = Counter(lines, zones or {}, **keys)
    for i, found in enumerate(frames):
        counter.update(found, i * STEP)
    return counter.counts()


def test_a_crossing_counts_once_in_its_direction():
    there = [at((10.0 * i, 50), ids=[4]) for i in range(20)]
    assert count(there)["lines"] == {"door": {"in": 1, "out": 0}}
    assert count([*there, *reversed(there)])["lines"] == {"door": {"in": 1, "out": 1}}


def test_a_crossing_during_thirty_unseen_frames_counts_once():
    frames = [at((10, 50), ids=[4]), *[at(ids=[])] * 30, *[at((150, 50), ids=[4])] * 3]
    assert count(frames, max_lost=4.0)["lines"] == {"door": {"in": 1, "out": 0}}
    assert count(frames, max_lost=2.0)["lines"] == {"door": {"in": 0, "out": 0}}  # forgotten


def test_a_way_around_the_end_of_a_line_is_no_crossing():
    assert count([at((10, 250), ids=[4]), at((150, 250), ids=[4])])["lines"] == {"door": {"in": 0, "out": 0}}


def test_standing_on_the_line_counts_once():
    frames = [at((x - 10, 50), ids=[4]) for x in (98, 100, 100, 101, 100, 103)]
    assert count(frames)["lines"] == {"door": {"in": 1, "out": 0}}


def test_an_id_that_another_class_reuses_is_another_object():
    frames = [at((10, 50), ids=[4], classes=[0]), at((150, 50), ids=[4], classes=[1])]
    found = count(frames)
    assert found["lines"] == {"door": {"in": 0, "out": 0}}
    assert found["objects"] == 2


def test_a_zone_knows_who_is_inside_and_for_how_long():
    zone = {"shop": [(0.0, 0.0), (100.0, 0.0), (100.0, 100.0), (0.0, 100.0)]}
    frames = [at((40, 40), (300, 300), ids=[0, 1])] * 11 + [at((200, 40), (40, 40), ids=[0, 1])] * 6
    shop = count(frames, {}, zone)["zones"]["shop"]
    assert (shop["inside"], shop["entered"]) == (1, 2)
    assert [(each["id"], each["seconds"]) for each in shop["dwell"]] == [
        (0, pytest.approx(1.1)),
        (1, pytest.approx(0.5)),
    ]


def test_a_zone_keeps_objects_of_two_classes_with_one_id_apart():
    zone = {"shop": [(0.0, 0.0), (100.0, 0.0), (100.0, 100.0), (0.0, 100.0)]}
    frames = [at((40, 40), (50, 50), ids=[4, 4], classes=[0, 1])] * 11 + [at((40, 40), ids=[4], classes=[0])] * 5
    shop = count(frames, {}, zone)["zones"]["shop"]
    assert [(each["class"], each["id"]) for each in shop["dwell"]] == [(0, 4), (1, 4)]
    assert shop["dwell"][0]["seconds"] > shop["dwell"][1]["seconds"]


def test_a_zone_keeps_the_newest_visits(monkeypatch):
    monkeypatch.setattr("hami_vision.counting.MOST_VISITS", 2)
    zone = {"shop": [(0.0, 0.0), (100.0, 0.0), (100.0, 100.0), (0.0, 100.0)]}
    visits = [frame for each in (0, 1, 2, 1, 3) for frame in (at((40, 40), ids=[each]), at((200, 40), ids=[each]))]
    shop = count(visits, {}, zone)["zones"]["shop"]
    assert ([each["id"] for each in shop["dwell"]], shop["entered"]) == ([1, 3], 5)


def test_objects_without_an_id_do_not_count():
    assert count([at((10, 50), ids=[-1]), at((150, 50), ids=[-1]), at((1, 1))])["objects"] == 0
